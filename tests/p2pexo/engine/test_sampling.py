from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

import mlx.core as mx
import pytest

from p2pexo.engine.sampling import Draw, draw, sampling_key
from p2pexo.generation.request import Sampling

LOGITS = mx.array([1.0, 3.0, 2.0, -1.0, 0.5])


def draw_one(logits: mx.array, sampling: Sampling, index: int = 0, **changes: Any) -> int:
    return cast(int, draw(logits[None], [Draw(sampling, index, **changes)]).item())


def token(sampling: Sampling, index: int = 0, prompt: Sequence[int] = (), output: Sequence[int] = ()) -> int:
    return draw_one(LOGITS, sampling, index, prompt=prompt, output=output)


def drawn(sampling: Sampling, count: int = 200) -> Counter[int]:
    return Counter(token(sampling, index) for index in range(count))


def test_temperature_zero_takes_the_best_token() -> None:
    assert {token(Sampling(temperature=0, seed=seed), seed) for seed in range(5)} == {1}


def test_the_key_is_the_same_everywhere_and_depends_on_all_its_parts() -> None:
    assert sampling_key(7, 0, 0) == 13991797841865902245
    parts = [(seed, choice, index) for seed in (0, 1, 2**64 - 1) for choice in (0, 1) for index in range(20)]
    assert len({sampling_key(*each) for each in parts}) == len(parts)
    assert sampling_key(-1, 0, 0) == sampling_key(2**64 - 1, 0, 0)


def test_a_seed_fixes_every_token_and_other_seeds_give_others() -> None:
    first, again, other = (
        [token(Sampling(seed=seed, temperature=2.0), index) for index in range(30)] for seed in (7, 7, 8)
    )
    assert first == again != other


def test_the_draws_follow_the_probabilities() -> None:
    counts = drawn(Sampling(seed=1), 500)
    expected = cast(list[float], mx.softmax(LOGITS).tolist())
    assert [round(counts[each] / 500, 1) for each in range(3)] == [round(share, 1) for share in expected[:3]]


@pytest.mark.parametrize(
    ("sampling", "possible"),
    [
        (Sampling(seed=1, temperature=5.0, top_k=1), {1}),
        (Sampling(seed=1, temperature=5.0, top_k=2), {1, 2}),
        (Sampling(seed=1, temperature=5.0, top_k=99), {0, 1, 2, 3, 4}),
        (Sampling(seed=1, top_p=0.0), {1}),
        (Sampling(seed=1, top_p=0.5), {1}),
        (Sampling(seed=1, top_p=0.8), {1, 2}),
        (Sampling(seed=1, min_p=1.0), {1}),
        (Sampling(seed=1, min_p=0.3), {1, 2}),
        (Sampling(seed=1, temperature=5.0, top_k=3, top_p=0.9), {0, 1, 2}),
    ],
)
def test_only_the_tokens_within_the_cuts_are_drawn(sampling: Sampling, possible: set[int]) -> None:
    assert set(drawn(sampling)) == possible


def greedy(prompt: Sequence[int] = (), output: Sequence[int] = (), **changes) -> int:
    return token(Sampling(temperature=0, **changes), len(output), prompt, output)


def test_a_bias_lifts_or_bans_a_token_and_unknown_tokens_are_ignored() -> None:
    assert greedy(logit_bias=((3, 100.0), (10**6, 5.0), (-1, 100.0))) == 3
    assert greedy(logit_bias=((1, -100.0),)) == 2


def test_frequency_counts_how_often_and_presence_only_whether() -> None:
    assert greedy(output=[1], frequency_penalty=0.6) == 1
    assert greedy(output=[1, 1], frequency_penalty=0.6) == 2
    assert greedy(output=[1, 1, 1], presence_penalty=0.9) == 1
    assert greedy(output=[1], presence_penalty=1.1) == 2
    assert greedy(prompt=[1, 1, 1], frequency_penalty=2.0, presence_penalty=2.0) == 1


def test_the_repetition_penalty_looks_at_the_prompt_too_and_works_on_both_signs() -> None:
    assert greedy(prompt=[1], repetition_penalty=1.4) == 1
    assert greedy(prompt=[1], repetition_penalty=1.6) == 2
    assert greedy(prompt=[1, 2, 0, 4], repetition_penalty=100.0) == 1
    negative = draw_one(mx.array([-1.0, -1.5]), Sampling(temperature=0, repetition_penalty=2.0), 1, prompt=[0])
    assert negative == 1


def test_a_token_does_not_depend_on_the_dtype_of_equal_logits() -> None:
    sampling = Sampling(seed=3, temperature=0.7, top_p=0.9)
    assert draw_one(LOGITS.astype(mx.float16), sampling, 4) == token(sampling, 4)


def test_a_choice_has_draws_of_its_own() -> None:
    sampling = Sampling(seed=7, temperature=2.0)
    answers = {tuple(draw_one(LOGITS, sampling, index, choice=choice) for index in range(30)) for choice in range(3)}
    assert len(answers) == 3


def test_nothing_but_what_is_allowed_is_drawn_whatever_its_bias() -> None:
    allowed = mx.array([False, False, False, True, True])
    for sampling in (Sampling(seed=1, logit_bias=((1, 100.0),)), Sampling(temperature=0), Sampling(seed=1, top_p=0.1)):
        tokens = {draw_one(LOGITS, sampling, index, allowed=allowed) for index in range(30)}
        assert tokens <= {3, 4}


def test_a_row_of_many_is_drawn_as_it_is_alone() -> None:
    logits = mx.random.normal((6, 40), key=mx.random.key(3)) * 2
    draws = [
        Draw(Sampling(temperature=0)),
        Draw(Sampling(seed=1), 4),
        Draw(Sampling(seed=1, temperature=0.5), 4, choice=2),
        Draw(Sampling(seed=5, top_p=0.8, top_k=10), 1),
        Draw(Sampling(temperature=0, frequency_penalty=2.0), 3, output=[cast(int, mx.argmax(logits[4]).item())]),
        Draw(Sampling(seed=2**64 - 1, temperature=3.0), 9),
    ]
    alone = [cast(int, draw(logits[row][None], [each]).item()) for row, each in enumerate(draws)]
    plain = [0, 1, 2, 5]
    assert cast(list[int], draw(logits, draws).tolist()) == alone
    together = draw(logits[mx.array(plain)], [draws[row] for row in plain])
    assert cast(list[int], together.tolist()) == [alone[row] for row in plain]

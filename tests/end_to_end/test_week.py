"""What the bench of a week takes for growth, and for an answer."""

import pytest
from end_to_end.load.plateau import Plateau, plateau
from end_to_end.load.visits import Visit
from end_to_end.load.week_requests import judge


def test_what_grows_at_first_and_then_stays_is_flat():
    seen = plateau([50, 80, 95, 100, 101, 100, 102, 101])
    assert seen == Plateau(97.5, 101.5)
    assert seen.is_flat(share=0.05, slack=0)


def test_what_goes_on_growing_is_not_flat():
    seen = plateau([100 + 2 * number for number in range(40)])
    assert seen.grown == pytest.approx(40)
    assert not seen.is_flat(share=0.05, slack=5)


def test_a_peak_on_the_way_is_no_growth():
    assert plateau([10, 10, 10, 10, 900, 10, 10, 10]).is_flat(share=0, slack=0)


def test_a_few_readings_are_compared_as_they_are():
    assert plateau([3]) == Plateau(3, 3)
    assert plateau([3, 4]) == Plateau(4, 4)
    assert plateau([1, 2, 3]) == Plateau(2, 3)


def test_without_readings_nothing_can_be_said():
    with pytest.raises(ValueError, match="longer"):
        plateau([])


@pytest.mark.parametrize(
    ("dialect", "status", "raw", "said"),
    [
        ("chat", 200, '{"choices": []}', ""),
        ("chat", 503, '{"error": {"type": "ServiceUnavailableError", "code": "overloaded"}}', "503 overloaded"),
        ("claude", 529, '{"type": "error", "error": {"type": "overloaded_error"}}', "529 overloaded_error"),
        ("ollama", 503, '{"error": "not now"}', "503"),
    ],
)
def test_an_answer_and_a_foreseen_error_are_told_apart(dialect: str, status: int, raw: str, said: str):
    assert judge(Visit(dialect, {"stream": False}), status, raw) == said


@pytest.mark.parametrize(
    ("status", "raw"), [(404, '{"error": {"code": "model_not_found"}}'), (503, "no JSON"), (200, "")]
)
def test_anything_else_is_a_surprise(status: int, raw: str):
    with pytest.raises((AssertionError, ValueError)):
        judge(Visit("chat", {"stream": False}), status, raw)


def test_a_stream_without_its_end_is_a_surprise():
    raw = '{"message": {"content": "so"}, "done": false}\n'
    with pytest.raises(AssertionError, match="ended so"):
        judge(Visit("ollama", {"stream": True}), 200, raw)
    assert judge(Visit("ollama", {"stream": True}), 200, raw + '{"done": true}\n') == ""
    assert judge(Visit("ollama", {"stream": True}), 200, raw + '{"error": "the ring is lost"}\n') == "in the stream"

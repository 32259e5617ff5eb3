from attrs import evolve

from p2pexo.cluster.demand import WINDOWED_TEXTS, demand
from p2pexo.cluster.machines import Candidate
from p2pexo.models.card import Card

CARD = Card(
    id="owner/model",
    revision="r1",
    architecture="gemma3_text",
    layers=4,
    hidden_size=8,
    context_length=1000,
    layer_bytes=130,
    embedding_bytes=300,
    head_bytes=320,
    kv_bytes_per_token=2,
    dense_factor=4.0,
    layer_weights=(100, 110, 120, 130),
    tied=True,
)
MAC = Candidate("mac", "mac", 10**9)


def test_each_layer_counts_with_its_own_weights() -> None:
    needs = demand(evolve(CARD, kv_bytes_per_token=0, tied=False), MAC)
    assert needs.of_stage(0, 2) == 300 + 210
    assert needs.of_stage(2, 4) == 250 + 320
    assert needs.of_stage(0, 4) == 300 + 460 + 320


def test_embedding_and_head_count_once_where_they_are_the_same() -> None:
    needs = demand(evolve(CARD, kv_bytes_per_token=0), MAC)
    assert needs.of_stage(0, 4) == 460 + 320
    assert needs.of_ends(first=True, last=True) == 320


def test_weights_that_are_dequantised_count_as_they_lie_in_memory() -> None:
    needs = demand(evolve(CARD, kv_bytes_per_token=0), evolve(MAC, dense=True))
    assert needs.of_stage(1, 3) == 4 * 230


def test_a_layer_with_a_window_keeps_it_for_a_few_conversations_and_no_more() -> None:
    needs = demand(evolve(CARD, cache_limits=(0, 10, 0, 10)), MAC)
    assert needs.of_stage(1, 2) == 110 + 2 * WINDOWED_TEXTS * 10
    assert needs.of_stage(0, 1) == 300 + 100 + 2 * 1000
    assert needs.of_stage(1, 2, tokens=4000) == needs.of_stage(1, 2)


def test_a_share_of_what_is_left_is_for_more_conversation() -> None:
    needs = demand(evolve(CARD, context_length=100), MAC)
    least = needs.of_stage(1, 2)
    assert needs.tokens_in(least, 1, 2) == 100
    assert needs.tokens_in(least + 4 * 2 * 30, 1, 2) == 130
    assert needs.tokens_in(10**9, 1, 2) == 400

import json

from attrs import evolve

from p2pexo.generation.codec import decode, encode
from p2pexo.models.card import Card

CARD = Card("a/b", "r1", "qwen3_moe", 2, 64, 128, 1000, 80, 90, 5, active_weights=(300, 400))


def test_a_card_comes_out_as_it_went_in() -> None:
    for card in (CARD, evolve(CARD, layers=1, active_weights=(), whole=True)):
        assert decode(encode(card), Card) == card


def test_the_card_of_an_older_version_is_one_of_a_model_that_can_be_cut_and_computes_with_all_its_weights() -> None:
    known = json.loads(encode(CARD))
    del known["whole"], known["active_weights"]
    card = decode(json.dumps(known).encode(), Card)
    assert not card.whole
    assert card.active_sizes == card.layer_sizes == (1000, 1000)

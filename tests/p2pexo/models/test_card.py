import json

from p2pexo.generation.codec import decode, encode
from p2pexo.models.card import Card

WHOLE = Card("a/b", "r1", "cohere2", 1, 64, 128, 1000, 0, 0, 5, whole=True)


def test_a_card_comes_out_as_it_went_in() -> None:
    assert decode(encode(WHOLE), Card) == WHOLE


def test_the_card_of_an_older_version_is_one_of_a_model_that_can_be_cut() -> None:
    known = json.loads(encode(WHOLE))
    del known["whole"]
    assert not decode(json.dumps(known).encode(), Card).whole

from p2pexo.engine.families import FAMILIES
from p2pexo.models.architectures import ARCHITECTURES


def test_every_architecture_that_is_offered_has_a_family_and_the_other_way_round() -> None:
    assert set(ARCHITECTURES.values()) == set(FAMILIES)

import pytest
from attrs import evolve

from p2pexo.cluster.chronicle import news


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (("ab", ""), ("ab", ""), []),
        (("a", ""), ("ab", ""), ["b joined"]),
        (("ab", ""), ("a", ""), ["b left"]),
        (("ab", ""), ("ab", "b"), ["b does not answer"]),
        (("ab", "b"), ("ab", ""), ["b answers again"]),
        (("ab", "b"), ("ac", ""), ["c joined", "b left"]),
    ],
)
def test_who_came_and_who_went_is_told(scene, before, now, said) -> None:
    earlier, later = (scene.cluster(live, suspect=suspect) for live, suspect in (before, now))
    named = [
        evolve(each, nodes={peer: evolve(node, name=peer) for peer, node in each.nodes.items()})
        for each in (earlier, later)
    ]
    assert list(news(*named)) == said


def test_who_leads_is_told(scene) -> None:
    cluster = scene.cluster("ab")
    named = evolve(cluster, nodes={peer: evolve(node, name=f"mac-{peer}") for peer, node in cluster.nodes.items()})
    assert list(news(named, evolve(named, leader="b", term=5))) == ["mac-b leads, term 5"]
    assert list(news(named, evolve(named, leader=None))) == ["nobody leads"]

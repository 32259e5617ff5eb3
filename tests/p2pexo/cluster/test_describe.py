from attrs import evolve

from networking.membership import MemberState
from networking.transport import Address, PeerId
from networking.view import Member, View
from p2pexo.cluster.describe import describe, state_of
from p2pexo.cluster.facts import (
    NODE_KEY,
    PAIRING_KEY,
    SPEEDS_KEY,
    ActivityFact,
    Asking,
    Deletion,
    LinkSpeed,
    Newcomer,
    NodeFacts,
    PairingFact,
    Placements,
    SpeedsFact,
    StageFact,
    Trouble,
    activity_key,
    stage_key,
)
from p2pexo.cluster.observed import observe
from p2pexo.cluster.snapshot import AskingView, NewcomerView
from p2pexo.generation.codec import encode
from p2pexo.ring.activity import StageActivity
from p2pexo.ring.stage import StagePhase

NODE = NodeFacts("mini", "Apple M4, 16 GB", "1.0", "gpu", 16, 12, 8, "http://mini:52415", ("10.0.0.1",))


def view(nodes: dict[str, NodeFacts], placements: Placements | None = None, stages: tuple[StageFact, ...] = ()) -> View:
    facts: dict[PeerId, dict[str, bytes]] = {PeerId(peer): {NODE_KEY: encode(node)} for peer, node in nodes.items()}
    for fact in stages:
        facts[PeerId(fact.placement.stages[fact.rank].peer)][stage_key(fact.placement.id, fact.rank)] = encode(fact)
    members = tuple(
        Member(PeerId(peer), MemberState.ALIVE, index, (Address("/ip4/10.0.0.1/tcp/1"),))
        for index, peer in enumerate(nodes)
    )
    return View(PeerId("a"), members, PeerId("a"), 3, encode(placements or Placements()), facts, ("from below",))


def test_a_member_is_shown_with_the_size_of_what_it_tells(scene) -> None:
    placements = Placements([scene.placement("a", "b")])
    snapshot = describe(view({"a": NODE, "b": NODE}, placements), cluster_name="desk", open_cluster=False)
    leader, follower = (member.told_bytes for member in snapshot.members)
    assert (follower, leader) == (len(encode(NODE)), len(encode(NODE)) + len(encode(placements)))


def test_a_snapshot_shows_members_placements_and_stages(scene) -> None:
    placement = scene.placement("a", "b")
    stages = (scene.fact(placement, 0), scene.fact(placement, 1, link="tls 10.0.0.1:4000"))
    seen = view({"a": NODE, "b": evolve(NODE, name="studio")}, Placements([placement]), stages)
    snapshot = describe(seen, cluster_name="desk", open_cluster=True)
    assert (snapshot.cluster, snapshot.open, snapshot.leader, snapshot.term) == ("desk", True, "a", 3)
    assert [(each.name, each.state, each.is_leader, each.memory_reserved) for each in snapshot.members] == [
        ("mini", "alive", True, 1000),
        ("studio", "alive", False, 1000),
    ]
    (shown,) = snapshot.placements
    assert (shown.state, shown.epoch) == ("ready", str(placement.epoch))
    assert [(each.node, each.first_layer, each.end_layer, each.phase) for each in shown.stages] == [
        ("mini", 0, 15, "ready"),
        ("studio", 15, 30, "ready"),
    ]
    assert shown.stages[1].link == "tls 10.0.0.1:4000"
    assert snapshot.warnings == ("from below",)


def test_nodes_of_different_versions_are_warned_of() -> None:
    snapshot = describe(
        view({"a": NODE, "b": evolve(NODE, name="old", version="0.9")}), cluster_name="d", open_cluster=False
    )
    assert "old 0.9" in snapshot.warnings[-1]


def test_a_member_that_has_not_told_of_itself_yet_is_shown_by_its_id() -> None:
    seen = view({"a": NODE})
    stranger = Member(PeerId("0123456789abcdef"), MemberState.SUSPECT, 9, ())
    snapshot = describe(evolve(seen, members=(*seen.members, stranger)), cluster_name="d", open_cluster=False)
    assert (snapshot.members[1].name, snapshot.members[1].state) == ("89abcdef", "suspect")


def test_facts_that_can_not_be_read_are_left_out() -> None:
    seen = view({"a": NODE})
    facts = {PeerId("a"): {NODE_KEY: b"?", stage_key("p", 0): b"[]"}}
    cluster = observe(evolve(seen, facts=facts, payload=b"{}{"))
    assert (cluster.nodes, cluster.stages, cluster.placements) == ({}, {}, Placements())


def test_a_placement_that_failed_is_still_shown_with_its_reason(scene) -> None:
    ended = Placements(deletions=[Deletion("p1", "cut short", 0.0, scene.placement("a"))])
    (shown,) = describe(view({"a": NODE}, ended), cluster_name="d", open_cluster=False).placements
    assert (shown.id, shown.state, shown.reason) == ("p1", "failed", "cut short")


def test_while_nobody_leads_the_rings_are_still_shown(scene) -> None:
    seen = evolve(view({"a": NODE}, stages=(scene.fact(scene.placement("a"), 0),)), leader=None, payload=b"")
    assert describe(seen, cluster_name="d", open_cluster=False).placements[0].state == "ready"


def test_the_state_of_a_placement_is_that_of_its_worst_stage(scene) -> None:
    placement = scene.placement("a", "b")
    placed = Placements([placement])

    def state(*facts: StageFact, live: str = "ab", placements: Placements = placed) -> tuple[str, str]:
        return state_of(scene.cluster(live, placements, facts), placement)

    ready = scene.fact(placement, 0)
    loading = scene.fact(placement, 1, StagePhase.LOADING, progress=0.42)
    assert state(ready, scene.fact(placement, 1)) == ("ready", "")
    assert state(ready) == ("loading", "waiting for mac-b to start stage 1")
    assert state(ready, loading) == ("loading", "loading layers 42% on mac-b")
    assert state(ready, scene.fact(placement, 1, StagePhase.LINKING)) == ("loading", "linking the stages")
    delayed = scene.fact(placement, 1, StagePhase.LINKING, reason="no answer")
    assert state(ready, delayed) == ("loading", "linking the stages: stage 1 on mac-b: no answer")
    fetching = scene.fact(placement, 1, StagePhase.STARTING, reason="fetching the model", progress=0.5)
    assert state(ready, fetching) == ("loading", "fetching the model 50% on mac-b")
    assert state(ready, scene.fact(placement, 1, StagePhase.BROKEN, reason="reset"))[0] == "broken"
    broken = scene.fact(placement, 0, StagePhase.BROKEN)
    assert state(broken, scene.fact(placement, 1, StagePhase.FAILED, reason="boom")) == (
        "failed",
        "stage 1 on mac-b: boom",
    )
    assert state(ready, live="a")[0] == "broken"
    troubled = Placements([placement], troubles=[Trouble("p1", "too small")])
    assert state(ready, live="a", placements=troubled) == ("broken", "too small")


def test_who_waits_anywhere_is_shown_by_all_and_whom_one_asks_only_by_itself() -> None:
    newcomer = Newcomer("peer-anna", "anna", "Apple M3", "042 917", "10.0.0.7", "Anna")
    seen = view({"a": NODE, "b": evolve(NODE, name="studio")})
    facts = {**seen.facts, PeerId("b"): {**seen.facts[PeerId("b")]}}
    facts[PeerId("b")] = {**facts[PeerId("b")], PAIRING_KEY: encode(PairingFact((newcomer,), Asking("attic", "1")))}
    snapshot = describe(evolve(seen, facts=facts), cluster_name="d", open_cluster=False)
    assert snapshot.newcomers == (
        NewcomerView("peer-anna", "anna", "Apple M3", "042 917", "10.0.0.7", "studio", "Anna"),
    )
    assert snapshot.asking is None
    own = describe(evolve(seen, me=PeerId("b"), facts=facts), cluster_name="d", open_cluster=False)
    assert own.asking == AskingView("attic", "1")


def test_speeds_and_what_stages_are_busy_with_are_shown(scene) -> None:
    placement = scene.placement("a", "b")
    seen = view({"a": NODE, "b": NODE}, Placements([placement]), (scene.fact(placement, 0), scene.fact(placement, 1)))
    speeds, busy = SpeedsFact(4e10, 2e12, (LinkSpeed("a", 0.0002, 1e8),)), StageActivity(0.93, 20.0, 4.0, 2.0)
    told = {SPEEDS_KEY: encode(speeds), activity_key("p1", 1): encode(ActivityFact("p1", 1, busy))}
    facts = {**seen.facts, PeerId("b"): {**seen.facts[PeerId("b")], **told}}
    snapshot = describe(evolve(seen, facts=facts), cluster_name="d", open_cluster=False)
    assert [member.speeds for member in snapshot.members] == [None, speeds]
    assert [stage.activity for stage in snapshot.placements[0].stages] == [None, busy]

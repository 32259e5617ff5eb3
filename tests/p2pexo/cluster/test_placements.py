from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from networking.documents import MAX_VALUE_BYTES
from p2pexo.cluster import placements as edit
from p2pexo.cluster.facts import Deletion, Placements, Trouble, Withdrawal
from p2pexo.cluster.observed import read_placements
from p2pexo.generation.codec import encode
from p2pexo.ring.plan import Epoch, Placement, StagePlan


def placed(id: str, term: int, count: int = 1) -> Placement:
    return Placement(id, f"model-{id}", "r", Epoch(term, count, "leader"), (StagePlan("peer", 0, 30),))


def merged(*several: Placements) -> Placements:
    return read_placements(edit.merge_payloads([encode(each) for each in several]))


def test_a_merge_keeps_what_either_leader_had_placed() -> None:
    result = merged(Placements([placed("a", 1)], next_count=3), Placements([placed("b", 2)], next_count=7))
    assert {each.id for each in result.placements} == {"a", "b"}
    assert result.next_count == 7


def test_a_deletion_beats_every_epoch() -> None:
    result = merged(Placements([placed("a", 9)]), Placements(deletions=[Deletion("a", "asked", 1.0)]))
    assert result.placements == ()
    assert result.deletion_of("a") is not None


def test_payloads_that_are_empty_or_unreadable_add_nothing() -> None:
    payloads = [b"", b"not json", encode(Placements([placed("a", 1)]))]
    assert read_placements(edit.merge_payloads(payloads)).placements == (placed("a", 1),)
    assert read_placements(edit.merge_payloads([])) == Placements()


def test_a_merge_keeps_what_other_leaders_formed_until_it_is_decided_which_one_goes_on() -> None:
    own = Placements([placed("a", 2)])
    result = merged(own, Placements([placed("a", 1), placed("b", 1)]), Placements([placed("a", 3), placed("b", 1)]))
    assert set(result.placements) == {placed("a", 2), placed("b", 1)}
    assert result.rivals == (placed("a", 1), placed("a", 3))
    assert result.undecided == {"a"}


def test_a_merge_brings_nothing_back_that_was_withdrawn_or_deleted() -> None:
    withdrawn = Withdrawal("a", Epoch(2, 1, "leader"))
    result = merged(Placements([placed("a", 1)], withdrawals=[withdrawn]), Placements([placed("a", 2)]))
    assert (result.placements, result.rivals, result.withdrawals) == ((placed("a", 1),), (), (withdrawn,))
    ended = merged(result, Placements([placed("a", 3)]), Placements(deletions=[Deletion("a", "asked", 1.0)]))
    assert (ended.placements, ended.rivals, ended.withdrawals) == ((), (), ())


def test_deleting_ends_the_trouble_too() -> None:
    held = edit.report_trouble(Placements([placed("a", 1)]), Trouble("a", "too big"))
    ended = edit.delete(held, Deletion("a", "asked", 0.0))
    assert (ended.placements, ended.troubles) == ((), ())


def test_a_placement_knows_whether_this_is_its_first_epoch() -> None:
    first = Epoch(3, 4, "leader")
    id = edit.placement_id("m", "r", first)
    assert not edit.was_formed_anew(Placement(id, "m", "r", first, ()))
    assert edit.was_formed_anew(Placement(id, "m", "r", Epoch(3, 5, "leader"), ()))


def test_deletions_stay_few_and_short_and_the_oldest_go_first() -> None:
    held = Placements()
    for number in range(600):
        failed = evolve(placed("a", 1), id=f"{number}", model=f"model-{number}")
        held = edit.delete(held, Deletion(f"{number}", "x" * 500, float(number), failed))
    kept = [int(each.placement_id) for each in held.deletions]
    assert kept == list(range(600 - edit.MAX_DELETIONS, 600))
    assert [bool(each.failed) for each in held.deletions[-edit.MAX_EXPLAINED - 1 :]] == [False] + [True] * 16
    assert len(encode(held)) < MAX_VALUE_BYTES / 3
    assert merged(held, Placements(), held) == held


def test_a_deletion_by_a_leader_whose_clock_is_behind_is_the_latest() -> None:
    held = Placements(deletions=[Deletion(f"{number}", "asked", 1e9) for number in range(edit.MAX_DELETIONS)])
    ended = edit.delete(held, Deletion("0a", "cut short", 5.0, placed("a", 1)))
    assert (ended.deletions[-1].placement_id, ended.deletions[-1].reason) == ("0a", "cut short")


payloads = st.builds(
    lambda rows, gone, count: Placements(
        [placed(id, term, number) for id, (term, number) in rows.items() if id not in gone],
        [Deletion(id, "asked", 0.0) for id in sorted(gone)],
        count,
    ),
    st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=4),
    st.sets(st.sampled_from("abcd"), max_size=2),
    st.integers(1, 9),
)


def as_sets(placements: Placements) -> tuple[frozenset[Placement], frozenset[Deletion], int]:
    """All that is held; which epoch of a placement comes first says whose payload it was."""
    held = (*placements.placements, *placements.rivals)
    return frozenset(held), frozenset(placements.deletions), placements.next_count


@given(payloads, payloads, payloads)
def test_merging_loses_nothing_in_any_order_and_any_number_of_times(
    a: Placements, b: Placements, c: Placements
) -> None:
    assert as_sets(merged(a, b, c)) == as_sets(merged(c, a, b)) == as_sets(merged(merged(a, b), c, a))

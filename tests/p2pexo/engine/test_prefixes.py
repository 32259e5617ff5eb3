from hypothesis import given
from hypothesis import strategies as st

from p2pexo.engine.batch import Fork
from p2pexo.engine.groups import rounded
from p2pexo.engine.prefixes import BLOCK, Prefixes

TOKENS = st.lists(st.integers(0, 1), max_size=3).map(
    lambda blocks: tuple(each for each in blocks for _ in range(BLOCK))
)


def shared(some: tuple[int, ...], others: tuple[int, ...]) -> int:
    """Whole blocks that are the same, in tokens."""
    same = 0
    while same + BLOCK <= min(len(some), len(others)) and some[: same + BLOCK] == others[: same + BLOCK]:
        same += BLOCK
    return same


@given(st.lists(st.tuples(st.sampled_from(["run", "keep", "drop"]), st.integers(1, 6), TOKENS), max_size=20), TOKENS)
def test_the_longest_beginning_of_those_that_are_there_is_found(doings, wanted: tuple[int, ...]) -> None:
    prefixes = Prefixes()
    there: dict[int, tuple[int, ...]] = {}
    kept: set[int] = set()
    for what, sequence, tokens in doings:
        if what == "drop" or sequence in there:
            assert prefixes.drop(sequence) == (sequence in kept)
            there.pop(sequence, None)
            kept.discard(sequence)
        if what == "run":
            prefixes.add(sequence, tokens)
            there[sequence] = tokens
        elif what == "keep":
            needless = prefixes.keep(sequence, tokens)
            if sequence not in needless:
                there[sequence] = tokens
                kept.add(sequence)
            for each in needless:
                there.pop(each, None)
                kept.discard(each)
    assert prefixes.room == sum(rounded(len(there[each])) for each in kept)
    found = prefixes.find((*wanted, 2))
    longest = max((shared(wanted, each) for each in there.values()), default=0)
    assert (found.tokens if found else 0) == longest
    assert found is None or shared(wanted, there[found.sequence]) == longest
    while kept:
        oldest = prefixes.drop_oldest()
        kept.remove(oldest)
    assert prefixes.room == 0


def test_the_whole_prompt_is_never_taken_over() -> None:
    prefixes = Prefixes()
    prefixes.keep(1, range(2 * BLOCK))
    assert prefixes.find(range(2 * BLOCK)) == Fork(1, BLOCK)
    assert prefixes.find(range(BLOCK)) is None

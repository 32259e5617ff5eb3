import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pexo.engine.stops import StopMatcher


def run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    """The texts that were sent, up to a match or the end."""
    matcher = StopMatcher(stops)
    sent: list[str] = []
    for piece in pieces:
        check = matcher.push(piece)
        sent.append(check.text)
        if check.matched is not None:
            return sent, check.matched
    return [*sent, matcher.finish()], None


@pytest.mark.parametrize(
    ("stops", "pieces", "sent", "matched"),
    [
        ([], ["ab", "c"], ["ab", "c", ""], None),
        (["STOP"], ["a S", "TO", "P b"], ["a ", "", ""], "STOP"),
        (["STOP"], ["a S", "TO", "xP"], ["a ", "", "STOxP", ""], None),
        (["STOP"], ["a STO"], ["a ", "STO"], None),
        (["aab"], ["aaa", "b"], ["a", ""], "aab"),
        (["bc", "abcd"], ["xab", "cd"], ["x", "a"], "bc"),
        (["c", "bc"], ["abc"], ["a"], "bc"),
        (["", "b"], ["a", "b"], ["a", ""], "b"),
        (["\n\n"], ["one\n", "two\n", "\nthree"], ["one", "\ntwo", ""], "\n\n"),
        (["end"], ["the end, and the end"], ["the "], "end"),
    ],
)
def test_what_is_sent_and_what_is_matched(stops, pieces, sent, matched) -> None:
    assert run(stops, pieces) == (sent, matched)


letters = st.text("abc", max_size=12)


@given(stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3), pieces=st.lists(letters, max_size=6))
def test_the_outcome_does_not_depend_on_how_the_text_is_cut(stops: list[str], pieces: list[str]) -> None:
    sent, matched = run(stops, pieces)
    by_letter, matched_by_letter = run(stops, list("".join(pieces)))
    assert ("".join(sent), matched) == ("".join(by_letter), matched_by_letter)


@given(stops=st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3), pieces=st.lists(letters))
def test_no_stop_string_is_ever_sent_and_nothing_else_is_lost(stops: list[str], pieces: list[str]) -> None:
    sent, matched = run(stops, pieces)
    text, whole = "".join(sent), "".join(pieces)
    assert not any(stop in text for stop in stops)
    assert whole.startswith(text + (matched or ""))
    assert matched is not None or text == whole

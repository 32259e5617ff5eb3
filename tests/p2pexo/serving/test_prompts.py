import pytest
from attrs import evolve

from p2pexo.generation.request import Message, Request, Role, Tool
from p2pexo.serving.prompts import MOST_PIECES, PIECE_BYTES, Beginnings, pieces_of


def request(*contents: str, **options) -> Request:
    roles = (Role.USER, Role.ASSISTANT)
    messages = tuple(Message(roles[index % 2], content) for index, content in enumerate(contents))
    return Request("r1", "owner/model", messages, **options)


def common(one: tuple[bytes, ...], other: tuple[bytes, ...]) -> int:
    return sum(a == b for a, b in zip(one, other, strict=False))


LONG = "word " * 1000


def test_the_next_turn_begins_with_all_pieces_of_the_one_before() -> None:
    first = pieces_of(request(LONG))
    assert len(first) == 5 * 1000 // PIECE_BYTES
    assert pieces_of(request(LONG, "an answer", "more " * 1000))[: len(first)] == first


def test_prompts_that_part_share_what_comes_before() -> None:
    assert common(pieces_of(request(LONG + "a" * 3000)), pieces_of(request(LONG + "b" * 3000))) == 4
    assert common(pieces_of(request("a" + LONG)), pieces_of(request("b" + LONG))) == 0


def test_tools_come_before_the_messages() -> None:
    with_tool = request(LONG, tools=(Tool("look"),))
    assert common(pieces_of(with_tool), pieces_of(request(LONG))) == 0
    assert common(pieces_of(with_tool), pieces_of(evolve(with_tool, tools=(Tool("hear"),)))) == 0


def test_what_does_not_belong_to_the_prompt_changes_nothing() -> None:
    asked = request(LONG)
    other = evolve(asked, id="r2", attempt=3, replayed_tokens=(1, 2), max_tokens=9, stop=("x",), choice=1)
    assert pieces_of(other) == pieces_of(asked)


def test_a_text_to_go_on_from_is_cut_too_and_a_short_prompt_has_no_piece() -> None:
    assert len(pieces_of(request(raw_prompt="é" * PIECE_BYTES))) == 2
    assert pieces_of(request("hello")) == ()


def test_the_end_of_a_huge_prompt_does_not_count() -> None:
    huge = "x" * PIECE_BYTES * MOST_PIECES * 2
    assert len(pieces_of(request(huge))) == MOST_PIECES


@pytest.fixture
def beginnings() -> Beginnings:
    return Beginnings(capacity=6)


def names(text: str) -> tuple[bytes, ...]:
    return tuple(text[:end].encode() for end in range(1, len(text) + 1))


def test_what_was_met_is_held_as_far_as_it_goes(beginnings: Beginnings) -> None:
    beginnings.add(names("abc"))
    assert [beginnings.held(names(text)) for text in ("abc", "abcd", "abx", "b", "")] == [3, 3, 2, 0, 0]


def test_of_the_prompt_met_longest_ago_the_end_is_forgotten_first(beginnings: Beginnings) -> None:
    beginnings.add(names("abcd"))
    beginnings.add(names("wxyz"))
    assert beginnings.held(names("abcd")) == 2
    assert beginnings.held(names("wxyz")) == 4
    beginnings.add(names("ab"))
    beginnings.add(names("mn"))
    assert beginnings.held(names("abcd")) == 2, "met again"
    assert beginnings.held(names("wxyz")) == 2

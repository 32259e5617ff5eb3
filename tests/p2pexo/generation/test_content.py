import pytest

from p2pexo.generation.content import Content, joined, parts
from p2pexo.generation.request import Message, PicturePart, Role


def picture(name: str, position: int = 0) -> PicturePart:
    return PicturePart("image/png", name, f"hash of {name}", position)


A, B = Content(pictures=(picture("a"),)), Content(pictures=(picture("b"),))


def shown(content: Content) -> list[str]:
    message = Message(Role.USER, content.text, pictures=content.pictures)
    return [f"<{part.data}>" if isinstance(part, PicturePart) else str(part) for part in parts(message)]


@pytest.mark.parametrize(
    ("contents", "expected"),
    [
        ([], []),
        ([Content("x"), Content("y")], ["x-y"]),
        ([Content(""), Content("x"), Content(""), Content("y")], ["x-y"]),
        ([A], ["<a>"]),
        ([Content("x"), A, Content("y")], ["x", "<a>", "-y"]),
        ([A, Content("x"), B], ["<a>", "x", "<b>"]),
        ([A, B, Content("x")], ["<a>", "<b>", "x"]),
        ([Content("x"), joined([A, Content("y"), B])], ["x-", "<a>", "y", "<b>"]),
    ],
    ids=repr,
)
def test_pictures_keep_their_places_when_contents_are_joined(contents: list[Content], expected: list[str]) -> None:
    content = joined(contents, "-")
    assert shown(content) == expected
    assert content.text == "".join(each for each in expected if not each.startswith("<"))


def test_a_content_is_empty_only_without_text_and_pictures() -> None:
    assert not Content()
    assert Content("x")
    assert A

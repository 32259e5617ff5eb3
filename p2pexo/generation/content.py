"""What a message says: a text, and pictures at their places in it."""

from collections.abc import Iterable, Iterator

from attrs import evolve, field, frozen

from p2pexo.generation.request import Message, PicturePart
from p2pexo.generation.text import Prompt

PARAGRAPH = "\n\n"
"""What is put between texts that are one turn's."""


@frozen
class Content:
    text: Prompt = field(default=Prompt(""), converter=Prompt)
    pictures: tuple[PicturePart, ...] = ()
    """In the order of their positions."""

    def __bool__(self) -> bool:
        return bool(self.text or self.pictures)

    @classmethod
    def of(cls, message: Message) -> "Content":
        return cls(message.content, message.pictures)


def joined(contents: Iterable[Content], separator: str = "") -> Content:
    """One after the other, with the separator between texts that are not empty; the pictures keep their places."""
    texts: list[str] = []
    pictures: list[PicturePart] = []
    length = 0
    for content in contents:
        pieces = (separator, content.text) if length and content.text else (content.text,)
        start = length + sum(map(len, pieces[:-1]))
        pictures += (evolve(each, position=start + each.position) for each in content.pictures)
        texts += pieces
        length = start + len(content.text)
    return Content("".join(texts), tuple(pictures))


def paragraphs(texts: Iterable[str | None]) -> str:
    """Those that say something, with an empty line between them."""
    return PARAGRAPH.join(filter(None, texts))


def parts(message: Message) -> Iterator[Prompt | PicturePart]:
    """The content of a message piece by piece, in order: its texts, and the pictures between them."""
    start = 0
    for picture in message.pictures:
        if picture.position > start:
            yield Prompt(message.content[start : picture.position])
        yield picture
        start = picture.position
    if start < len(message.content):
        yield Prompt(message.content[start:])

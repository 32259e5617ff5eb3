"""Text that must not flood a log: ``repr`` is cut, while ``str``, equality, hashing and JSON stay whole."""

from typing import ClassVar


class StubText(str):
    """A kind of text with so many characters in its ``repr``."""

    shown_characters: ClassVar[int]
    __slots__ = ()

    def __repr__(self) -> str:
        shown = str.__repr__(self[: self.shown_characters])
        ellipsis = "…" if len(self) > self.shown_characters else ""
        return f"{type(self).__name__}({shown}{ellipsis})"


class Prompt(StubText):
    """Message content, as typed by a user or written by a tool."""

    shown_characters = 100
    __slots__ = ()


class Picture(StubText):
    """A picture in base64."""

    shown_characters = 10
    __slots__ = ()


class PictureHash(StubText):
    """The hash of a picture."""

    shown_characters = 10
    __slots__ = ()

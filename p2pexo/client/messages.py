"""What is said to a model: messages, pictures in them, tools, and the calls of tools. Pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Literal, Self

from attrs import field, frozen

_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_SHOWN = 40


def _cut(url: str) -> str:
    return repr(url if len(url) <= _SHOWN else f"{url[:_SHOWN]}…")


@frozen
class Picture:
    """A picture in a message. A model that can't see refuses it: InvalidRequestError."""

    url: str = field(repr=_cut)
    """Where the node fetches it, or the whole picture as a ``data:`` URL."""

    @classmethod
    def from_url(cls, url: str) -> Self:
        """The node fetches it, and only from public addresses."""
        return cls(url)

    @classmethod
    def from_bytes(cls, content: bytes, media_type: str | None = None) -> Self:
        """Raises ValueError if no media type is given and the content is no PNG, JPEG, GIF or WebP."""
        return cls(f"data:{media_type or _media_type(content)};base64,{b64encode(content).decode()}")

    @classmethod
    def from_file(cls, path: str | PathLike[str], media_type: str | None = None) -> Self:
        """Raises OSError, and ValueError as ``from_bytes``."""
        return cls.from_bytes(Path(path).read_bytes(), media_type)


def _media_type(content: bytes) -> str:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    for signature, media_type in _SIGNATURES.items():
        if content.startswith(signature):
            return media_type
    raise ValueError(f"a picture that begins with {content[:12]!r} is of no known kind; name its media_type")


def _kept(content: str | Sequence[str | Picture]) -> str | tuple[str | Picture, ...]:
    return content if isinstance(content, str) else tuple(content)


@frozen
class ToolCall:
    id: str
    name: str
    arguments: str
    """JSON text."""


@frozen
class Message:
    """``tool_calls`` are an assistant's; a ``tool`` message answers the call of ``tool_call_id``."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | tuple[str | Picture, ...] = field(converter=_kept)
    """A text, or texts and pictures in their order."""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str = ""
    """What an assistant thought in that turn; some models want to see it again."""


@frozen
class Tool:
    """A function that the model may call. ``parameters`` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: Mapping[str, object] = field(factory=dict[str, object])

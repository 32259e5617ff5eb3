"""Pictures in a request, inwards: as base64, as a data URL, or by their address. Pure: nothing is fetched here."""

from base64 import b64decode
from binascii import Error as Base64Error
from enum import Enum
from hashlib import sha256
from urllib.parse import unquote

import httpx
from attrs import field, frozen

from p2pexo.api.fields import Fields
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import PicturePart
from p2pexo.generation.text import Picture, PictureHash, Prompt


class Sight(Enum):
    """Whether pictures are taken at some place of a request, and if not, why not."""

    OPEN = "pictures are taken"
    BLIND = "this model can't see pictures"
    ELSEWHERE = "pictures may stand in what users say and tools return, and nowhere else"

    @classmethod
    def of(cls, sees: bool, may_stand_here: bool = True) -> "Sight":
        """``sees``: whether the model takes pictures at all."""
        if not sees:
            return cls.BLIND
        return cls.OPEN if may_stand_here else cls.ELSEWHERE


MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")

DETAILS = ("auto", "low", "high", "original")
"""How closely a model shall look, in OpenAI's words. A hint: each model here looks in the one way it knows."""

MAX_ADDRESS_CHARACTERS = 8192
"""Raise it for servers that sign their addresses with very long ones; lower it and such pictures are refused."""

_SHOWN_CHARACTERS = 40


@frozen(kw_only=True)
class AwaitedPicture(PicturePart):
    """Holds the place of a picture that is still to be fetched; it has no data yet."""

    url: Prompt = field(converter=Prompt)
    param: str
    """The field that the address came in."""


class NotAPictureError(ValueError):
    """Bytes that are no picture of a kind that is taken."""


def read_picture(address: str, path: str) -> PicturePart:
    """A picture by its address, which may be a data URL. Raises InvalidRequestError that names ``path``."""
    scheme, _, rest = address.partition(":")
    match scheme.strip().lower():
        case "data":
            return _read_data_url(rest, path)
        case "http" | "https":
            return _awaited(address.strip(), path)
        case _:
            raise _wrong(path, f"a picture is a data URL, or an address with http or https, not {_shown(address)}")


def check_media_type(media_type: str, path: str) -> None:
    """What the client says that a picture is. Raises InvalidRequestError that names ``path``."""
    plain = media_type.strip().lower()
    if plain not in (*MEDIA_TYPES, "image/jpg"):
        raise _wrong(path, f"a picture of the type {_shown(plain)} is not taken; {_KNOWN}")


def read_base64(text: str, path: str) -> PicturePart:
    """What kind of picture it is, its bytes say. Raises InvalidRequestError that names ``path``."""
    data = "".join(text.split())
    try:
        return picture_of(b64decode(data, validate=True), data)
    except (Base64Error, ValueError) as error:
        # NotAPictureError says what is wrong; of others the text of the library would, and it can hold parts of the data
        reason = str(error) if isinstance(error, NotAPictureError) else "it is not valid base64"
        raise _wrong(path, f"the picture can't be read: {reason}") from error


def picture_of(content: bytes, data: str) -> PicturePart:
    """``data`` is the content in base64. Raises NotAPictureError."""
    media_type = media_type_of(content)
    if media_type is None:
        raise NotAPictureError(f"its first bytes are those of no known kind; {_KNOWN}")
    return PicturePart(media_type, Picture(data), PictureHash(sha256(content).hexdigest()))


def media_type_of(content: bytes) -> str | None:
    """By the first bytes, as each format begins with its own; None if it is none of MEDIA_TYPES."""
    if content.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return None


def check_detail(fields: Fields) -> None:
    """Raises InvalidRequestError for a value that OpenAI doesn't know; what it asks for changes nothing here."""
    fields.choice("detail", "auto", DETAILS)


def _read_data_url(rest: str, path: str) -> PicturePart:
    header, comma, data = rest.partition(",")
    media_type, *options = (part.strip() for part in header.split(";"))
    if not comma or "base64" not in map(str.lower, options):
        raise _wrong(path, "a data URL must have the form data:image/png;base64,…")
    check_media_type(media_type, path)
    return read_base64(unquote(data) if "%" in data else data, path)


def _awaited(address: str, path: str) -> AwaitedPicture:
    if len(address) > MAX_ADDRESS_CHARACTERS:
        raise _wrong(path, f"the address has {len(address)} characters; at most {MAX_ADDRESS_CHARACTERS} are taken")
    try:
        url = httpx.URL(address)
    except httpx.InvalidURL as error:
        raise _wrong(path, f"{_shown(address)} is not an address") from error
    if not url.host:
        raise _wrong(path, f"the address {_shown(address)} names no host")
    if url.userinfo:
        raise _wrong(path, "an address with a user name or a password in it is not taken")
    return AwaitedPicture(media_type="", data=Picture(""), hash=PictureHash(""), url=Prompt(address), param=path)


_KNOWN = f"taken are {', '.join(MEDIA_TYPES)}"


def _wrong(path: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{path}: {message}", param=path)


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…")

"""Pictures on their way in, in each dialect: what is read, and how each wrong one is named. Nothing here can fetch."""

from base64 import b64encode
from hashlib import sha256
from typing import Any

import pytest

from p2pexo.api import claude_messages, messages, ollama_messages, responses_items
from p2pexo.api.fields import Fields
from p2pexo.api.pictures import MAX_ADDRESS_CHARACTERS, AwaitedPicture, Sight, media_type_of, read_base64, read_picture
from p2pexo.engine.turns import in_turns
from p2pexo.generation.content import parts
from p2pexo.generation.errors import InvalidRequestError
from p2pexo.generation.request import Message, PicturePart, Role

PNG = b"\x89PNG\r\n\x1a\n" + b"a tiny one"
JPEG = b"\xff\xd8\xff\xe0" + b"another"
PNG64, JPEG64 = b64encode(PNG).decode(), b64encode(JPEG).decode()
WEB = "https://pictures.example/cat.png?size=3"


def read(dialect: str, *turns: Any, sees: bool = True) -> tuple[Message, ...]:
    match dialect:
        case "chat":
            return messages.read_messages(Fields({"messages": list(turns)}), sees=sees)
        case "responses":
            return responses_items.read_input(Fields({"input": list(turns)}), {}, sees=sees)
        case "claude":
            return claude_messages.read_messages(Fields({"messages": list(turns)}), sees=sees)
        case _:
            return ollama_messages.read_messages(Fields({"messages": list(turns)}), sees=sees)


def user(*content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content), **more}


def image_url(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def input_image(url: Any, **more: Any) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, **more}


def image(kind: str, **source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": kind, **source}}


def base64(data: str = PNG64, media_type: str = "image/png") -> dict[str, Any]:
    return image("base64", data=data, media_type=media_type)


def result(*content: Any) -> dict[str, Any]:
    return user({"type": "tool_result", "tool_use_id": "t", "content": list(content)})


def output(*content: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": "t", "output": list(content)}


def text(said: str, kind: str = "text") -> dict[str, Any]:
    return {"type": kind, "text": said}


def shown(message: Message) -> list[str]:
    def one(part: object) -> str:
        if isinstance(part, AwaitedPicture):
            return f"<{part.url} of {part.param}>"
        return f"<{part.media_type} {part.data}>" if isinstance(part, PicturePart) else str(part)

    return [one(part) for part in parts(message)]


DATA_URL = f"data:image/png;base64,{PNG64}"
SEEN = f"<image/png {PNG64}>"


@pytest.mark.parametrize(
    ("dialect", "turn", "expected"),
    [
        ("chat", user(text("a"), image_url(DATA_URL), text("b")), ["a", SEEN, "b"]),
        ("chat", user(image_url(DATA_URL, detail="low")), [SEEN]),
        ("chat", user({"type": "image_url", "image_url": DATA_URL}), [SEEN]),
        ("chat", user(image_url(WEB)), [f"<{WEB} of messages[0].content[0].image_url.url>"]),
        ("chat", {"role": "tool", "tool_call_id": "t", "content": [text("a"), image_url(DATA_URL)]}, ["a", SEEN]),
        ("responses", user(text("a", "input_text"), input_image(DATA_URL, detail="high")), ["a", SEEN]),
        ("responses", user(input_image(WEB)), [f"<{WEB} of input[0].content[0].image_url>"]),
        ("responses", output(text("a", "input_text"), input_image(DATA_URL)), ["a", SEEN]),
        ("claude", user(text("a"), base64(), text("b")), ["a", SEEN, "\n\nb"]),
        ("claude", user(image("url", url=WEB)), [f"<{WEB} of messages[0].content[0].source.url>"]),
        ("claude", result(base64(), text("b")), [SEEN, "b"]),
        ("claude", result(image("url", url=WEB)), [f"<{WEB} of messages[0].content[0].content[0].source.url>"]),
        ("ollama", {"role": "user", "content": "a", "images": [PNG64, JPEG64]}, [SEEN, f"<image/jpeg {JPEG64}>", "a"]),
        ("ollama", {"role": "user", "images": [PNG64]}, [SEEN]),
        ("ollama", {"role": "tool", "content": "a", "images": [PNG64]}, [SEEN, "a"]),
    ],
)
def test_a_picture_keeps_its_place_among_the_texts(dialect: str, turn: Any, expected: list[str]) -> None:
    (message,) = read(dialect, turn)
    assert shown(message) == expected


def test_pictures_stay_in_place_when_turns_of_claude_are_one() -> None:
    failed = {"type": "tool_result", "tool_use_id": "t", "content": [base64()], "is_error": True}
    turns = read("claude", user(text("a")), user(base64()), user(failed), user(base64(), text("b")))
    said, returned, said_then = in_turns(turns)
    assert shown(said) == ["a", SEEN]
    assert (returned.role, shown(returned)) == (Role.TOOL, ["Error: ", SEEN])
    assert shown(said_then) == [SEEN, "b"]


def test_a_picture_carries_its_hash_and_what_its_bytes_are() -> None:
    expected = PicturePart("image/jpeg", JPEG64, sha256(JPEG).hexdigest())
    assert read_base64(JPEG64, "x") == expected
    assert read_base64("\n".join(JPEG64), "x") == expected
    assert read_picture(f"DATA:image/JPG ; charset=x;base64,{JPEG64.replace('=', '%3D')}", "x") == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (PNG, "image/png"),
        (JPEG, "image/jpeg"),
        (b"GIF89a...", "image/gif"),
        (b"GIF87a...", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"<svg/>", None),
        (b"BM", None),
        (b"", None),
    ],
)
def test_a_kind_of_picture_is_known_by_its_first_bytes(content: bytes, expected: str | None) -> None:
    assert media_type_of(content) == expected


BROKEN = [
    ("chat", image_url("data:image/png;base64,%%%"), "image_url.url", "not valid base64"),
    ("chat", image_url("data:image/png;base64,aGVsbG8="), "image_url.url", "first bytes"),
    ("chat", image_url("data:image/svg+xml;base64,PHN2Zy8+"), "image_url.url", "'image/svg.xml'"),
    ("chat", image_url("data:text/html;base64,PHN2Zy8+"), "image_url.url", "'text/html'"),
    ("chat", image_url("data:,hello"), "image_url.url", "data:image/png;base64,"),
    ("chat", image_url("data:image/png,hello"), "image_url.url", "data:image/png;base64,"),
    ("chat", image_url("data:"), "image_url.url", "data:image/png;base64,"),
    ("chat", image_url("file:///etc/hostname"), "image_url.url", "http or https"),
    ("chat", image_url("ftp://pictures.example/x.png"), "image_url.url", "http or https"),
    ("chat", image_url("/etc/hostname"), "image_url.url", "http or https"),
    ("chat", image_url(""), "image_url.url", "http or https"),
    ("chat", image_url("https://"), "image_url.url", "names no host"),
    ("chat", image_url("http:x"), "image_url.url", "names no host"),
    ("chat", image_url("http://[::1"), "image_url.url", "not an address"),
    ("chat", image_url("https://good.example@10.0.0.1/x"), "image_url.url", "user name or a password"),
    ("chat", image_url("https://x/" + "a" * MAX_ADDRESS_CHARACTERS), "image_url.url", "characters"),
    ("chat", image_url(WEB, detail="sharp"), "image_url.detail", "auto"),
    ("chat", image_url(None), "image_url.url", "a string"),
    ("chat", image_url(5), "image_url.url", "a string"),
    ("chat", {"type": "image_url"}, "image_url", "an object"),
    ("chat", {"type": "image", "image": PNG64}, "type", "only text and image_url"),
    ("responses", {"type": "input_image", "file_id": "file-1"}, "file_id", "no files"),
    ("responses", input_image("file:///etc/hostname"), "image_url", "http or https"),
    ("responses", input_image(None), "image_url", "a string"),
    ("responses", input_image(WEB, detail="sharp"), "detail", "auto"),
    ("claude", base64("%%%"), "source.data", "not valid base64"),
    ("claude", base64(media_type="image/tiff"), "source.media_type", "'image/tiff'"),
    ("claude", image("base64", media_type="image/png"), "source.data", "a string"),
    ("claude", image("base64", data=PNG64), "source.media_type", "a string"),
    ("claude", image("url", url="file:///etc/hostname"), "source.url", "http or https"),
    ("claude", image("file", file_id="file_1"), "source.file_id", "no files"),
    ("claude", image("hologram"), "source.type", "base64"),
    ("claude", {"type": "image"}, "source", "an object"),
]


@pytest.mark.parametrize(("dialect", "part", "param", "word"), BROKEN)
def test_what_is_wrong_with_a_picture_is_named(dialect: str, part: Any, param: str, word: str) -> None:
    start = "input" if dialect == "responses" else "messages"
    with pytest.raises(InvalidRequestError, match=word) as refusal:
        read(dialect, user(part))
    assert refusal.value.param == f"{start}[0].content[0].{param}"
    assert len(refusal.value.message) < 300


@pytest.mark.parametrize("broken", ["http://127.0.0.1/x.png", "aGVsbG8=", "%%%", ""])
def test_ollama_names_the_picture_that_is_wrong(broken: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        read("ollama", {"role": "user", "content": "a", "images": [PNG64, broken]})
    assert refusal.value.param == "messages[0].images[1]"


@pytest.mark.parametrize(
    ("dialect", "turn"),
    [
        ("chat", {"role": "system", "content": [image_url(DATA_URL)]}),
        ("chat", {"role": "developer", "content": [image_url(DATA_URL)]}),
        ("chat", {"role": "assistant", "content": [image_url(DATA_URL)]}),
        ("responses", {"role": "system", "content": [input_image(DATA_URL)]}),
        ("responses", {"role": "assistant", "content": [input_image(DATA_URL)]}),
        ("claude", {"role": "assistant", "content": [base64()]}),
        ("claude", {"role": "system", "content": [base64()]}),
        ("ollama", {"role": "system", "content": "a", "images": [PNG64]}),
        ("ollama", {"role": "assistant", "content": "a", "images": [PNG64]}),
    ],
)
def test_pictures_stand_only_in_what_users_and_tools_say(dialect: str, turn: Any) -> None:
    with pytest.raises(InvalidRequestError, match=Sight.ELSEWHERE.value):
        read(dialect, turn)
    with pytest.raises(InvalidRequestError, match=Sight.BLIND.value):
        read(dialect, turn, sees=False)


@pytest.mark.parametrize(
    ("dialect", "turn"),
    [
        ("chat", user(image_url(WEB))),
        ("chat", user(image_url("no address at all"))),
        ("responses", user(input_image(WEB))),
        ("responses", output(input_image(DATA_URL))),
        ("claude", user(image("url", url=WEB))),
        ("claude", result(base64())),
        ("ollama", {"role": "user", "content": "a", "images": [PNG64]}),
    ],
)
def test_a_model_that_cant_see_refuses_before_the_picture_is_looked_at(dialect: str, turn: Any) -> None:
    with pytest.raises(InvalidRequestError, match=Sight.BLIND.value):
        read(dialect, turn, sees=False)

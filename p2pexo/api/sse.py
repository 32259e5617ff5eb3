"""Server-sent events: data, named or not, and comments."""

from p2pexo.generation.events import Progress, Started, Waiting

MEDIA_TYPE = "text/event-stream; charset=utf-8"

STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Keep proxies from holding the stream back."""


def data(payload: bytes) -> bytes:
    """One event. ``payload`` holds no line break."""
    return b"data: " + payload + b"\n\n"


def event(name: str, payload: bytes) -> bytes:
    """One event of a dialect whose clients look at the ``event:`` line. ``payload`` holds no line break."""
    return b"event: " + name.encode() + b"\ndata: " + payload + b"\n\n"


def comment(text: str) -> bytes:
    """A line that clients skip; shows people and proxies that the stream is alive."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


def meanwhile(event: Waiting | Progress | Started) -> bytes:
    """What a client that waits for the first token is told, in dialects that take comments."""
    match event:
        case Waiting(reason):
            return comment(reason)
        case Progress(processed, total):
            return comment(f"prefill {processed}/{total}")
        case Started():
            return b""


KEEP_ALIVE = comment("keep-alive")

"""How prompts begin, and which beginnings a ring has met. Pure.

Whether a ring's caches hold a prefix only its stage 0 knows, in tokens. This is the guess of a node that sees neither: the prompt
as it was asked for, cut into pieces of equal size, each named by a hash of all that comes up to its end.
"""

from collections import OrderedDict
from collections.abc import Iterator
from hashlib import blake2b

from p2pexo.generation.codec import encode
from p2pexo.generation.request import Request

PIECE_BYTES = 1024
"""Some 250 tokens. Raise it and only long beginnings count; lower it and more has to be remembered for each prompt."""

MOST_PIECES = 256
"""Of one prompt. Raise it and very long conversations that part late are told apart; lower it and less is remembered."""

REMEMBERED_PIECES = 8192
"""Of one ring, some 1 MB here. Raise it and conversations find back after more others; lower it and memory is saved."""


def pieces_of(request: Request) -> tuple[bytes, ...]:
    """The names of its whole pieces, first to last; two prompts share as many of them as they begin alike."""
    hashed = blake2b(digest_size=16)
    pieces: list[bytes] = []
    for piece in _cut(request):
        hashed.update(piece)
        pieces.append(hashed.digest())
        if len(pieces) == MOST_PIECES:
            break
    return tuple(pieces)


class Beginnings:
    """Those of the prompts that a ring has answered; the ones met longest ago are forgotten first."""

    def __init__(self, capacity: int = REMEMBERED_PIECES) -> None:
        self._capacity = capacity
        self._pieces: OrderedDict[bytes, None] = OrderedDict()

    def add(self, pieces: tuple[bytes, ...]) -> None:
        for piece in reversed(pieces):  # a beginning outlives what follows it
            self._pieces[piece] = None
            self._pieces.move_to_end(piece)
        while len(self._pieces) > self._capacity:
            self._pieces.popitem(last=False)

    def held(self, pieces: tuple[bytes, ...]) -> int:
        """How many of them, from the first on, have been met."""
        return next((index for index, piece in enumerate(pieces) if piece not in self._pieces), len(pieces))


def _cut(request: Request) -> Iterator[bytes]:
    """The whole pieces of a prompt."""
    rest = b""
    for part in _parts(request):
        rest += part
        whole = len(rest) // PIECE_BYTES * PIECE_BYTES
        yield from (rest[start : start + PIECE_BYTES] for start in range(0, whole, PIECE_BYTES))
        rest = rest[whole:]


def _parts(request: Request) -> Iterator[bytes]:
    """In the order in which templates put them."""
    if request.raw_prompt is not None:
        yield request.raw_prompt.encode(errors="replace")
    if request.tools:
        yield b"".join(map(encode, request.tools))
    yield from map(encode, request.messages)

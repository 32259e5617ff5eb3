"""The code that two people compare, and what it is made of (pure).

A short authentication string by commitment, as in ZRTP (RFC 6189, 4.4.2 and 7) and in the numeric comparison of Bluetooth's
Secure Simple Pairing (Core Specification, vol. 2 part H, 7.2): one side commits to its nonce before it sees the other's, so
whoever stands in between has to fix both of his nonces blindly and gets equal codes once in a million tries.
"""

import hashlib

from networking.pairing_messages import Ask, Challenge

DIGITS = 6
"""Each digit more makes a lucky man in the middle ten times rarer, and people more likely to skip the comparison."""


def commitment_to(nonce: bytes, peer: str) -> bytes:
    """32 bytes that bind a peer to its nonce without telling it."""
    return _hash(b"commitment", nonce, peer.encode())


def transcript_of(ask: Ask, challenge: Challenge, nonce: bytes, channel: bytes) -> bytes:
    """32 bytes that stand for all that both sides said, the asker's ``nonce`` included, on this very ``channel``.

    ``channel`` is the SHA-256 hash of the TLS server's certificate (``tls-server-end-point``, RFC 5929, 4): each side takes
    the one it knows, so a conversation that somebody relays from one TLS connection to another has no common transcript.
    """
    return _hash(
        b"transcript",
        str(ask.version).encode(),
        ask.purpose.encode(),
        ask.peer.encode(),
        ask.name.encode(),
        ask.machine.encode(),
        ask.commitment,
        str(challenge.version).encode(),
        challenge.peer.encode(),
        challenge.cluster.encode(),
        challenge.nonce,
        nonce,
        channel,
    )


def signed_by_asker(transcript: bytes) -> bytes:
    """What the asker signs; never the same as what the asked one does, so neither can be sent back."""
    return _hash(b"asker", transcript)


def signed_by_asked(transcript: bytes) -> bytes:
    return _hash(b"asked", transcript)


def code_of(transcript: bytes) -> str:
    """Such as ``042 917``."""
    number = int.from_bytes(_hash(b"code", transcript)) % 10**DIGITS
    digits = f"{number:0{DIGITS}}"
    return f"{digits[:3]} {digits[3:]}"


def same_code(one: str, other: str) -> bool:
    """Whether two codes are the same, however people wrote the gap."""
    return _digits(one) == _digits(other)


def _digits(code: str) -> str:
    return "".join(each for each in code if not each.isspace() and each != "-")


def _hash(purpose: bytes, *parts: bytes) -> bytes:
    """SHA-256 of the parts, each with its length before it, so that no two lists of parts look the same."""
    digest = hashlib.sha256(b"cluster pairing 1")
    for part in (purpose, *parts):
        digest.update(len(part).to_bytes(4, "big") + part)
    return digest.digest()

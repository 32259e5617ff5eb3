"""The newcomer's way in: dials a member, shows the code, and waits for what is decided there."""

import secrets
from collections.abc import Callable

import trio
from attrs import frozen

from networking.pairing import Asker, PairingError, Party
from networking.pairing_channel import CONNECTION_ERRORS, PairingChannel
from networking.pairing_messages import NONCE_BYTES, Admission, MalformedPairingError, Purpose
from networking.transport import PeerId

PROOF_LIMIT_S = 6.0
"""For connecting and proving. Raise it and a dead address holds up the next try longer; lower it and busy members are missed."""

SILENCE_S = 30.0
"""Without a word of the member; it says every ten seconds that it waits. Raise it and one that is gone is waited for longer."""


class UnreachableError(PairingError):
    """Nobody could be asked there."""


@frozen
class Door:
    """Where a member can be asked, as far as is known from the local network."""

    peer: PeerId
    host: str
    port: int


@frozen
class Question:
    """What a newcomer asks, and what it says of itself."""

    purpose: Purpose
    name: str
    machine: str


ShowCode = Callable[[str, str], None]
"""(the cluster's name, the code): called once it is proven who is asked; must return at once."""


async def ask(party: Party, door: Door, question: Question, show: ShowCode) -> Admission:
    """Ask a member to be let in, and wait for as long as it takes there. Raises PairingError, and UnreachableError."""
    where = f"{door.host} port {door.port}"
    wire = await _reach(door, where)
    try:
        return await _converse(party, door, question, show, wire)
    except trio.TooSlowError as error:
        raise PairingError(f"{where} does not answer any more") from error
    except CONNECTION_ERRORS as error:
        raise PairingError(f"the connection to {where} broke: {error.__cause__ or error}") from error
    except MalformedPairingError as error:
        raise PairingError(f"{where} answers, but not as a member does ({error})") from error
    finally:
        wire.socket.close()


async def _reach(door: Door, where: str) -> trio.SocketStream:
    try:
        with trio.fail_after(PROOF_LIMIT_S):
            return await trio.open_tcp_stream(door.host, door.port)
    except trio.TooSlowError as error:
        raise UnreachableError(f"{where} does not answer") from error
    except OSError as error:
        raise UnreachableError(f"nobody can be asked at {where}: {error.strerror or error}") from error


async def _converse(party: Party, door: Door, question: Question, show: ShowCode, wire: trio.SocketStream) -> Admission:
    with trio.fail_after(PROOF_LIMIT_S):
        channel = await PairingChannel.dial(wire)
        asker = Asker(
            party,
            door.peer,
            purpose=question.purpose,
            name=question.name,
            machine=question.machine,
            channel=channel.binding,
            nonce=secrets.token_bytes(NONCE_BYTES),
        )
        await _prove(channel, asker)
    assert asker.code is not None
    show(asker.cluster, asker.code)
    while asker.admission is None:
        with trio.fail_after(SILENCE_S):
            asker.received(await channel.receive())
    return asker.admission


async def _prove(channel: PairingChannel, asker: Asker) -> None:
    await channel.send(asker.begin())
    while asker.code is None:
        answer = asker.received(await channel.receive())
        if answer is not None:
            await channel.send(answer)

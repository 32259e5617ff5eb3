"""The parts of a peer put together in the usual way: its key and state in a home folder, libp2p below, the overlay on top."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from networking.identity import Identity, verify
from networking.libp2p_host import Libp2pTransport
from networking.overlay import Overlay, OverlaySettings
from networking.saved import FileState
from networking.ticket import Cluster
from networking.transport import Address

EVERYWHERE = Address("/ip4/0.0.0.0/tcp/52416")
STATE_FILE = "overlay.json"


def keep_the_latest(payloads: Sequence[bytes]) -> bytes:
    """The payload of the last leader, for those to whom its predecessors' mean nothing."""
    return payloads[0]


def open_peer(
    home: Path,
    cluster: Cluster,
    *,
    listen: Iterable[Address] = (EVERYWHERE,),
    merge_payloads: Callable[[Sequence[bytes]], bytes] = keep_the_latest,
    may_lead: bool = True,
) -> Overlay:
    """A peer of that cluster, yet to be ``run``. The home is made when absent. Raises IdentityError."""
    identity = Identity.load(home)
    return Overlay(
        Libp2pTransport(identity, cluster, listen),
        sign=identity.sign,
        verify=verify,
        state=FileState(home / STATE_FILE),
        settings=OverlaySettings(),
        merge_payloads=merge_payloads,
        may_lead=may_lead,
    )

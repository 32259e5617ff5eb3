# pyright: reportPrivateUsage=false
# It looks inside on purpose: what must stay bounded isn't shown outside.
"""What must hold in a simulated cluster whatever happens: each promise of the overlay as one function that names what breaks it."""

from collections.abc import Iterator, Sequence

from attrs import define, field

from networking.controls import QUEUED_MESSAGES
from networking.document import Document
from networking.documents import Documents
from networking.peer import Peer
from networking.simulated_faults import KEYS, number_of
from networking.simulated_truth import Truth, names
from networking.simulation import SimulatedNode
from networking.transport import PeerId
from networking.view import View
from networking.wire import Life

SETTLED_S = 10.0
"""In touch for so long, nobody may be taken for dead."""
REFUTED_S = 25.0
"""So long after two nodes came in touch, redialling at its slowest has found them, and both know it."""
QUEUED_LIMIT = QUEUED_MESSAGES // 4
"""Queues of live connections stay far below where connections are given up."""

RUN_LASTS_S = 300.0
"""Longer than any run."""

Complaints = Iterator[str]


@define
class Shown:
    """What one life of a node has shown so far."""

    view: View
    term: int = 0
    """The highest that it has followed."""
    numbers: dict[tuple[PeerId, str], int] = field(factory=dict[tuple[PeerId, str], int])
    """Of the newest write seen of each owner's key."""
    known_term: int = 0
    held: dict[PeerId, tuple[Life, int]] = field(factory=dict[PeerId, tuple[Life, int]])
    """How far the copy of each document went."""


# At each change of what a node shows.


def nobody_obeys_a_lower_term(shown: Shown, view: View) -> Complaints:
    if view.leader is not None:
        if view.term < shown.term:
            yield f"{view.me} follows {view.leader} in term {view.term}, after one of term {shown.term}"
        shown.term = max(shown.term, view.term)


def old_facts_do_not_return(shown: Shown, view: View, documents: Documents) -> Complaints:
    if _forgets(
        documents
    ):  # Then an old copy of what was dropped, handed on by another, may be the best there is for a moment.
        shown.numbers = {(owner, key): each for (owner, key), each in shown.numbers.items() if owner in view.facts}
    for owner, facts in view.facts.items():
        for key, value in facts.items():
            number, newest = number_of(value), shown.numbers.get((owner, key), 0)
            if number < newest:
                yield f"{view.me} shows write {number} of {owner}'s {key}, after it showed write {newest}"
            shown.numbers[owner, key] = max(number, newest)


def nobody_responsive_is_declared_dead(shown: Shown, view: View, me: SimulatedNode, truth: Truth) -> Complaints:
    for node in missed(shown.view, view, truth):
        if (in_touch_s := truth.in_touch_s(me, node)) >= SETTLED_S:
            yield f"{view.me} took {node.peer} for dead, with which it had been in touch for {in_touch_s:.1f} s"


def nobody_loses_its_leader(view: View, led_by: PeerId) -> Complaints:
    """While nothing happens but what changes no leader of a working cluster."""
    if view.leader != led_by:
        yield f"{view.me} follows {view.leader} instead of {led_by}, without need"


def missed(before: View, view: View, truth: Truth) -> list[SimulatedNode]:
    lost = {each.peer for each in before.members} - {each.peer for each in view.members}
    return [node for node in truth.cluster.nodes if node.peer in lost]


# From time to time.


def terms_only_rise(shown: Shown, node: SimulatedNode) -> Complaints:
    """Over restarts, too: what is known is on the disk."""
    known, saved = node.overlay._peer._election.highest_term, node.state.state.term
    if known < shown.known_term:
        yield f"{node.peer} knew of term {shown.known_term}, and now of none above {known}"
    if saved < known:
        yield f"{node.peer} knows of term {known}, and its disk of none above {saved}"
    shown.known_term = known


def copies_only_grow_newer(shown: Shown, peer: Peer) -> Complaints:
    held = {owner: (each.life, each.version) for owner, each in peer._documents._documents.items()}
    if (
        peer._documents._settings.retention_s < RUN_LASTS_S
    ):  # It may have dropped one since, and with it the memory of its life.
        return
    for owner, newest in shown.held.items():
        if owner in held and held[owner] < newest:
            yield f"{peer.me} held {owner}'s document up to {newest}, and now up to {held[owner]}"
    shown.held = held


def nobody_responsive_stays_missed(me: SimulatedNode, truth: Truth) -> Complaints:
    members = {each.peer for each in me.view.members}
    for node in truth.cluster.nodes:
        if node is not me and node.peer not in members and (in_touch_s := truth.in_touch_s(me, node)) >= REFUTED_S:
            yield f"{me.peer} misses {node.peer}, with which it has been in touch for {in_touch_s:.1f} s"


def everything_stays_bounded(node: SimulatedNode, count: int) -> Complaints:
    """``count``: how many nodes ever were."""
    overlay = node.overlay
    controls = list(overlay._controls._controls.values())
    sizes = {
        "messages queued for one connection": (
            max((each.queue.statistics().current_buffer_used for each in controls), default=0),
            QUEUED_LIMIT,
        ),
        "broadcasts queued": (overlay._gossip_queue.statistics().current_buffer_used, QUEUED_LIMIT),
        "connections": (len(controls), 3 * count),
        "documents": (len(overlay._peer._documents._documents), count),
        "claims remembered": (len(overlay._peer._election._memory), count),
        "addresses to dial": (len(list(overlay._dialler._book)), count),
        "facts of one node": (
            max(len(each.facts) for each in overlay._peer._documents._documents.values()),
            KEYS + 2,  # of the overlay itself
        ),
    }
    for what, (size, limit) in sizes.items():
        if size > limit:
            yield f"{node.peer} has {size} {what}, more than {limit}"


# Once it has been quiet for a while.


def one_leader_leads_each_part(part: Sequence[SimulatedNode]) -> Complaints:
    led = {(node.view.leader, node.view.term) for node in part}
    if len(led) > 1 or (None, 0) in led:
        told = ", ".join(f"{node.peer} follows {node.view.leader} (term {node.view.term})" for node in part)
        yield f"of {names(part)}: {told}"
    elif next(iter(led))[0] not in {node.peer for node in part}:
        yield f"{names(part)} follow {next(iter(led))[0]}, which isn't among them"


def all_see_each_other(part: Sequence[SimulatedNode]) -> Complaints:
    peers = sorted(node.peer for node in part)
    for node in part:
        seen = sorted(each.peer for each in node.view.members)
        if seen != peers:
            yield f"{node.peer} sees {' '.join(seen)}, not {' '.join(peers)}"


def all_hold_equal_documents(part: Sequence[SimulatedNode]) -> Complaints:
    for owner in part:
        own = _document(owner, owner.peer)
        for node in part:
            copy = _documents(node)._documents.get(owner.peer)
            if copy is None or (copy.head, copy.version, _values(copy)) != (own.head, own.version, _values(own)):
                yield f"{node.peer}'s copy of {owner.peer}'s document differs: {copy and copy.head}, not {own.head}"


def what_was_deleted_is_gone(part: Sequence[SimulatedNode], quiet_s: float) -> Complaints:
    """Nothing that a document's head doesn't list, and no document of who is gone for longer than it is kept."""
    peers = {node.peer for node in part}
    for node in part:
        for owner, document in _documents(node)._documents.items():
            if owner not in peers and quiet_s > _documents(node)._settings.retention_s:
                yield f"{node.peer} still holds the document of {owner}, which is long gone"
            if owner in peers and len(document.facts) != len(document.head.facts):
                yield f"{node.peer} holds {len(document.facts)} facts of {owner}, which has {len(document.head.facts)}"


def what_was_written_is_known(part: Sequence[SimulatedNode], written: dict[PeerId, dict[str, bytes]]) -> Complaints:
    for node in part:
        for owner in part:
            facts = node.view.facts.get(owner.peer, {})
            if dict(facts) != written[owner.peer]:
                keys = sorted({key for key, _ in written[owner.peer].items() ^ facts.items()})
                yield f"{node.peer} does not show what {owner.peer} wrote: {', '.join(keys)} differ"


def each_pair_has_one_connection(part: Sequence[SimulatedNode]) -> Complaints:
    for node in part:
        peers = [connection.peer for connection in node.overlay._controls._controls]
        for peer in sorted(set(peers)):
            if peers.count(peer) > 1:
                yield f"{node.peer} has {peers.count(peer)} connections to {peer}"


def nobody_is_warned_of_clones(part: Sequence[SimulatedNode]) -> Complaints:
    for node in part:
        yield from (f"{node.peer} warns: {text}" for text in node.view.warnings if "another running machine" in text)


def _forgets(documents: Documents) -> bool:
    """Whether documents of the gone may be dropped within a run."""
    return documents._settings.retention_s < RUN_LASTS_S


def _documents(node: SimulatedNode) -> Documents:
    return node.overlay._peer._documents


def _document(node: SimulatedNode, owner: PeerId) -> Document:
    return _documents(node)._documents[owner]


def _values(document: Document) -> dict[str, bytes]:
    return {key: held.fact.value for key, held in document.facts.items()}

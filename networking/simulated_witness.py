# pyright: reportPrivateUsage=false
# It looks inside on purpose, as the invariants do.
"""Watches a simulated cluster and holds what it sees against the invariants."""

from collections.abc import Callable, Sequence

import trio

from networking.simulated_invariants import (
    Complaints,
    Shown,
    all_hold_equal_documents,
    all_see_each_other,
    copies_only_grow_newer,
    each_pair_has_one_connection,
    everything_stays_bounded,
    nobody_is_warned_of_clones,
    nobody_loses_its_leader,
    nobody_obeys_a_lower_term,
    nobody_responsive_is_declared_dead,
    nobody_responsive_stays_missed,
    old_facts_do_not_return,
    one_leader_leads_each_part,
    terms_only_rise,
    what_was_deleted_is_gone,
    what_was_written_is_known,
)
from networking.simulated_truth import Truth
from networking.simulation import SimulatedNode
from networking.transport import PeerId
from networking.view import View


class BrokenError(Exception):
    """Something that must hold does not; the message says what, and when."""


class Witness:
    """Watches all that the nodes of a cluster show, looks round from time to time, and keeps what there is to complain of."""

    def __init__(self) -> None:
        self.truth: Truth | None = None
        self.complaints: list[str] = []
        self.led_by: PeerId | None = None
        """Set while nothing happens that may change the leader."""
        self.leaderless: set[PeerId] = set()
        """Who may lose sight of it all the same."""
        self._shown: dict[tuple[SimulatedNode, int], Shown] = {}

    def see(self, node: SimulatedNode, view: View) -> None:
        """To be told of each change of what a node shows."""
        if self.truth is None:
            return
        self.truth.look()
        shown = self._shown_by(node, view)
        self._hold(nobody_obeys_a_lower_term, shown, view)
        self._hold(old_facts_do_not_return, shown, view, node.overlay._peer._documents)
        self._hold(nobody_responsive_is_declared_dead, shown, view, node, self.truth)
        if self.led_by is not None and node.peer not in self.leaderless:
            self._hold(nobody_loses_its_leader, view, self.led_by)
        shown.view = view

    def look_round(self, truth: Truth) -> None:
        self.truth = truth
        truth.look()
        for node in truth.cluster.running:
            shown = self._shown_by(node, node.view)
            self._hold(terms_only_rise, shown, node)
            self._hold(copies_only_grow_newer, shown, node.overlay._peer)
            self._hold(nobody_responsive_stays_missed, node, truth)
            self._hold(everything_stays_bounded, node, len(truth.cluster.nodes))

    def check_parts(self, truth: Truth) -> None:
        """Each part of a parted network for itself, once it has been quiet for a while."""
        for part in truth.parts():
            if truth.is_close(part):
                self._hold(one_leader_leads_each_part, part)
                self._hold(all_see_each_other, part)
                self._hold(all_hold_equal_documents, part)

    def check_all(
        self, nodes: Sequence[SimulatedNode], written: dict[PeerId, dict[str, bytes]], quiet_s: float
    ) -> None:
        """All nodes, when nothing is wrong with machines and network for so long."""
        self._hold(one_leader_leads_each_part, nodes)
        self._hold(all_see_each_other, nodes)
        self._hold(what_was_deleted_is_gone, nodes, quiet_s)
        self._hold(all_hold_equal_documents, nodes)
        self._hold(what_was_written_is_known, nodes, written)
        self._hold(each_pair_has_one_connection, nodes)
        self._hold(nobody_is_warned_of_clones, nodes)

    def raise_complaints(self) -> None:
        """Raises BrokenError with the first one."""
        if self.complaints:
            raise BrokenError(self.complaints[0])

    def _shown_by(self, node: SimulatedNode, view: View) -> Shown:
        return self._shown.setdefault((node, node.lives), Shown(view))

    def _hold(self, promise: Callable[..., Complaints], *about: object) -> None:
        name = promise.__name__.replace("_", " ")
        self.complaints += [f"{name}: at {trio.current_time():.2f} s {each}" for each in promise(*about)]

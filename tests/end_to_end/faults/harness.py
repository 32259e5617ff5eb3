"""A real cluster on which answers meet faults at given tokens, put in order again before each."""

import threading
import time
from collections.abc import Callable, Sequence
from math import inf
from statistics import median

import httpx
from attrs import define, evolve, field
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.dialects import PATHS, text_of, told
from end_to_end.faults.answers import Heard, Outcome, Question, Undisturbed
from end_to_end.faults.faults import BYSTANDER, LEADERS, Fault, Ring, strike

from p2pexo.cluster.repair import STEADY_AFTER_S

START_TRIES = 6

STEADY_S = STEADY_AFTER_S + 0.5
"""After so long, a leader has forgotten what a ring met before."""

WARM_S = 2.5
"""What a spare process takes for its imports."""


@define
class Stage:
    """A cluster with one model on it, put in order before each answer."""

    cluster: RealCluster
    model: str
    spread: int
    """Nodes over which its ring goes."""
    characters: float = 1.0
    """Of one token, about; how far an answer is can only be told by its text."""
    settles: bool = False
    """Whether each fault is the first one that its ring meets: what it met before is forgotten, and all spares are warm."""
    _undisturbed: dict[Question, Undisturbed] = field(factory=dict[Question, Undisturbed], init=False)
    _token_s: float = field(default=0.05, init=False)
    _epoch: str = field(default="", init=False)
    _formed_at: float = field(default=0.0, init=False)

    def ask(self, node: RealNode, question: Question) -> httpx.Response:
        content = question.body(self.model)
        return httpx.post(node.url + PATHS[question.dialect], json=content, timeout=120)

    def listen(
        self, node: RealNode, question: Question, until: float = inf, then: Callable[[], object] | None = None
    ) -> Heard:
        """The whole stream; ``then`` is called once, when there are ``until`` characters of text."""
        heard = Heard(question.dialect)
        content = question.body(self.model)
        with httpx.stream("POST", node.url + PATHS[question.dialect], json=content, timeout=120) as response:
            assert response.status_code == 200, response.read()
            for line in response.iter_lines():
                heard.hear(line)
                if then is not None and len(heard.text) >= until:
                    then()
                    then = None
                    heard.forget_gaps()
        assert then is None or until == inf, f"no fault: {heard.text!r} ended before character {until:.0f}"
        return heard

    def undisturbed(self, question: Question) -> Undisturbed:
        if question not in self._undisturbed:
            self.set_up()
            begun = time.monotonic()
            answer = self._undisturbed[question] = self._listen(question) if question.stream else self._ask(question)
            self._token_s = (time.monotonic() - begun) / max(1, len(answer.text) / self.characters)
        return self._undisturbed[question]

    def _listen(self, question: Question) -> Undisturbed:
        heard = self.listen(self.cluster[0], question)
        outcome = told(question.dialect, heard.raw)
        assert outcome.is_complete, heard.raw
        return Undisturbed(outcome.text, median(heard.gaps))

    def _ask(self, question: Question) -> Undisturbed:
        answer = self.ask(self.cluster[0], question)
        assert answer.status_code == 200, answer.text
        return Undisturbed(text_of(question.dialect, answer.json()), 0.0)

    def set_up(self, kind: str = "") -> None:
        """All nodes are there, and the ring goes over as many of them as it should, the leader among them or not as ``kind`` asks."""
        for node in self.cluster.nodes:
            if node not in self.cluster.alive:
                _start_again(node)
        self.cluster.wait_until_together()
        placement = self.cluster[0].placement(self.model)
        if placement is None or len({stage.peer for stage in placement.stages}) < self.spread:
            self.cluster.delete(self.model)
            self.cluster.place(self.model, min_stages=self.spread)
        self.cluster.wait_until_ready(self.model)
        if kind in LEADERS:
            self._seat_leader(kind != BYSTANDER)

    def _seat_leader(self, takes_part: bool) -> None:
        placement, leader = self.cluster.wait_until_ready(self.model), self.cluster.leader()
        if takes_part == (leader.snapshot().me in {stage.peer for stage in placement.stages}):
            return
        others = [node for node in self.cluster.alive if node is not leader]
        chosen = ([leader, *others] if takes_part else others)[: self.spread]
        self.cluster.delete(self.model)
        RealCluster(chosen).place(self.model, split=parts(placement.stages[-1].end_layer, self.spread))
        self.cluster.wait_until_ready(self.model)

    def perform(self, fault: Fault, question: Question) -> Outcome:
        expected = self.undisturbed(question)
        self.set_up(fault.kind)
        if self.settles:
            self._settle()
        ring = self._ring(fault)
        undo: list[Callable[[], None]] = []
        try:
            run = self._streamed if question.stream else self._whole
            outcome = run(ring.asked, question, expected, fault, lambda: undo.append(strike(fault, ring)))
            if fault.kind == BYSTANDER:
                epoch = self.cluster.wait_until_ready(self.model).epoch
                outcome = evolve(outcome, is_formed_anew=epoch != ring.epoch)
            return outcome
        finally:
            for each in undo:
                each()
            if self.settles:
                self._look_at_ring()  # it grows steady while the lost node starts again

    def _settle(self) -> None:
        self._look_at_ring()
        wait_for("each node has a warm spare process", lambda: all(map(_has_warm_spare, self.cluster.alive)))
        time.sleep(max(0.0, self._formed_at + STEADY_S - time.monotonic()))

    def _look_at_ring(self) -> None:
        epoch = self.cluster.wait_until_ready(self.model).epoch
        if epoch != self._epoch:
            self._epoch, self._formed_at = epoch, time.monotonic()

    def _ring(self, fault: Fault) -> Ring:
        placement = self.cluster.wait_until_ready(self.model)
        by_peer = {node.snapshot().me: node for node in self.cluster.alive}
        leader = self.cluster.leader()
        by_rank = tuple(by_peer[stage.peer] for stage in placement.stages)
        candidates = [node for node in self.cluster.alive if not (fault.kind in LEADERS and node is leader)]
        spare = [node for node in candidates if node not in by_rank]
        asked = (candidates + spare)[fault.pick % len(candidates + spare)]
        return Ring(asked, leader, by_rank, placement.epoch)

    def _streamed(
        self, node: RealNode, question: Question, expected: Undisturbed, fault: Fault, strike_now: Callable[[], None]
    ) -> Outcome:
        heard = self.listen(node, question, fault.token * self.characters, strike_now)
        outcome = told(question.dialect, heard.raw)
        error = "" if outcome.is_complete else f"not complete: {outcome.error}"
        return Outcome(outcome.text, expected.text, error, max(heard.gaps, default=0.0), expected.usual_gap_s)

    def _whole(
        self, node: RealNode, question: Question, expected: Undisturbed, fault: Fault, strike_now: Callable[[], None]
    ) -> Outcome:
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(self.ask(node, question)), daemon=True)
        thread.start()
        time.sleep(fault.token * self._token_s)  # nothing of the answer shows how far it is
        strike_now()
        wait_for("the answer comes", lambda: answers, 120)
        (answer,) = answers
        if answer.status_code != 200:
            return Outcome("", expected.text, answer.text)
        return Outcome(text_of(question.dialect, answer.json()), expected.text)


def _has_warm_spare(node: RealNode) -> bool:
    stages = {process.pid for process in node.stage_processes()}
    spares = [process for process in node.children() if process.pid not in stages]
    return any(time.time() - process.create_time() > WARM_S for process in spares)


def _start_again(node: RealNode) -> None:
    """Meanwhile its port may have become that of somebody's connection, for as long as that lasts."""
    for tries_left in reversed(range(START_TRIES)):
        node.start()
        try:
            node.wait_until_up()
        except AssertionError as error:
            if "is taken" not in str(error) or not tries_left:
                raise
            time.sleep(5)
        else:
            return


def parts(layers: int, count: int) -> Sequence[int]:
    """Nearly equal ones."""
    return [layers * (number + 1) // count - layers * number // count for number in range(count)]

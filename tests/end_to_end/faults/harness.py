"""Answers that meet a fault at a given token, and the same ones undisturbed, on real processes."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from difflib import SequenceMatcher
from typing import Any

import httpx
from attrs import define, field, frozen
from end_to_end.cluster import RealCluster, RealNode, wait_for
from end_to_end.dialects import PATHS, body, piece_of, text_of, told
from end_to_end.faults.faults import Fault, Ring, strike

from p2pexo.cluster.repair import STEADY_AFTER_S

START_TRIES = 6

STEADY_S = STEADY_AFTER_S + 0.5
"""After so long, a leader has forgotten what a ring met before."""

WARM_S = 2.5
"""What a spare process takes for its imports."""


@frozen
class Question:
    dialect: str
    stream: bool
    seed: int | None = None
    """None: greedy."""
    prompt: str = "Tell me a story about a ship."
    max_tokens: int = 48

    def body(self, model: str) -> dict[str, Any]:
        sampling: dict[str, Any] = {"temperature": 0} if self.seed is None else {"temperature": 1, "seed": self.seed}
        match self.dialect:
            case "ollama":
                more: dict[str, Any] = {"options": sampling | {"num_predict": self.max_tokens}}
            case "responses":
                more = sampling | {"max_output_tokens": self.max_tokens}
            case _:
                more = sampling | {"max_tokens": self.max_tokens}
        return body(self.dialect, model, self.prompt, self.stream, **more)


@frozen
class Outcome:
    """What became of an answer that met a fault."""

    text: str
    expected: str
    error: str = ""
    pause_s: float | None = None
    """The longest gap between two pieces from the fault on; None if it did not stream."""

    @property
    def is_equal(self) -> bool:
        return self.text == self.expected and not self.error

    @property
    def lost(self) -> int:
        """Characters; of an answer that ended with an error, none were lost silently."""
        return sum(high - low for tag, low, high, _, _ in self._changes() if tag != "insert" and not self.error)

    @property
    def repeated(self) -> int:
        return sum(high - low for tag, _, _, low, high in self._changes() if tag != "delete")

    def _changes(self) -> list[tuple[str, int, int, int, int]]:
        codes = SequenceMatcher(None, self.expected, self.text, autojunk=False).get_opcodes()
        return [code for code in codes if code[0] != "equal"]


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
    _undisturbed: dict[Question, str] = field(factory=dict[Question, str], init=False)
    _token_s: float = field(default=0.05, init=False)
    _epoch: str = field(default="", init=False)
    _formed_at: float = field(default=0.0, init=False)

    def ask(self, node: RealNode, question: Question) -> httpx.Response:
        content = question.body(self.model)
        return httpx.post(node.url + PATHS[question.dialect], json=content, timeout=120)

    def undisturbed(self, question: Question) -> str:
        if question not in self._undisturbed:
            self.set_up()
            begun = time.monotonic()
            answer = self.ask(self.cluster[0], question)
            assert answer.status_code == 200, answer.text
            stream = question.stream
            text = told(question.dialect, answer.text).text if stream else text_of(question.dialect, answer.json())
            self._undisturbed[question] = text
            self._token_s = (time.monotonic() - begun) / max(1, len(text) / self.characters)
        return self._undisturbed[question]

    def set_up(self) -> None:
        """All nodes are there, and the ring goes over as many of them as it should."""
        for node in self.cluster.nodes:
            if node not in self.cluster.alive:
                _start_again(node)
        self.cluster.wait_until_together()
        placement = self.cluster[0].placement(self.model)
        if placement is None or len({stage.peer for stage in placement.stages}) < self.spread:
            self.cluster.delete(self.model)
            self.cluster.place(self.model, min_stages=self.spread)
        self.cluster.wait_until_ready(self.model)

    def perform(self, fault: Fault, question: Question) -> Outcome:
        expected = self.undisturbed(question)
        self.set_up()
        if self.settles:
            self._settle()
        ring = self._ring(fault)
        undo: list[Callable[[], None]] = []
        try:
            run = self._streamed if question.stream else self._whole
            return run(ring.asked, question, expected, fault, lambda: undo.append(strike(fault, ring)))
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
        candidates = [node for node in self.cluster.alive if not (fault.kind == "leader" and node is leader)]
        spare = [node for node in candidates if node not in by_rank]
        return Ring((candidates + spare)[fault.pick % len(candidates + spare)], leader, by_rank, self.cluster)

    def _streamed(
        self, node: RealNode, question: Question, expected: str, fault: Fault, strike_now: Callable[[], None]
    ) -> Outcome:
        raw, text, last, longest = "", "", None, 0.0
        content = question.body(self.model)
        with httpx.stream("POST", node.url + PATHS[question.dialect], json=content, timeout=120) as response:
            assert response.status_code == 200
            for line in response.iter_lines():
                raw += line + "\n"
                piece = "".join(piece_of(question.dialect, payload) for payload in _payloads(line))
                if piece and last is not None:
                    longest = max(longest, time.monotonic() - last)
                    last = time.monotonic()
                text += piece
                if last is None and len(text) >= fault.token * self.characters:
                    strike_now()
                    last = time.monotonic()
        assert last is not None, f"no fault: {text!r} ended before token {fault.token}"
        outcome = told(question.dialect, raw)
        error = "" if outcome.is_complete else f"not complete: {outcome.error}"
        return Outcome(outcome.text, expected, error, longest)

    def _whole(
        self, node: RealNode, question: Question, expected: str, fault: Fault, strike_now: Callable[[], None]
    ) -> Outcome:
        answers: list[httpx.Response] = []
        thread = threading.Thread(target=lambda: answers.append(self.ask(node, question)), daemon=True)
        thread.start()
        time.sleep(fault.token * self._token_s)  # nothing of the answer shows how far it is
        strike_now()
        wait_for("the answer comes", lambda: answers, 120)
        (answer,) = answers
        if answer.status_code != 200:
            return Outcome("", expected, answer.text)
        return Outcome(text_of(question.dialect, answer.json()), expected)


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


def _payloads(line: str) -> Iterator[Any]:
    data = line.removeprefix("data: ")
    if data.startswith("{"):
        yield json.loads(data)

"""Stage 0's part, driven by hand against one scripted stage that holds all layers."""

from collections import defaultdict

import pytest
from attrs import evolve

from p2pexo.engine.batch import BatchResult, Drawing
from p2pexo.engine.grammar import GrammarKind, GrammarSpec
from p2pexo.engine.limits import Limits
from p2pexo.engine.scheduler import Scheduler
from p2pexo.generation.errors import RingBrokenError
from p2pexo.generation.events import (
    Delta,
    Failed,
    Finished,
    FinishReason,
    Likelihood,
    Progress,
    Started,
    TokenLogprobs,
    Usage,
    Waiting,
)
from p2pexo.generation.request import FormatKind, OutputFormat, Sampling, Tool, ToolChoice, ToolMode
from p2pexo.ring.activity import ActivityMeter
from p2pexo.ring.conductor import Conductor
from p2pexo.ring.scripted import Line, Script, ScriptedStage, ScriptedText


class Desk:
    def __init__(
        self, script: Script | None = None, limits: Limits | None = None, stage_s: tuple[float, ...] = ()
    ) -> None:
        """``stage_s``: what each stage of the ring is said to have taken of a batch's second."""
        script = script or Script()
        self.events = defaultdict(list)
        self.engine = ScriptedStage(script, 0, script.layers)
        self.now = 0.0
        self.stage_s = stage_s
        self.meter = ActivityMeter()
        self.conductor = Conductor(
            ScriptedText(script),
            lambda call, event: self.events[call].append(event),
            Scheduler(limits or Limits()),
            lambda: self.now,
            self.meter,
        )

    def step(self) -> bool:
        """Compute one batch, which takes a second; whether there was any."""
        batch = self.conductor.next_batch()
        if batch is None:
            return False
        self.now += 1.0
        result = self.engine.run(batch, None)
        assert isinstance(result, BatchResult)
        self.conductor.apply(evolve(result, stage_s=self.stage_s))
        return True

    def run(self) -> None:
        while self.step():
            pass


def test_events_come_in_their_order(request_for):
    desk = Desk()
    desk.conductor.submit(1, request_for("hello", max_tokens=3))
    desk.run()
    kinds = [type(event) for event in desk.events[1]]
    assert kinds == [Started, Progress, Delta, Delta, Delta, Finished]
    assert [event.index for event in desk.events[1] if isinstance(event, Delta)] == [0, 1, 2]


def test_finished_tells_how_long_prefill_and_decode_took(request_for):
    desk = Desk(limits=Limits(rows=2))
    desk.conductor.submit(1, request_for("hello", max_tokens=5))
    desk.run()
    finished = desk.events[1][-1]
    assert (finished.prefill_s, finished.decode_s) == (3.0, 4.0)


def test_finished_tells_how_long_it_waited(request_for):
    desk = Desk(limits=Limits(running=1))
    for call in (1, 2):
        desk.conductor.submit(call, request_for("hello", id=str(call), max_tokens=5))
    desk.run()
    assert [desk.events[call][-1].queue_s for call in (1, 2)] == [0.0, 5.0]


def test_the_hops_of_batches_with_rows_are_noted(request_for):
    desk = Desk(stage_s=(0.5, 0.3))
    desk.meter.read(0.0)
    desk.conductor.submit(1, request_for("hello", max_tokens=3))
    desk.run()  # the last batch only releases the caches
    shown = desk.meter.read(1.0)
    assert shown.hop_s == 0.1, "two hops take what is left of a second"
    assert shown.queue_s == 0.0


def test_how_many_requests_are_there_is_noted_as_they_come_and_go(request_for):
    desk = Desk(limits=Limits(running=2))
    noted = []
    for call in (1, 2, 3):
        desk.conductor.submit(call, request_for("hello", id=str(call), max_tokens=3))
        noted.append(desk.meter.read(0.0).requests)
    desk.conductor.cancel(2)
    noted.append(desk.meter.read(0.0).requests)
    desk.run()
    shown = desk.meter.read(0.0)
    assert (*noted, shown.requests) == (1, 2, 3, 2, 0)
    assert shown.capacity == 2


def test_nothing_is_left_in_the_caches_behind_an_answer(request_for):
    desk = Desk()
    for call in range(3):
        desk.conductor.submit(call, request_for("hello", id=str(call), max_tokens=3))
    desk.run()
    assert [events[-1].reason for events in desk.events.values()] == [FinishReason.LENGTH] * 3
    assert desk.engine._states == {}


ONE = Limits(running=1)


def test_a_request_beyond_the_limit_waits_and_is_told_so(request_for):
    desk = Desk(limits=ONE)
    desk.conductor.submit(1, request_for("hello", id="a", max_tokens=3))
    desk.conductor.submit(2, request_for("world", id="b", max_tokens=3))
    desk.step()
    assert desk.events[2] == [Waiting("requests that come first: 1")]
    desk.run()
    assert isinstance(desk.events[2][1], Started)
    assert isinstance(desk.events[2][-1], Finished)


def test_a_cancelled_request_says_nothing_more_and_leaves_no_cache(request_for):
    desk = Desk()
    desk.conductor.submit(1, request_for("hello", max_tokens=None))
    desk.step()
    desk.step()
    before = list(desk.events[1])
    desk.conductor.cancel(1)
    desk.run()
    assert desk.events[1] == before
    assert desk.engine._states == {}


def test_a_waiting_request_can_be_cancelled(request_for):
    desk = Desk(limits=ONE)
    for call in (1, 2, 3):
        desk.conductor.submit(call, request_for("hello", id=str(call), max_tokens=2))
    desk.conductor.cancel(2)
    desk.run()
    assert [type(event) for event in desk.events[2]] == [Waiting]
    assert isinstance(desk.events[3][-1], Finished)


def test_a_full_queue_refuses_the_next_request(request_for):
    desk = Desk(limits=Limits(running=1, waiting=2))
    for call in range(4):
        desk.conductor.submit(call, request_for("hello", id=str(call)))
    (refused,) = desk.events[3]
    assert (refused.error.kind, refused.error.retry_after_s) == ("overloaded", 5)


def test_requests_at_once_say_what_each_says_alone(request_for, tokens_in):
    prompts = {call: "abc" * (1 + 7 * call) for call in range(8)}
    alone: dict[int, list[int]] = {}
    for call, prompt in prompts.items():
        desk = Desk()
        desk.conductor.submit(call, request_for(prompt, max_tokens=10 + call))
        desk.run()
        alone[call] = tokens_in(desk.events[call])
    desk = Desk(limits=Limits(together=3, rows=32))
    for call, prompt in prompts.items():
        desk.conductor.submit(call, request_for(prompt, id=str(call), max_tokens=10 + call))
        desk.step()
    desk.run()
    assert {call: tokens_in(desk.events[call]) for call in prompts} == alone
    assert all([type(event) for event in events].count(Started) == 1 for events in desk.events.values())


def test_a_conversation_longer_than_the_memory_is_refused_or_ends_there(request_for, tokens_in):
    desk = Desk(Script(context_length=1000), Limits(cache_tokens=256))
    desk.conductor.submit(1, request_for("a" * 256))
    (refused,) = desk.events[1]
    assert refused.error.kind == "context_length_exceeded"
    assert "256 tokens" in refused.error.message and "keep memory for 256" in refused.error.message
    desk.conductor.submit(2, request_for("a" * 250, max_tokens=None))
    desk.run()
    assert len(tokens_in(desk.events[2])) == 6
    assert desk.events[2][-1].reason is FinishReason.LENGTH


def test_an_answer_that_gave_up_its_caches_goes_on_as_if_it_had_not(request_for, tokens_in):
    prompts = {call: f"{call}" * 200 for call in (1, 2, 3)}
    answers: list[dict[int, list[int]]] = []
    for limits in (Limits(), Limits(cache_tokens=1024)):
        desk = Desk(Script(context_length=1000), limits)
        for call, prompt in prompts.items():
            desk.conductor.submit(call, request_for(prompt, id=str(call), max_tokens=200))
        desk.run()
        answers.append({call: tokens_in(desk.events[call]) for call in prompts})
        assert all([type(event) for event in events].count(Started) == 1 for events in desk.events.values())
    assert answers[0] == answers[1]
    assert [len(each) for each in answers[1].values()] == [200] * 3


def test_a_conversation_that_goes_on_says_what_was_taken_over_and_answers_as_if_it_were_not(request_for, tokens_in):
    told: list[tuple[list[int], int]] = []
    for limits in (Limits(kept_tokens=0), Limits()):
        desk = Desk(limits=limits)
        for call, prompt in enumerate(("tell me " * 10, "tell me " * 10 + "more")):
            desk.conductor.submit(call, request_for(prompt, id=str(call), max_tokens=30))
            desk.run()
        finished = desk.events[1][-1]
        assert Started(finished.usage.prompt_tokens, finished.usage.cached_tokens) in desk.events[1]
        told.append((tokens_in(desk.events[1]), finished.usage.cached_tokens))
    assert told[0][0] == told[1][0]
    assert [cached for _, cached in told] == [0, 64]


def test_every_request_is_told_when_the_ring_breaks_and_later_ones_run(request_for):
    desk = Desk()
    for call in (1, 2):
        desk.conductor.submit(call, request_for("hello", id=str(call)))
    batch = desk.conductor.next_batch()
    assert batch is not None
    desk.engine.clear()
    desk.conductor.fail_all(RingBrokenError("gone"))
    assert [events[-1].error.kind for events in desk.events.values()] == ["ring_broken"] * 2
    desk.conductor.apply(BatchResult(batch.number))
    desk.conductor.submit(3, request_for("hello", id="3", max_tokens=2))
    desk.run()
    assert isinstance(desk.events[3][-1], Finished)


@pytest.mark.parametrize(
    ("content", "kind"), [("", "invalid_request"), ("a" * 512, "context_length_exceeded"), ("\0", "engine")]
)
def test_what_is_wrong_with_a_request_is_its_own_failure(request_for, content: str, kind: str):
    desk = Desk()
    desk.conductor.submit(1, request_for(content, id="bad"))
    (failed,) = desk.events[1]
    assert isinstance(failed, Failed) and failed.error.kind == kind
    desk.conductor.submit(2, request_for("hello", max_tokens=2))
    desk.run()
    assert isinstance(desk.events[2][-1], Finished)


def test_a_request_without_tokens_only_counts_its_prompt(request_for):
    desk = Desk(Script(context_length=10))
    for number, prompt in enumerate(("hello", "longer than the context")):
        desk.conductor.submit(number, request_for(prompt, max_tokens=0))
        counted = Finished(FinishReason.LENGTH, Usage(len(prompt), 0))
        assert desk.events[number] == [Started(len(prompt)), counted]
    assert not desk.step()


def test_what_a_request_wants_drawn_goes_along_with_its_first_chunk(request_for):
    desk = Desk()
    wanted = OutputFormat(FormatKind.JSON_SCHEMA, '{"type": "object"}')
    desk.conductor.submit(1, request_for("hello", choice=2, top_logprobs=3, output_format=wanted, max_tokens=9))
    batch = desk.conductor.next_batch()
    assert batch is not None
    grammar = GrammarSpec(GrammarKind.JSON_SCHEMA, '{"type": "object"}')
    assert batch.entries[0].drawing == Drawing(Sampling(temperature=0.0), 2, grammar, 3, 9)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"output_format": OutputFormat(FormatKind.JSON_SCHEMA, '{"type": "objekt"}')}, "response_format"),
        ({"output_format": OutputFormat(FormatKind.JSON_SCHEMA, "{")}, "response_format"),
        ({"tools": (Tool("look", parameters='{"not": {}}'),), "tool_choice": ToolChoice(ToolMode.REQUIRED)}, "tools"),
    ],
)
def test_a_grammar_that_cannot_be_enforced_is_refused_before_it_waits(request_for, changes, param: str):
    desk = Desk()
    desk.conductor.submit(1, request_for("hello", id="running"))
    desk.conductor.submit(2, request_for("hello", id="bad", **changes))
    (failed,) = desk.events[2]
    assert (failed.error.kind, failed.error.param) == ("invalid_request", param)


def test_log_probabilities_come_with_their_tokens_also_in_mid_character(request_for):
    desk = Desk(Script(says=(Line("", "é!"),)))
    desk.conductor.submit(1, request_for("hello", id="plain"))
    desk.conductor.submit(2, request_for("hello", top_logprobs=1))
    desk.run()
    assert all(event.logprobs == () for event in desk.events[1] if isinstance(event, Delta))
    told = [event.logprobs for event in desk.events[2] if isinstance(event, Delta)]
    first, second, mark, end = (
        Likelihood(0xC3, "\ufffd", (0xC3,), 0.0),
        Likelihood(0xA9, "\ufffd", (0xA9,), 0.0),
        Likelihood(33, "!", (33,), 0.0),
        Likelihood(0, "<end>", tuple(b"<end>"), 0.0),
    )
    assert told == [(TokenLogprobs(each, (each,)),) for each in (first, second, mark, end)]

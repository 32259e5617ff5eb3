"""Stage 0's part of the work: requests in, batches out; results in, events out. One thread, no I/O of its own."""

import time
from collections.abc import Callable

import structlog
from attrs import define, evolve, field

from p2pexo.engine.answer import Answer
from p2pexo.engine.batch import Batch, BatchResult, Drawing, Sampled, SequenceFailure
from p2pexo.engine.grammar import GrammarKind, GrammarSpec
from p2pexo.engine.logprobs import token_logprobs
from p2pexo.engine.masks import check_grammar
from p2pexo.engine.scheduler import Advance, Scheduler
from p2pexo.generation.errors import (
    ContextLengthError,
    EngineError,
    GenerationError,
    InvalidRequestError,
    RingBrokenError,
)
from p2pexo.generation.events import Event, Failed, Finished, FinishReason, Progress, Started, Usage, Waiting
from p2pexo.generation.request import Request
from p2pexo.ring.activity import ActivityMeter
from p2pexo.ring.engines import TextModel

Emit = Callable[[int, Event], None]
"""(call, event)."""

_logger = structlog.get_logger(__name__)


@define
class _Call:
    """A request that runs or waits."""

    number: int
    request: Request
    answer: Answer
    sequence: int
    prompt_tokens: int
    came_at: float
    cached_tokens: int = 0
    """Of the prompt, those that were taken over from another conversation."""
    started_at: float | None = None
    first_token_at: float | None = None


@define
class Conductor:
    _text: TextModel
    _emit: Emit
    _scheduler: Scheduler = field(factory=Scheduler)
    _clock: Callable[[], float] = time.monotonic
    _meter: ActivityMeter = field(factory=ActivityMeter)
    _calls: dict[int, _Call] = field(factory=dict[int, _Call], init=False)
    """By sequence."""
    _sent_at: dict[int, float] = field(factory=dict[int, float], init=False)
    """By number of the batch."""

    def keep_within(self, cache_tokens: int) -> None:
        """From now on there is KV memory for so many tokens on every stage."""
        self._scheduler.limits = evolve(self._scheduler.limits, cache_tokens=cache_tokens)

    def submit(self, number: int, request: Request) -> None:
        """Take a request on. Whatever is wrong with it becomes its own ``Failed`` event and nobody else's."""
        try:
            self._supersede(request)
            self._enqueue(number, request)
        except GenerationError as error:
            self._emit(number, Failed(error.report()))
        except Exception as error:
            _logger.exception("a request could not be prepared", request=request.id)
            self._emit(number, Failed(_engine_error("the request could not be prepared", error).report()))

    def cancel(self, number: int) -> None:
        """Drop a request without a further event; its caches are released with the next batch."""
        for call in [each for each in self._calls.values() if each.number == number]:
            self._forget(call)

    def next_batch(self) -> Batch | None:
        batch = self._scheduler.next_batch()
        if batch is None:
            return None
        now = self._clock()
        if batch.entries:
            self._sent_at[batch.number] = now
        for entry in batch.entries:
            call = self._calls[entry.sequence]
            if entry.drawing is not None:  # its first chunk
                call.cached_tokens = min(entry.position, call.prompt_tokens)
            if call.started_at is None:
                call.started_at = now
                self._emit(call.number, Started(call.prompt_tokens, call.cached_tokens))
        return batch

    def apply(self, result: BatchResult) -> None:
        now = self._clock()
        sent_at = self._sent_at.pop(result.number, None)
        round_trip_s = 0.0 if sent_at is None else now - sent_at
        if sent_at is not None:  # one without rows is not waited for
            self._meter.returned(len(result.stage_s), round_trip_s - sum(result.stage_s))
        for outcome in self._scheduler.apply(result, round_trip_s):
            call = self._calls[outcome.sequence]
            if isinstance(outcome, SequenceFailure):
                self._fail(call, EngineError(f"the engine failed at this request: {outcome.message}"))
            else:
                self._advance(call, outcome)

    def fail_all(self, error: GenerationError) -> None:
        """End every request, running or waiting; forget all sequences, as their caches are gone."""
        for call in list(self._calls.values()):
            self._fail(call, error)
        self._scheduler.clear()
        self._sent_at.clear()

    def _enqueue(self, number: int, request: Request) -> None:
        prompt = tuple(self._text.prompt_tokens(request))
        if not prompt:
            raise InvalidRequestError("the messages make an empty prompt; send at least one with text")
        if request.max_tokens == 0:
            self._emit(number, Started(len(prompt)))
            self._emit(number, Finished(FinishReason.LENGTH, Usage(len(prompt), 0)))
            return
        answer = Answer(request, self._text, prompt, most_tokens=self._memory_for(len(prompt)))
        if answer.finished is not None:  # by what an earlier attempt produced
            self._emit(number, Started(len(prompt)))
            self._emit(number, answer.finished)
            return
        drawing = Drawing(request.sampling, request.choice, self._grammar(request), request.top_logprobs, answer.limit)
        replayed = request.replayed_tokens
        sequence = self._scheduler.add(prompt + replayed, drawing, first_index=len(replayed))
        self._calls[sequence] = _Call(number, request, answer, sequence, len(prompt), self._clock())
        self._count()
        if ahead := self._scheduler.ahead_of(sequence):
            self._emit(number, Waiting(f"requests that come first: {ahead}"))

    def _memory_for(self, prompt_tokens: int) -> int | None:
        """Tokens that one conversation may have, if memory limits them. Raises ContextLengthError for a longer prompt."""
        tokens = self._scheduler.limits.cache_tokens
        if tokens is not None and tokens <= prompt_tokens < self._text.context_length:
            raise ContextLengthError(
                f"the prompt has {prompt_tokens} tokens, but the machines that run this model keep memory for {tokens}, "
                "prompt and answer together; shorten the messages, or place the model where there is more memory",
                param="messages",
            )
        return tokens

    def _grammar(self, request: Request) -> GrammarSpec | None:
        """Raises InvalidRequestError for one that can't be enforced."""
        grammar = self._text.grammar(request)
        if grammar is not None:
            check_grammar(grammar, "tools" if grammar.kind is GrammarKind.LARK else "response_format")
        return grammar

    def _supersede(self, request: Request) -> None:
        """A higher attempt ends a lower one of the same request; a lower or equal one comes too late."""
        for call in [each for each in self._calls.values() if each.request.id == request.id]:
            if call.request.attempt >= request.attempt:
                raise InvalidRequestError(
                    f"attempt {call.request.attempt} of request {request.id} is running; send a higher one than that"
                )
            self._fail(call, RingBrokenError(f"superseded by attempt {request.attempt} of the same request"))

    def _advance(self, call: _Call, advance: Advance) -> None:
        if call.first_token_at is None:
            self._emit(call.number, Progress(advance.processed, advance.total))
        if advance.drawn is not None:
            self._push(call, advance.drawn)

    def _push(self, call: _Call, drawn: Sampled) -> None:
        if call.first_token_at is None:
            call.first_token_at = self._clock()
        try:
            events = call.answer.push(drawn.token, token_logprobs(drawn, self._text.token_bytes))
        except Exception as error:
            _logger.exception("a token could not be turned into text", request=call.request.id)
            self._fail(call, _engine_error(f"token {drawn.token} could not be turned into text", error))
            return
        for event in events:
            self._emit(call.number, self._timed(call, event) if isinstance(event, Finished) else event)
            if isinstance(event, Finished | Failed):
                self._forget(call)

    def _timed(self, call: _Call, finished: Finished) -> Finished:
        now = self._clock()
        started_at = now if call.started_at is None else call.started_at
        first_token_at = now if call.first_token_at is None else call.first_token_at
        usage = evolve(finished.usage, cached_tokens=call.cached_tokens)
        timed = evolve(
            finished,
            usage=usage,
            queue_s=started_at - call.came_at,
            prefill_s=first_token_at - started_at,
            decode_s=now - first_token_at,
            replayed_tokens=len(call.request.replayed_tokens),
        )
        self._meter.ended(timed)
        return timed

    def _fail(self, call: _Call, error: GenerationError) -> None:
        self._emit(call.number, Failed(error.report()))
        self._forget(call)

    def _forget(self, call: _Call) -> None:
        del self._calls[call.sequence]
        self._scheduler.remove(call.sequence)
        self._count()

    def _count(self) -> None:
        self._meter.has_taken(len(self._calls), self._scheduler.limits.running)


def _engine_error(what: str, error: Exception) -> EngineError:
    return EngineError(f"{what}: {type(error).__name__}: {error}")

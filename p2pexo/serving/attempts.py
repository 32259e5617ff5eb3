"""The attempts at one answer: what the client has of it, and how another ring goes on from there. Pure.

The client is given each output index once: what an attempt has produced goes with the next one as ``replayed_tokens``,
which stage 0 takes in silently. So text that was held back when a ring was lost comes out later, as if nothing had been.
"""

from attrs import define, evolve, field

from p2pexo.generation.errors import EngineError, GenerationError, RingBrokenError, UnavailableError
from p2pexo.generation.events import Delta, Event, Finished, Started
from p2pexo.generation.request import Request
from p2pexo.serving.settings import RouterSettings


@define
class Attempts:
    request: Request
    _settings: RouterSettings
    gives_up_at: float | None = field(default=None, init=False)
    """Seconds on the caller's clock; None while no ring is lost."""
    _tokens: list[int] = field(factory=list[int], init=False)
    _has_started: bool = field(default=False, init=False)
    _first_token_at: float = field(default=0.0, init=False)
    _ran: bool = field(default=False, init=False)
    """Whether the ring of this attempt has begun to compute it."""
    _produced: bool = field(default=False, init=False)
    _barren: int = field(default=0, init=False)
    """Rings lost one after the other while they computed this request, without another token of it."""
    _loss: str = field(default="", init=False)

    @property
    def has_begun(self) -> bool:
        """Whether the client has anything that another ring could contradict."""
        return bool(self._tokens)

    def take(self, event: Event, now: float) -> Event | None:
        """What the client is told of an event, None if nothing. Raises EngineError for an output index out of turn."""
        match event:
            case Started():
                self._ran = True
                heard_before, self._has_started = self._has_started, True
                return None if heard_before else event
            case Delta():
                self._add(event, now)
            case Finished() if self.request.attempt and self.has_begun:
                return evolve(event, decode_s=now - self._first_token_at, replayed_tokens=0)
            case _:
                pass
        return event

    def lose(self, error: RingBrokenError, now: float) -> None:
        """The ring of this attempt is gone: make the request of the next one. Raises what ended the request, if that does."""
        self._loss = error.message
        self._count_barren()
        if self.gives_up_at is None:
            self.gives_up_at = now + self._settings.reform_timeout_s
        if now >= self.gives_up_at:
            raise self.given_up(error)
        self._ran = self._produced = False
        self.request = evolve(self.request, attempt=self.request.attempt + 1, replayed_tokens=tuple(self._tokens))

    def given_up(self, error: GenerationError) -> GenerationError:
        """What the client is told when no ring comes in time: of an answer that has begun, that it broke."""
        message = error.message if error.message == self._loss else f"{self._loss}; {error.message}"
        if self.has_begun:
            return RingBrokenError(message)
        return UnavailableError(message, retry_after_s=self._settings.retry_after_s)

    def _add(self, delta: Delta, now: float) -> None:
        if delta.index != len(self._tokens):
            raise EngineError(
                f"the ring went on with token {delta.index} of the answer and not with {len(self._tokens)}"
            )
        if not self._tokens:
            self._first_token_at = now
        self._tokens += delta.tokens
        self._produced = True
        self.gives_up_at = None

    def _count_barren(self) -> None:
        """Raises EngineError if the request itself seems to be what breaks rings."""
        if self._produced:
            self._barren = 0
        self._barren += self._ran
        if self._barren > self._settings.max_barren_losses:
            raise EngineError(
                f"{self._barren} rings in a row were lost at token {len(self._tokens)} of this answer, so the request may be "
                f"what breaks them, and is not tried again; the last one: {self._loss}"
            )

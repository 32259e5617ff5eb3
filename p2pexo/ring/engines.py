"""What a stage process computes with: the MLX engine, or any other behind the same few methods."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from attrs import frozen

from p2pexo.engine.answer import AnswerText
from p2pexo.engine.batch import Batch, BatchResult
from p2pexo.engine.grammar import GrammarSpec
from p2pexo.engine.speeds import ComputeSpeed
from p2pexo.generation.request import Request

MLX_ENGINE = "p2pexo.ring.mlx_kit:kit"
SCRIPTED_ENGINE = "p2pexo.ring.scripted:kit"
"""Computes next to nothing, but unforgivingly; for tests and benches."""


class StageEngine(Protocol):
    """One stage's layers and caches. Used by one thread, the one that loaded it."""

    @property
    def is_last(self) -> bool: ...
    @property
    def weight_bytes(self) -> int: ...
    @property
    def compute(self) -> str: ...
    @property
    def wire_dtype(self) -> str: ...
    @property
    def conversations(self) -> int: ...
    @property
    def cache_bytes(self) -> int: ...

    def run(self, batch: Batch, hidden: bytes | memoryview | None) -> memoryview | BatchResult: ...
    def clear(self) -> None: ...


class LoadStage(Protocol):
    def __call__(
        self,
        directory: Path,
        *,
        first_layer: int,
        end_layer: int,
        precision: str,
        progress: Callable[[float], None],
    ) -> StageEngine: ...


class TextModel(AnswerText, Protocol):
    """The tokenizer and the chat template, as stage 0 needs them."""

    def token_bytes(self, token: int) -> bytes:
        """What one token stands for; it may be a part of a character."""
        ...

    def prompt_tokens(self, request: Request) -> list[int]: ...

    def grammar(self, request: Request) -> GrammarSpec | None:
        """What binds the answer, if anything does."""
        ...


class MeasureSpeed(Protocol):
    def __call__(self, *, dense: bool) -> ComputeSpeed: ...


@frozen
class EngineKit:
    """What a stage process makes: its stage, and on stage 0 also the text model of the directory."""

    load_stage: LoadStage
    load_text: Callable[[Path], TextModel]
    measure: MeasureSpeed | None = None
    """None: it computes nothing whose speed would matter."""


def find_kit(path: str) -> EngineKit:
    """The kit that ``module:attribute`` names. Raises ImportError, AttributeError or TypeError if there is none."""
    module, _, attribute = path.partition(":")
    kit = getattr(importlib.import_module(module), attribute)
    if not isinstance(kit, EngineKit):
        raise TypeError(f"{path} is {kit!r} and not an EngineKit")
    return kit

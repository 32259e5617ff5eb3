"""What benches share: a real model, rings of real stage processes on loopback, and the one line of figures at the end."""

import sys
from pathlib import Path

# A script's folder is searched before all others, but bench/http.py is not what libraries mean by ``import http``.
sys.path.sort(key=lambda entry: Path(entry).resolve() == Path(__file__).parent)

import json
import os
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

import structlog
import trio
from attrs import evolve, frozen
from slow_links import relay

from networking.transport import PeerId
from p2pexo.cluster.assignments import Assignment, neighbours
from p2pexo.cluster.facts import Placements, StageFact
from p2pexo.cluster.observed import Cluster
from p2pexo.engine.blas import prepare_blas
from p2pexo.engine.environment import private_directory, stage_environment
from p2pexo.engine.limits import Limits
from p2pexo.generation.errors import from_report
from p2pexo.generation.events import Delta, Failed, Finished
from p2pexo.generation.request import Request, Sampling
from p2pexo.generation.text import Prompt
from p2pexo.models.catalogue import EMBEDDED
from p2pexo.models.store import Store
from p2pexo.ring.engines import MLX_ENGINE
from p2pexo.ring.plan import Epoch, Placement, StagePlan
from p2pexo.ring.stage import Neighbours, StagePhase, StageSpec, StageStatus
from p2pexo.ring.supervisor import StageProcess

MODEL = EMBEDDED


@frozen
class Workshop:
    """The folder and the environment that all stages of a bench share."""

    model_directory: Path
    environment: dict[str, str]
    blas: str


@frozen
class Answered:
    tokens: tuple[int, ...]
    times: tuple[float, ...]
    """When each token came, on trio's clock."""
    prefill_s: float
    """As stage 0 counts it, up to the first token."""
    decode_s: float
    """From the first token to the last."""

    @property
    def seconds_per_token(self) -> float:
        """Of decoding; the first token belongs to the prefill."""
        return self.decode_s / (len(self.tokens) - 1)


def keep_quiet() -> None:
    """Log nothing less than a warning: what is printed are figures, and writing lines would be counted."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))


def set_up() -> Workshop:
    """Import the embedded model and choose the BLAS as a node would. Quiet about anything less than a warning."""
    keep_quiet()
    cache = private_directory(Path(tempfile.gettempdir()) / f"p2pexo-bench-{os.getuid()}")
    directory = Store(cache).fetch(MODEL)
    blas = prepare_blas("auto", cache)
    environment = stage_environment(os.environ, blas, private_directory(cache / "tmp"))
    return Workshop(directory, environment, blas.name)


@asynccontextmanager
async def running_ring(
    workshop: Workshop,
    stages: int,
    *,
    engine: str = MLX_ENGINE,
    limits: Limits | None = None,
    layers: int = MODEL.layers,
    precision: str = "auto",
    hop_s: float = 0.0,
) -> AsyncGenerator[StageProcess]:
    """A ring of that many processes, layers cut evenly; its stage 0, once all are ready.

    ``limits``: unless given, nothing is kept of a prompt, so that the same one can be measured again; ``hop_s``: what each
    hop takes on top of what it takes anyway.
    """
    cuts = [round(layers * rank / stages) for rank in range(stages + 1)]
    plans = tuple(StagePlan("bench", first, end) for first, end in pairwise(cuts))
    epoch = Epoch(1, 1, "bench")
    placement = Placement(f"bench-{stages}", MODEL.id, MODEL.revision, epoch, plans, precision)
    processes = [
        StageProcess(
            StageSpec(placement, rank, workshop.model_directory, ("127.0.0.1",)),
            environment=workshop.environment,
            engine=engine,
            limits=limits or Limits(kept_tokens=0),
        )
        for rank in range(stages)
    ]
    async with trio.open_nursery() as nursery:
        for process in processes:
            await nursery.start(process.run)
        statuses = [await _reached(process, StagePhase.LISTENING) for process in processes]
        if hop_s:
            statuses = [await _slowed(nursery, status, hop_s) for status in statuses]
        for rank, process in enumerate(processes):
            await process.join(_neighbours(Assignment(placement, rank), statuses))
        for process in processes:
            await _reached(process, StagePhase.READY)
        yield processes[0]
        nursery.cancel_scope.cancel()


def _neighbours(assignment: Assignment, statuses: Sequence[StageStatus]) -> Neighbours:
    """As a worker finds them among what other nodes tell; here all is told by one, and believed."""
    placement = assignment.placement
    facts = (StageFact(placement, rank, status, signature="") for rank, status in enumerate(statuses))
    stages = {(placement.stages[fact.rank].peer, placement.id, fact.rank): fact for fact in facts}
    found = neighbours(assignment, Cluster("bench", None, 0, {}, {}, {}, stages, Placements()), _believe)
    assert found is not None, f"a stage of {placement.id} is not loaded"
    return found


def _believe(peer: PeerId, data: bytes, signature: bytes) -> bool:
    return True


async def ask(stage: StageProcess, request: Request) -> Answered:
    """Run a request to its end. Raises its error if it fails."""
    tokens: list[int] = []
    times: list[float] = []
    async with stage.generate(request) as events:
        async for event in events:
            match event:
                case Delta():
                    tokens += event.tokens
                    times += [trio.current_time()] * len(event.tokens)
                case Failed():
                    raise from_report(event.error)
                case Finished():
                    return Answered(tuple(tokens), tuple(times), event.prefill_s, event.decode_s)
                case _:
                    pass
    raise RuntimeError(f"the events of {request.id} ended without an end")


async def ask_all(stage: StageProcess, requests: Sequence[Request]) -> list[Answered]:
    """All at once; the answers in the order of the requests."""
    answers: dict[str, Answered] = {}

    async def one(request: Request) -> None:
        answers[request.id] = await ask(stage, request)

    async with trio.open_nursery() as nursery:
        for request in requests:
            nursery.start_soon(one, request)
    return [answers[request.id] for request in requests]


def raw_request(id: str, text: str, tokens: int) -> Request:
    """A greedy answer of so many tokens to a text without a chat format."""
    return Request(id, MODEL.id, (), Sampling(temperature=0.0), max_tokens=tokens, raw_prompt=Prompt(text))


def print_figures(**figures: float | int | str) -> None:
    """The last line of a bench: one JSON object."""
    rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in figures.items()}
    print(json.dumps(rounded), flush=True)


async def _slowed(nursery: trio.Nursery, status: StageStatus, hop_s: float) -> StageStatus:
    """The status of a stage as its previous one sees it, through links that take time."""
    endpoints = [await nursery.start(relay, each, hop_s) for each in status.endpoints]
    return evolve(status, endpoints=tuple(endpoints))


async def _reached(process: StageProcess, phase: StagePhase) -> StageStatus:
    async for status in process.statuses():
        if status.phase is phase:
            return status
    raise RuntimeError(f"a stage did not become {phase}: {process.status.reason}")

"""The bench's side of ``rival.py``: mlx-lm in a process beside the rings."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio
from attrs import define, field, frozen
from harness import MODEL, Workshop

from p2pexo.engine.text import TextModel
from p2pexo.generation.request import Request


@frozen
class Told:
    first_s: float
    rest_s: float
    tokens: tuple[int, ...]


@define
class Rival:
    _process: trio.Process
    _text: TextModel
    _heard: bytearray = field(factory=bytearray, init=False)

    async def answer(self, requests: Sequence[Request], *, in_batch: bool = False) -> Told:
        """What mlx-lm makes of requests with raw prompts, all of which want equally many tokens; of one, unless in a batch."""
        assert self._process.stdin
        prompts = [self._text.prompt_tokens(each) for each in requests]
        job = json.dumps([prompts, requests[0].max_tokens, in_batch])
        await self._process.stdin.send_all(job.encode() + b"\n")
        first_s, rest_s, tokens = json.loads(await self.line())
        return Told(first_s, rest_s, tuple(tokens))

    async def line(self) -> bytes:
        assert self._process.stdout
        while b"\n" not in self._heard:
            data = await self._process.stdout.receive_some()
            if not data:
                raise RuntimeError("mlx-lm's process has ended")
            self._heard += data
        line, _, rest = bytes(self._heard).partition(b"\n")
        self._heard[:] = rest
        return line


@asynccontextmanager
async def running_rival(workshop: Workshop) -> AsyncGenerator[Rival]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("rival.py")), str(workshop.model_directory)]
    async with trio.open_nursery() as nursery:
        run = partial(
            trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=workshop.environment
        )
        process = await nursery.start(run)
        rival = Rival(process, TextModel.load(workshop.model_directory))
        assert await rival.line() == b"ready", f"mlx-lm can't run {MODEL.id}"
        yield rival
        nursery.cancel_scope.cancel()

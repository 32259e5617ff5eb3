"""The examples of docs/sdk.md run, against a node with a scripted model."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from p2pexo.generation.events import (
    Delta,
    Event,
    Finished,
    FinishReason,
    Likelihood,
    TokenLogprobs,
    ToolCallDelta,
    Usage,
    Waiting,
)
from p2pexo.generation.request import Request, Role

PAGE = (Path(__file__).parents[3] / "docs" / "sdk.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^## (.*?)$|```python\n(.*?)```", PAGE, flags=re.MULTILINE | re.DOTALL)
URL = "http://localhost:52415"


async def script(request: Request) -> AsyncIterator[Event]:
    """Calls a tool if there is one and it has not been called yet; else says hello."""
    if request.tools and request.messages[-1].role is Role.USER:
        yield Delta(0, (1,), "", tool_calls=(ToolCallDelta(0, "call_1", "weather", '{"city":"Ulm"}'),))
        yield Finished(FinishReason.TOOL_CALLS, Usage(7, 1))
        return
    yield Waiting("loading the model")
    for index, text in enumerate(("Hel", "lo!")):
        likely = (TokenLogprobs(Likelihood(index, text, tuple(text.encode()), -0.5)),)
        logprobs = () if request.top_logprobs is None else likely
        yield Delta(index, (index,), text, logprobs=logprobs, choice=request.choice)
    yield Finished(FinishReason.STOP, Usage(7, 3), choice=request.choice)


EXPECTED = {
    "A question, an answer": ["Hello! stop 3\n", "[loading the model]\nHello!\nstop, 3 tokens\n"],
    "Stopping early": ["Hel\n"],
    "On trio or asyncio": ["Hello!"],
    "Tools and formats": ['weather {"city":"Ulm"}\nHello!\n'],
    "Several answers, and how likely each token was": ["Hello! stop ['Hel -0.5', 'lo! -0.5']\n" * 2],
    "Pictures": ["400: it can't see\n"],
    "Models and the cluster": ["tests/Parrot-135M 8192\nready 100%\nstudio 40\n"],
    "When a node is down": [f"Hello!\n('{URL}', 'http://localhost:1')\n"],
    "Errors": ["temperature is wrong: temperature: expected a number from 0 to 2, got 99\n"],
}


def examples() -> list[tuple[str, str, str]]:
    """Title, code and what it prints, of each example in order."""
    title, found = "", []
    expected = {title: iter(outputs) for title, outputs in EXPECTED.items()}
    for heading, code in EXAMPLES:
        title = heading or title
        if code:
            found.append((title, code, next(expected[title])))
    return found


def test_every_expectation_has_its_example() -> None:
    assert len(examples()) == sum(len(outputs) for outputs in EXPECTED.values())


@pytest.mark.parametrize(("title", "code", "printed"), examples())
def test_an_example_runs(
    start_node: Any,
    capsys: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    title: str,
    code: str,
    printed: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cat.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    url = start_node(script).url
    with capture_logs():  # the node runs in this process, and would log between what the example prints
        exec(compile(code.replace(URL, url), title, "exec"), {})
    assert capsys.readouterr().out.replace(url, URL) == printed

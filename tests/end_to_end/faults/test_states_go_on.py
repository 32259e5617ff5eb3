"""What an answer has in mind when its ring is lost: half a call, a thought, a stop string, half a character."""

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from attrs import define, field
from end_to_end.cluster import RealNode
from end_to_end.faults.harness import Stage
from end_to_end.scripted import MODEL

SAIL = {"type": "function", "function": {"name": "sail", "parameters": {"type": "object"}}}
CASES: dict[str, dict[str, Any]] = {
    "think first": {},
    "call a tool": {"tools": [SAIL]},
    "almost stop": {"stop": ["STOPPING"]},
    "in other letters": {"logprobs": True},
    "several at once": {"n": 3, "max_tokens": 40, "logprobs": True, "top_logprobs": 1},
}


@define
class Choice:
    """All that one choice of a stream has said, joined."""

    content: str = ""
    reasoning: str = ""
    calls: defaultdict[int, str] = field(factory=lambda: defaultdict[int, str](str))
    logprobs: list[Any] = field(factory=list[Any])
    ends: list[str] = field(factory=list[str])

    def take(self, choice: dict[str, Any]) -> None:
        delta = choice["delta"]
        self.content += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content") or delta.get("reasoning") or ""
        for call in delta.get("tool_calls") or ():
            function = call["function"]
            self.calls[call["index"]] += (function.get("name") or "") + (function.get("arguments") or "")
        self.logprobs += (choice.get("logprobs") or {}).get("content") or ()
        self.ends += [choice["finish_reason"]] if choice["finish_reason"] else []


def answer(node: RealNode, prompt: str, fault: Callable[[], None] | None = None, after: int = 0) -> dict[int, Choice]:
    """The choices of a stream that meets the fault when so many chunks of it have come."""
    content = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], "stream": True, "temperature": 0}
    choices: defaultdict[int, Choice] = defaultdict(Choice)
    chunks = 0
    with httpx.stream("POST", f"{node.url}/v1/chat/completions", json=content | CASES[prompt], timeout=120) as stream:
        for line in stream.iter_lines():
            if not line.startswith("data: {"):
                continue
            chunk = json.loads(line.removeprefix("data: "))
            assert "error" not in chunk, chunk
            for choice in chunk["choices"]:
                choices[choice["index"]].take(choice)
            chunks += 1
            if chunks == after and fault is not None:
                fault()
    assert fault is None or chunks >= after
    return dict(choices)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("prompt", CASES)
def test_an_answer_goes_on_in_the_state_it_was_in(stage: Stage, prompt: str) -> None:
    stage.set_up()
    node = stage.cluster[0]
    expected = answer(node, prompt)
    assert all(len(choice.ends) == 1 for choice in expected.values())
    process = node.stage_processes()[-1]
    assert answer(node, prompt, process.kill, after=8) == expected

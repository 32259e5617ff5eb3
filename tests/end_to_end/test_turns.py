"""Messages in an order that strict templates refuse, in all dialects, on a model whose template is one of those."""

import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from end_to_end.cluster import RealCluster, real_cluster
from end_to_end.dialects import DIALECTS, PATHS

MODEL = "local/strict"
TEMPLATE = """{%- for message in messages -%}
    {%- if message.role == 'system' and not loop.first -%}{{ raise_exception('System message must be first') }}{%- endif -%}
    {%- if not loop.first and message.role == loop.previtem.role -%}{{ raise_exception('Roles must alternate') }}{%- endif -%}
    {{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
{%- endfor -%}
{{ '<|im_start|>assistant\n' }}"""

TALKS = {
    "a late system message": ("s:Be brief.", "u:One?", "a:1", "s:Use digits.", "u:Two?"),
    "two users": ("u:One?", "u:Two?"),
    "two systems": ("s:Be brief.", "s:Use digits.", "u:One?"),
    "two assistants": ("u:One?", "a:1", "a:or one", "u:Two?"),
}
IN_TURNS = {
    "a late system message": ("s:Be brief.\n\nUse digits.", "u:One?", "a:1", "u:Two?"),
    "two users": ("u:One?\n\nTwo?",),
    "two systems": ("s:Be brief.\n\nUse digits.", "u:One?"),
    "two assistants": ("u:One?", "a:1\n\nor one", "u:Two?"),
}
ROLES = {"s": "system", "u": "user", "a": "assistant"}


@pytest.fixture(scope="module")
def strict(embedded_directory: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("turns")
    shutil.copytree(embedded_directory, folder / "strict", copy_function=_link)
    template = folder / "strict" / "chat_template.jinja"
    template.unlink()
    template.write_text(TEMPLATE)
    with real_cluster(folder, 1, ("--cache", str(cache), "--model-dir", str(folder / "strict"))) as cluster:
        cluster.place(MODEL)
        yield cluster


def _link(source: str, target: str) -> None:
    Path(target).hardlink_to(source)


def ask(cluster: RealCluster, dialect: str, talk: tuple[str, ...]) -> tuple[str, int]:
    """The answer, and how many tokens the prompt had."""
    messages = [{"role": ROLES[each[0]], "content": each[2:]} for each in talk]
    asked: dict[str, Any] = {"model": MODEL}
    match dialect:
        case "responses":
            asked |= {"input": messages, "max_output_tokens": 6, "temperature": 0}
        case "ollama":
            asked |= {"messages": messages, "stream": False, "options": {"num_predict": 6, "temperature": 0}}
        case _:
            asked |= {"messages": messages, "max_tokens": 6, "temperature": 0}
    response = httpx.post(cluster[0].url + PATHS[dialect], json=asked, timeout=60)
    assert response.status_code == 200, response.text
    return _read(dialect, response.json())


def _read(dialect: str, answer: Any) -> tuple[str, int]:
    match dialect:
        case "chat":
            return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"]
        case "responses":
            return answer["output"][0]["content"][0]["text"], answer["usage"]["input_tokens"]
        case "claude":
            return answer["content"][0]["text"], sum(
                answer["usage"].get(each) or 0 for each in ("input_tokens", "cache_read_input_tokens")
            )
        case _:
            return answer["message"]["content"], answer["prompt_eval_count"]


@pytest.mark.parametrize("talk", TALKS)
def test_m5_every_dialect_brings_messages_into_turns_and_loses_none(strict: RealCluster, talk: str) -> None:
    expected = ask(strict, "chat", IN_TURNS[talk])
    answers = {dialect: ask(strict, dialect, TALKS[talk]) for dialect in DIALECTS}
    assert answers == dict.fromkeys(DIALECTS, expected)

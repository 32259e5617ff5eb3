import io

import httpx
import pytest
from attrs import evolve
from rich.console import Console

from p2pexo.cli.errors import CommandError
from p2pexo.cli.place import place
from p2pexo.cli.preview_tables import preview_tables
from p2pexo.client import PlacementOption, PlacementPreview, StagePreview
from p2pexo.generation.codec import encode

STAGES = (
    StagePreview("peer-a", "mac-a", 0, 10, 2_000_000_000, 5_000_000_000, 0.0125),
    StagePreview("peer-b", "mac-b", 10, 30, 4_000_000_000, 5_000_000_000, 0.02),
)
TWO = PlacementOption(2, STAGES, 8192, 25.0, 310.4)
ONE = PlacementOption(1, reason="needs 6.0 GB; the machine with most room has 5.0 GB free")
PREVIEW = PlacementPreview("owner/model", (ONE, TWO), chosen=2)


def shown(preview: PlacementPreview) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(preview_tables(preview))
    return out.getvalue()


def test_each_option_is_shown_with_memory_and_speed_or_why_it_is_impossible():
    text = shown(PREVIEW)
    assert "owner/model  would be placed on 2 machines" in text
    assert "1 machine: impossible: needs 6.0 GB; the machine with most room has 5.0 GB free" in text
    assert "→ 2 machines: about 25.0 tokens/s, prompts at 310; room for 8192 tokens of conversation" in text
    (row,) = (line for line in text.splitlines() if "mac-b" in line)
    assert row.split() == ["1", "mac-b", "10-29", "4.0", "GB", "5.0", "GB", "20.0", "ms"]


def test_speeds_that_are_not_known_are_said_in_words():
    unknown = evolve(TWO, decode_tokens_per_s=None, prefill_tokens_per_s=None, note="mac-b: speed not measured yet")
    stages = tuple(evolve(each, token_s=None) for each in STAGES)
    text = shown(evolve(PREVIEW, options=(evolve(unknown, stages=stages),)))
    assert "speed unknown (mac-b: speed not measured yet)" in text
    assert "not measured" in text
    assert "prompts not measured yet" in shown(evolve(PREVIEW, options=(evolve(TWO, prefill_tokens_per_s=None),)))


def test_what_runs_already_and_what_can_not_be_placed_is_said():
    assert "runs already as p1" in shown(evolve(PREVIEW, running="p1"))
    assert "can't be placed" in shown(evolve(PREVIEW, options=(ONE,), chosen=None))


@pytest.fixture
def asked(client_of, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Bodies of the calls that a command makes of a node which answers with the preview."""
    bodies: list[bytes] = []

    def handle(request: httpx.Request) -> httpx.Response:
        bodies.append(request.content)
        return httpx.Response(200, content=encode(PREVIEW))

    monkeypatch.setattr("p2pexo.cli.place.connect", lambda target: client_of(handle))
    return bodies


def test_a_dry_run_asks_for_a_preview_and_prints_it(asked: list[bytes], capsys: pytest.CaptureFixture[str]):
    place("model", split="mac-a=0-9,mac-b=10-29", dry_run=True)
    assert asked == [b'{"model":"model","split":"mac-a=0-9,mac-b=10-29","dry_run":true}']
    assert "would be placed on 2 machines" in capsys.readouterr().out
    place("model", dry_run=True, json=True)
    assert capsys.readouterr().out == encode(PREVIEW).decode() + "\n"


def test_json_is_for_previews(asked: list[bytes]):
    with pytest.raises(CommandError, match="--dry-run"):
        place("model", json=True)
    assert asked == []

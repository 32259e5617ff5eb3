import io
import json

import pytest
from attrs import evolve
from rich.console import Console, RenderableType

from p2pexo.cli import status
from p2pexo.cli.models import models_table
from p2pexo.cli.tables import cluster_tables
from p2pexo.client import Activity, Away, Client, LinkSpeed, Model, Speeds


def rendered(renderable: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_status_shows_members_leader_and_rings(make):
    shown = rendered(cluster_tables(make.snapshot(3, make.placement())))
    lines = shown.splitlines()
    assert lines[0] == "Cluster desk: 3 nodes, led by node-1 (term 1)"
    assert "node-1 *" in shown
    assert "100 MB of 5.6 GB" in shown
    ring = [line.split() for line in lines if line.startswith(("0 ", "1 ", "2 "))]
    assert [row[:4] for row in ring] == [
        ["0", "node-1", "0-9", "ready"],
        ["1", "node-2", "10-19", "ready"],
        ["2", "node-3", "20-29", "ready"],
    ]
    assert "127.0.0.1:40001" in shown
    assert "tls 127.0.0.1:40002" in shown


def test_status_names_those_who_are_away(make):
    shown = rendered(cluster_tables(make.snapshot(1, away=("peer-9",), away_members=(Away("peer-9", "attic"),))))
    assert "Away: attic" in shown


def test_a_stage_that_loads_shows_how_far_it_is(make):
    assert "loading 40%" in rendered(cluster_tables(make.snapshot(3, make.placement("loading"))))


def test_a_ring_shows_what_its_stages_are_busy_with(make):
    ring = make.placement()
    busy = [
        Activity(0.93, 20.0, 4.0, 2.0, 0.0012, 0.25, 310.0, 41.0),
        Activity(0.5, 20.0, 4.0, 2.0),
        None,
    ]
    stages = tuple(evolve(stage, activity=activity) for stage, activity in zip(ring.stages, busy, strict=True))
    shown = rendered(cluster_tables(make.snapshot(3, evolve(ring, stages=stages))))
    assert "Busy 93% 50% –; 20 batches/s of 4 tokens from 2 requests; 1.2 ms from stage to stage" in shown
    assert "Last request: waited 0.25 s, read 310 tokens/s, wrote 41 tokens/s" in shown


def test_a_ring_that_has_said_nothing_of_its_work_shows_nothing_of_it(make):
    assert "Busy" not in rendered(cluster_tables(make.snapshot(3, make.placement())))


def test_a_ring_at_rest_shows_how_its_last_request_fared(make):
    ring = make.placement()
    at_rest = Activity(rows=4.0, sequences=2.0, queue_s=0.0, decode_tokens_per_s=41.0)
    shown = rendered(cluster_tables(make.snapshot(3, evolve(ring, stages=(evolve(ring.stages[0], activity=at_rest),)))))
    assert "Busy 0%\n" in shown.replace(" \n", "\n")
    assert "Last request: waited 0 s, wrote 41 tokens/s" in shown


def test_members_show_how_fast_they_compute(make):
    speeds = Speeds(
        25e9, 1.2e12, (LinkSpeed("peer-2", 0.0004, 9e7), LinkSpeed("peer-3", 0.002), LinkSpeed("gone", 1.0))
    )
    members = (make.member(1, speeds=speeds), make.member(2), make.member(3, speeds=Speeds()))
    shown = rendered(cluster_tables(make.snapshot(3, members=members)))
    assert "25 GB/s, 1.2 TFLOP/s" in shown
    assert "Speed" not in rendered(cluster_tables(make.snapshot(3)))


def test_what_failed_says_why(make):
    placement = make.placement("failed", reason="the file x.safetensors is cut short")
    assert "the file x.safetensors is cut short" in rendered(cluster_tables(make.snapshot(3, placement)))


def test_an_empty_cluster_says_how_to_go_on(make):
    assert "p2pexo place MODEL" in rendered(cluster_tables(make.snapshot(1)))


def test_an_open_cluster_without_a_leader_says_so_and_warnings_are_shown(make):
    shown = rendered(cluster_tables(make.snapshot(0, open=True, leader=None, warnings=("another cluster is near",))))
    assert "0 nodes, without a leader; open, anyone can join" in shown
    assert "! another cluster is near" in shown


def test_names_are_not_read_as_markup(make):
    member = make.member(1, name="[red]x[/red]", machine="[link=evil]")
    shown = rendered(cluster_tables(make.snapshot(1, members=(member,))))
    assert "[red]x[/red]" in shown
    assert "[link=evil]" in shown


def test_models_show_where_their_files_are_and_what_is_loaded(make):
    members = (make.member(1, models=("owner/model",)), make.member(2, models=("owner/model",)))
    shown = rendered(
        models_table((Model("owner/model"), Model("a/b")), make.snapshot(2, make.placement(), members=members))
    )
    assert ["owner/model", "ready", "node-1,", "node-2"] in [line.split() for line in shown.splitlines()]


def test_a_model_that_runs_is_not_shown_as_failed_for_an_earlier_try(make):
    snapshot = make.snapshot(1, make.placement(), make.placement("failed", id="p2"))
    assert "ready" in rendered(models_table((Model("owner/model"),), snapshot))


def test_status_as_json_is_one_object(make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr(Client, "cluster", lambda self: make.snapshot(3, make.placement()))
    status.status(json=True)
    assert json.loads(capsys.readouterr().out)["cluster"] == "desk"


@pytest.mark.parametrize("json", [True, False])
def test_a_watch_ends_quietly_with_ctrl_c(
    make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], json: bool
):
    pauses = iter([None, None])

    def pause(seconds: float) -> None:
        if next(pauses, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(Client, "cluster", lambda self: make.snapshot(1))
    monkeypatch.setattr(Client, "requests", lambda self: ())
    monkeypatch.setattr(status.time, "sleep", pause)
    status.status(watch=True, json=json)
    assert capsys.readouterr().out.count("desk") == 3

import io

from rich.console import Console

from p2pexo.cli.display import LiveDisplay, PlainDisplay, open_display
from p2pexo.cli.news import member_news, stage_news


def test_the_first_picture_is_all_news(make):
    assert list(member_news(None, make.snapshot(2))) == [
        "node-1 is here (Linux x86_64, 2 cores, 5.6 GB for models)",
        "node-2 is here (Linux x86_64, 2 cores, 5.6 GB for models)",
        "node-1 leads (term 1)",
    ]


def test_nothing_new_is_no_news(make):
    assert list(member_news(make.snapshot(2), make.snapshot(2))) == []
    assert list(stage_news(make.placement(), make.placement())) == []


def test_leaving_falling_silent_and_a_new_leader_are_news(make):
    after = make.snapshot(2, members=(make.member(2, state="suspect"),), leader="peer-2", term=2)
    assert list(member_news(make.snapshot(2), after)) == [
        "node-2 is suspect",
        "node-1 is gone",
        "node-2 leads (term 2)",
    ]


def test_a_member_is_news_once_it_has_told_what_it_is(make):
    stranger = make.snapshot(1, members=(make.member(1, machine=""),))
    assert list(member_news(None, stranger)) == []
    assert list(member_news(stranger, make.snapshot(1))) == [
        "node-1 is here (Linux x86_64, 2 cores, 5.6 GB for models)",
        "node-1 leads (term 1)",
    ]


def test_stages_tell_their_phases_layers_and_memory(make):
    assert list(stage_news(None, make.placement("ready", stages=1))) == [
        "stage 0 on node-1, layers 0-9: ready, 40.0 MB of weights, process 160 MB"
    ]
    (line,) = stage_news(make.placement("loading", stages=1), make.placement("failed", stages=1))
    assert line.startswith("stage 0 on node-1, layers 0-9: failed")


def show_all(display, make) -> None:
    with display:
        display.doing("starting 3 nodes")
        display.show(make.snapshot(1))
        display.show(make.snapshot(3, make.placement("loading")), "p1")
        display.show(make.snapshot(3, make.placement("loading")), "p1")
        display.show(make.snapshot(3, make.placement()), "p1")


def test_without_a_terminal_the_display_is_plain_lines_one_per_change(make):
    shown = io.StringIO()
    console = Console(file=shown, width=40)
    display = open_display(console)
    assert isinstance(display, PlainDisplay)
    show_all(display, make)
    assert "\x1b" not in shown.getvalue()
    lines = shown.getvalue().splitlines()
    assert len(lines) == len(set(lines)) == 11
    assert lines[0] == "starting 3 nodes"
    assert lines[-1] == "stage 2 on node-3, layers 20-29: ready, 40.0 MB of weights, process 160 MB"


def test_on_a_terminal_there_is_one_bar_per_stage(make):
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True)
    display = open_display(console)
    assert isinstance(display, LiveDisplay)
    show_all(display, make)
    last = shown.getvalue().split("stage 0 on node-1")[-1]
    assert "stage 1 on node-2, layers 10-19" in last
    assert "stage 2 on node-3, layers 20-29" in last
    assert "starting 3 nodes" not in last


def test_a_bar_goes_when_its_stage_moves_elsewhere(make):
    shown = io.StringIO()
    console = Console(file=shown, width=120, force_terminal=True)
    with LiveDisplay(console) as display:
        display.show(make.snapshot(3, make.placement("loading", stages=3)), "p1")
        display.show(make.snapshot(2, make.placement("loading", stages=2)), "p1")
    assert "stage 2 on node-3" not in shown.getvalue().split("stage 0 on node-1")[-1]

"""The commands about members and newcomers, against a node that is a function."""

import json
import sys
from collections.abc import Callable

import httpx
import pytest
from attrs import define, evolve, field

from p2pexo.cli import approve, client, members
from p2pexo.cli.errors import CommandError
from p2pexo.cli.tables import cluster_tables, open_console
from p2pexo.client import Asking, Away, Newcomer
from p2pexo.generation.codec import encode

ANNA = Newcomer("12D3KooWanna00000001", "anna", "Apple M3, 16 GB", "042 917", "192.168.1.7", "node-1")
BEN = Newcomer("12D3KooWben000000002", "ben", "Apple M4", "555 555", "192.168.1.8", "node-1")


@define
class Desk:
    snapshot: object
    seen: list[tuple[str, str, object]] = field(factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=encode(self.snapshot))
        body = json.loads(request.content) if request.content else None
        self.seen.append((request.method, request.url.path, body))
        return httpx.Response(200, json={"behind": ["peer-2"]})


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch, make) -> Desk:
    """A node with two members, two newcomers, and one that is away."""
    desk = Desk(make.snapshot(2, newcomers=(ANNA, BEN), away=("12D3KooWlost00000003",)))
    connect = client.connect
    for module in (approve, members):
        monkeypatch.setattr(module, "connect", lambda target: connect(target, httpx.MockTransport(desk)))
    return desk


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Somebody sits at the terminal, and says this to every question."""

    def sit(says: str) -> list[str]:
        asked: list[str] = []

        def say(question: str) -> str:
            asked.append(question)
            return says

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr("builtins.input", say)
        return asked

    return sit


@pytest.fixture(autouse=True)
def nobody_at_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False)


@pytest.mark.parametrize("name", ["anna", ANNA.peer, ANNA.peer[-8:]])
def test_a_newcomer_is_let_in_by_the_code_that_it_shows(desk: Desk, name: str) -> None:
    approve.approve(name, code="042917")
    assert desk.seen == [("POST", f"/v1/newcomers/{ANNA.peer}/approve", {"code": "042917"})]


def test_a_person_is_shown_the_code_and_asked(desk: Desk, answer, capsys: pytest.CaptureFixture[str]) -> None:
    asked = answer("y")
    approve.approve("anna")
    assert desk.seen == [("POST", f"/v1/newcomers/{ANNA.peer}/approve", {"code": "042 917"})]
    (question,) = asked
    assert "042 917" in question
    assert "Apple M3, 16 GB" in question
    assert "anna is let in" in capsys.readouterr().out


def test_whose_name_looks_like_a_members_is_pointed_out(
    desk: Desk, make, answer, capsys: pytest.CaptureFixture[str]
) -> None:
    desk.snapshot = make.snapshot(2, newcomers=(evolve(ANNA, looks_like="Anna"), BEN))
    asked = answer("y")
    approve.approve("anna")
    approve.approve("ben")
    assert ["another machine than the member Anna" in question for question in asked] == [True, False]
    members.members()
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("careful: it is another machine than the member Anna, whose name looks the same") == 1


def test_without_a_yes_nobody_is_let_in(desk: Desk, answer) -> None:
    answer("")
    with pytest.raises(CommandError, match="anna was not let in"):
        approve.approve("anna")
    assert desk.seen == []


def test_where_nobody_sits_a_code_or_a_plain_yes_is_needed(desk: Desk) -> None:
    with pytest.raises(CommandError, match="p2pexo approve anna --code CODE"):
        approve.approve("anna")
    assert desk.seen == []
    approve.approve("anna", yes=True)
    assert len(desk.seen) == 1


def test_a_newcomer_is_turned_away(desk: Desk) -> None:
    approve.deny("ben")
    assert desk.seen == [("POST", f"/v1/newcomers/{BEN.peer}/deny", None)]


def test_a_name_that_nobody_or_more_than_one_has_is_refused(desk: Desk, make) -> None:
    with pytest.raises(CommandError, match=r"nobody called cleo waits .* anna \(00000001\), ben"):
        approve.deny("cleo")
    desk.snapshot = make.snapshot(1, newcomers=(ANNA, Newcomer("12D3KooWother00000004", "anna")))
    with pytest.raises(CommandError, match="2 machines are called anna; say which by its id: 00000001, 00000004"):
        approve.deny("anna")


@pytest.mark.parametrize(("name", "peer"), [("node-2", "peer-2"), ("00000003", "12D3KooWlost00000003")])
def test_a_member_is_removed_also_one_that_is_away(
    desk: Desk, name: str, peer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    members.remove(name, yes=True)
    assert desk.seen == [("DELETE", f"/v1/members/{peer}", None)]
    assert "node-2 has not heard of it yet" in capsys.readouterr().out


def test_one_that_is_away_goes_by_the_name_it_had(desk: Desk, make, capsys: pytest.CaptureFixture[str]) -> None:
    lost = Away("12D3KooWlost00000003", "attic", "Apple M1, 8 GB")
    desk.snapshot = make.snapshot(1, away=(lost.peer,), away_members=(lost,))
    members.members()
    shown = capsys.readouterr().out
    assert "attic" in shown
    assert "Apple M1" in shown
    members.remove("attic", yes=True)
    assert desk.seen == [("DELETE", f"/v1/members/{lost.peer}", None)]


def test_nobody_is_removed_without_a_yes(desk: Desk, answer) -> None:
    with pytest.raises(CommandError, match="p2pexo remove node-2 --yes"):
        members.remove("node-2")
    answer("n")
    with pytest.raises(CommandError, match="was not removed"):
        members.remove("node-2")
    assert desk.seen == []


def test_members_are_listed_with_those_away_and_those_who_wait(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    members.members()
    shown = capsys.readouterr().out
    for word in ("node-1", "leader", "peer-2", "away", "12D3KooWlost00000003", "asks to join at node-1", "042 917"):
        assert word in shown


def test_the_status_shows_where_this_node_waits(make, capsys: pytest.CaptureFixture[str]) -> None:
    open_console().print(cluster_tables(make.snapshot(1, asking=Asking("attic", "123 456"))))
    assert "waits to be let into attic; code 123 456" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("address", "announced", "shown"),
    [
        (
            "/ip4/10.0.0.7/tcp/51044",
            ("/ip4/192.168.1.7/tcp/52416", "/ip4/10.0.0.7/tcp/52416"),
            "/ip4/10.0.0.7/tcp/52416",
        ),
        ("/ip4/10.0.0.77/tcp/51044", ("/ip4/10.0.0.7/tcp/52416",), "/ip4/10.0.0.7/tcp/52416"),
        ("", ("/ip4/10.0.0.7/tcp/52416", "/ip4/10.0.0.8/tcp/52416"), "/ip4/10.0.0.7/tcp/52416"),
        ("/ip4/10.0.0.7/tcp/51044", (), "/ip4/10.0.0.7"),
        ("", (), ""),
    ],
)
def test_a_member_is_shown_where_it_listens_not_where_it_dialled_from(
    make, address: str, announced: tuple[str, ...], shown: str
) -> None:
    member = evolve(make.member(1), address=address, addresses=announced)
    assert members.listens_at(member) == shown

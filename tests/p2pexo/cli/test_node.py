import sys
import types

import pytest
from attrs import evolve

from networking.identity import HomeInUseError
from networking.ticket import Cluster, Ticket
from networking.transport import TransportError
from p2pexo.cli.errors import CommandError
from p2pexo.cli.main import run
from p2pexo.cli.node import known_problem
from p2pexo.cli.ticket import make_ticket
from p2pexo.node.settings import NodeSettings

PEER = "12D3KooWDpJ7As7BWAwRMfu1VU2WCqNjvq387JEYKDBj4kx6nXTN"


@pytest.fixture
def run_node(monkeypatch: pytest.MonkeyPatch):
    """Replace the node by a function."""

    def replace(function) -> None:
        module = types.ModuleType("p2pexo.node.run")
        module.__dict__["run_node"] = function
        monkeypatch.setitem(sys.modules, "p2pexo.node.run", module)

    return replace


@pytest.mark.parametrize("code", [0, 3])
def test_the_node_gets_its_settings_and_gives_the_exit_code(run_node, code: int):
    seen: list[NodeSettings] = []

    def node(settings: NodeSettings) -> int:
        seen.append(settings)
        return code

    run_node(node)
    assert run(["node", "--name", "studio"]) == code
    assert seen[0].name == "studio"


def test_a_known_problem_is_one_line(run_node, capsys: pytest.CaptureFixture[str]):
    def node(settings: NodeSettings) -> int:
        raise ExceptionGroup("nursery", [HomeInUseError("another process runs on /home/x")])

    run_node(node)
    assert run(["node"]) == 1
    assert capsys.readouterr().err == "p2pexo: another process runs on /home/x\n"


def test_a_bug_keeps_its_traceback(run_node):
    def node(settings: NodeSettings) -> int:
        raise KeyError("a bug")

    run_node(node)
    with pytest.raises(KeyError):
        run(["node"])


def test_a_group_is_known_only_if_all_of_it_is():
    known = TransportError("port 1 is taken")
    assert known_problem(ExceptionGroup("", [known, ExceptionGroup("", [known])])) == "port 1 is taken"
    assert known_problem(ExceptionGroup("", [known, KeyError("a bug")])) is None


def test_a_ticket_names_the_cluster_and_the_addresses_others_can_dial(make):
    cluster = Cluster.new("desk")
    me = make.member(1, peer=PEER, is_me=True, addresses=("/ip4/127.0.0.1/tcp/1", "/ip4/10.0.0.1/tcp/1"))
    ticket = Ticket.parse(str(make_ticket(cluster, make.snapshot(2, members=(make.member(2), me)))))
    assert (ticket.cluster, ticket.peer, ticket.addresses) == (cluster, PEER, ("/ip4/10.0.0.1/tcp/1",))


def test_the_ticket_of_a_node_that_runs_open_holds_no_secret(make):
    me = make.member(1, peer=PEER, is_me=True, addresses=("/ip4/10.0.0.1/tcp/1",))
    snapshot = evolve(make.snapshot(1, members=(me,)), open=True)
    assert make_ticket(Cluster.new("home"), snapshot).cluster == Cluster("desk")


def test_no_ticket_is_made_for_another_cluster_or_a_node_that_nobody_reaches(make):
    me = make.member(1, peer=PEER, is_me=True)
    with pytest.raises(CommandError, match="the home is of cluster 'home', but the node that answers is in 'desk'"):
        make_ticket(Cluster.new("home"), make.snapshot(1, members=(me,)))
    with pytest.raises(CommandError, match=r"node-1 listens on loopback only.* same --cluster and --secret"):
        make_ticket(Cluster.new("desk"), make.snapshot(1, members=(me,)))

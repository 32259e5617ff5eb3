"""Which node is asked next. Pure."""

import httpx
import pytest

from p2pexo.client import BrokenStreamError, ClusterState, Member, UnreachableError
from p2pexo.client.attempts import Attempts
from p2pexo.client.chat_stream import ChatReader
from p2pexo.client.follow import WatchReader
from p2pexo.client.nodes import Nodes
from p2pexo.client.operations import Call

A, B, C = "http://a:52415", "http://b:52415", "http://c:52415"
REFUSED = httpx.ConnectError("refused")
CUT = httpx.RemoteProtocolError("incomplete chunked read")


def state(*urls: str) -> ClusterState:
    return ClusterState(members=tuple(Member(url, api_url=url) for url in urls))


def begun() -> ChatReader:
    reader = ChatReader()
    reader.has_begun = True
    return reader


def test_the_node_that_answered_last_is_asked_first() -> None:
    nodes = Nodes([A, B, C])
    nodes.worked(C)
    assert nodes.urls == (C, A, B)
    nodes.failed(C)
    assert nodes.urls == (A, B, C)


def test_members_are_learnt_once() -> None:
    nodes = Nodes([A])
    nodes.learn(state(A, B + "/", ""), told_by=A)
    nodes.learn(state(B), told_by=A)
    assert nodes.urls == (A, B)


def test_loopback_of_another_machine_is_not_learnt() -> None:
    local = "http://127.0.0.1:1"
    far, near = Nodes([A]), Nodes(["http://localhost:2"])
    far.learn(state(local), told_by=A)
    near.learn(state(local), told_by="http://localhost:2")
    assert far.urls == (A,)
    assert near.urls == ("http://localhost:2", local)


@pytest.mark.parametrize("url", ["", "localhost", "localhost:52415", "ftp://a"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is not a URL"):
        Nodes([url])


def test_the_base_address_of_openai_clients_is_forgiven() -> None:
    assert Nodes(["http://a:1/v1/", "http://a:1"]).urls == ("http://a:1",)


def test_each_node_is_asked_once() -> None:
    attempts = Attempts(Nodes([A, B]), Call("POST", "/"))
    for url in (A, B):
        assert attempts.url() == url
        attempts.failed(url, REFUSED)
    with pytest.raises(UnreachableError, match=r"http://a:52415.*refused.*http://b:52415"):
        attempts.url()


def test_what_may_have_been_done_is_not_done_again() -> None:
    attempts = Attempts(Nodes([A, B]), Call("DELETE", "/", repeatable=False))
    attempts.failed(A, REFUSED)
    with pytest.raises(BrokenStreamError, match="not known"):
        attempts.failed(B, httpx.ReadTimeout("silence"))


@pytest.mark.parametrize("error", [CUT, None])
def test_an_answer_that_has_begun_is_not_asked_for_again(error: httpx.TransportError | None) -> None:
    attempts = Attempts(Nodes([A, B]), Call("POST", "/"))
    attempts.broken(A, ChatReader(), error, progressed=False)
    assert attempts.url() == B
    with pytest.raises(BrokenStreamError, match="broke off"):
        attempts.broken(B, begun(), error, progressed=True)


def test_a_watch_goes_round_as_long_as_somebody_has_something_to_tell() -> None:
    attempts = Attempts(Nodes([A, B]), Call("GET", "/"))
    for url in (A, B, A, B):
        assert attempts.url() == url
        attempts.broken(url, WatchReader(), CUT, progressed=True)
    attempts.failed(A, REFUSED)
    with pytest.raises(UnreachableError):
        attempts.url()

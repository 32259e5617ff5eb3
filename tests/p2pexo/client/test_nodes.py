"""Which node is asked next. Pure."""

import httpx
import pytest

from p2pexo.client import BrokenStreamError, ClusterState, Member, UnexpectedAnswerError, UnreachableError
from p2pexo.client.attempts import Attempts
from p2pexo.client.chat_stream import ChatReader
from p2pexo.client.follow import WatchReader
from p2pexo.client.nodes import Nodes

A, B, C = "http://a:52415", "http://b:52415", "http://c:52415"
REFUSED = httpx.ConnectError("refused")
CUT = httpx.RemoteProtocolError("incomplete chunked read")


def state(*urls: str) -> ClusterState:
    return ClusterState(members=tuple(Member(url, api_url=url) for url in urls))


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


def failing(attempts: Attempts, error: Exception, *, told: bool = False) -> str:
    """One attempt that ends with the error; which node it was made at."""
    with attempts.next() as url:
        if told:
            list(attempts.events(WatchReader(), "data: {}"))
        raise error
    return url


def test_each_node_is_asked_once() -> None:
    attempts = Attempts(Nodes([A, B]), lambda: True)
    assert [failing(attempts, REFUSED), failing(attempts, CUT)] == [A, B]
    with pytest.raises(UnreachableError) as caught, attempts.next():
        pass
    assert str(caught.value) == (
        "nothing answers at http://a:52415; is `p2pexo node` running?; "
        "the connection to http://b:52415 broke: incomplete chunked read"
    )


def test_what_may_have_been_done_is_not_done_again() -> None:
    attempts = Attempts(Nodes([A, B]), lambda: False)
    assert failing(attempts, REFUSED) == A
    with pytest.raises(BrokenStreamError, match="http://b:52415 has been silent for 60 s"):
        failing(attempts, httpx.ReadTimeout("silence"))


def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    reader = ChatReader()
    attempts = Attempts(Nodes([A, B]), lambda: reader.may_start_over)
    assert failing(attempts, CUT) == A
    reader.has_begun = True
    with pytest.raises(BrokenStreamError, match="broke off: the connection to http://b:52415 broke"):
        failing(attempts, CUT)


def test_a_stream_that_ends_in_good_order_but_too_early_has_failed() -> None:
    attempts = Attempts(Nodes([A, B]), lambda: True)
    with attempts.next():
        attempts.end(ChatReader())
    with attempts.next() as url:
        assert url == B


def test_a_watch_goes_round_as_long_as_somebody_has_something_to_tell() -> None:
    attempts = Attempts(Nodes([A, B]), lambda: True)
    assert [failing(attempts, CUT, told=True) for _ in range(4)] == [A, B, A, B]
    assert failing(attempts, REFUSED) == A
    with pytest.raises(UnreachableError):
        failing(attempts, REFUSED)


def test_somebody_else_at_the_address_is_named() -> None:
    with pytest.raises(UnexpectedAnswerError, match=r"http://a:52415 answers, but not as p2pexo does \(a page\)"):
        failing(Attempts(Nodes([A]), lambda: True), UnexpectedAnswerError("a page"))

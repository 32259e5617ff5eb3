"""Letting in, turning away and removing over HTTP, with a gate that only remembers."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from attrs import define, field

from networking.charter import NotMemberError
from networking.pairing_desk import NotWaitingError, WrongCodeError
from p2pexo.api.app import create_app
from p2pexo.generation.errors import InvalidRequestError, UnavailableError


@define
class Gate:
    asked: list[tuple[str, ...]] = field(factory=list)
    failure: Exception | None = None

    async def approve(self, peer: str, code: str | None = None) -> None:
        self._ask("approve", peer, code or "")

    async def deny(self, peer: str) -> None:
        self._ask("deny", peer)

    async def remove(self, peer: str) -> tuple[str, ...]:
        self._ask("remove", peer)
        return ("peer-ben",)

    def _ask(self, *what: str) -> None:
        if self.failure is not None:
            raise self.failure
        self.asked.append(what)


@define
class Answer:
    status_code: int
    body: Any

    def json(self) -> Any:
        return self.body


@pytest.fixture
def gate() -> Gate:
    return Gate()


@define
class Http:
    gate: Gate

    def post(self, path: str, json: object = None) -> Answer:
        return self.open("POST", path, json)

    def delete(self, path: str) -> Answer:
        return self.open("DELETE", path, None)

    def open(self, method: str, path: str, body: object) -> Answer:
        async def main() -> Answer:
            app = create_app(cast(Any, None), cast(Any, SimpleNamespace(snapshot=None)), gate=self.gate)
            more: dict[str, Any] = {"scope_base": {"server": ("127.0.0.1", 52415)}}
            more |= {} if body is None else {"json": body}
            response = await app.test_client().open(path, method=method, **more)
            return Answer(response.status_code, await response.get_json())

        return trio.run(main)


@pytest.fixture
def http(gate: Gate) -> Http:
    return Http(gate)


@pytest.mark.parametrize(
    ("body", "code"), [(None, ""), ({}, ""), ({"code": "042 917"}, "042 917"), ({"code": None}, "")]
)
def test_a_newcomer_is_let_in_with_a_code_or_without(http: Http, gate: Gate, body, code: str) -> None:
    response = http.post("/v1/newcomers/peer-anna/approve", json=body)
    assert response.json() == {"peer": "peer-anna", "approved": True}
    assert gate.asked == [("approve", "peer-anna", code)]


def test_a_newcomer_is_turned_away(http: Http, gate: Gate) -> None:
    assert http.post("/v1/newcomers/peer-anna/deny").json() == {"peer": "peer-anna", "denied": True}
    assert gate.asked == [("deny", "peer-anna")]


def test_a_member_is_removed(http: Http, gate: Gate) -> None:
    response = http.delete("/v1/members/peer-anna")
    assert response.json() == {"peer": "peer-anna", "removed": True, "behind": ["peer-ben"]}
    assert gate.asked == [("remove", "peer-anna")]


@pytest.mark.parametrize(
    ("failure", "status"),
    [
        (NotWaitingError("nobody waits"), 404),
        (WrongCodeError("another code"), 403),
        (UnavailableError("the member is gone"), 503),
    ],
)
def test_what_goes_wrong_is_told(http: Http, gate: Gate, failure: Exception, status: int) -> None:
    gate.failure = failure
    response = http.post("/v1/newcomers/peer-anna/approve")
    assert (response.status_code, response.json()["error"]["message"]) == (status, str(failure))


@pytest.mark.parametrize(
    ("failure", "status"), [(NotMemberError("no member"), 404), (InvalidRequestError("not yourself"), 400)]
)
def test_nobody_is_removed_who_is_not_there(http: Http, gate: Gate, failure: Exception, status: int) -> None:
    gate.failure = failure
    response = http.delete("/v1/members/peer-anna")
    assert (response.status_code, response.json()["error"]["message"]) == (status, str(failure))


@pytest.mark.parametrize("body", [{"code": 42}, {"colour": "blue"}, []])
def test_what_is_no_approval_is_refused_by_name(http: Http, gate: Gate, body: object) -> None:
    assert http.post("/v1/newcomers/peer-anna/approve", json=body).status_code == 400
    assert gate.asked == []

"""Who is let in: Host, Origin, API key. Pure tables, and once over a socket."""

from typing import Any

import httpx
import pytest

from p2pexo.api.errors import RefusedError
from p2pexo.api.guard import AccessRules, Caller, check, cors_headers, is_loopback

RULES = AccessRules(
    own_names=["Studio", "studio.local"], allowed_hosts=["proxy.example"], allowed_origins=["https://chat.example/"]
)


def caller(method: str = "GET", path: str = "/v1/models", local_address: str = "192.168.1.5", **headers: str) -> Caller:
    return Caller(method, path, {name.replace("_", "-"): value for name, value in headers.items()}, local_address)


def status(rules: AccessRules, who: Caller) -> int:
    try:
        check(rules, who)
    except RefusedError as error:
        return error.fault.status
    return 200


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", 200),
        ("localhost:52415", 200),
        ("LOCALHOST.:52415", 200),
        ("app.localhost:1", 200),
        ("127.0.0.1:9", 200),
        ("127.8.9.1", 200),
        ("[::1]:52415", 200),
        ("192.168.1.5:52415", 200),
        ("[::ffff:192.168.1.5]:52415", 200),
        ("studio.local:52415", 200),
        ("STUDIO", 200),
        ("proxy.example", 200),
        ("evil.example:52415", 403),
        ("192.168.1.6", 403),
        ("localhost.evil.example", 403),
        ("evil.example@localhost:x", 403),
        ("[::1", 403),
        (":52415", 403),
    ],
)
def test_only_our_own_hosts_are_served(host: str, expected: int) -> None:
    assert status(RULES, caller(host=host)) == expected


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost:5173", True),
        ("https://127.0.0.1", True),
        ("http://[::1]:3000", True),
        ("http://studio.local:52415", True),
        ("http://192.168.1.5:52415", True),
        ("https://chat.example", True),
        ("http://chat.example", False),
        ("https://evil.example", False),
        ("null", False),
        ("chrome-extension://localhost", False),
        ("http://localhost.evil.example", False),
    ],
)
def test_only_allowed_origins_are_served_and_get_cors_headers(origin: str, allowed: bool) -> None:
    who = caller(host="localhost", origin=origin)
    assert status(RULES, who) == (200 if allowed else 403)
    assert cors_headers(RULES, who).get("access-control-allow-origin") == (origin if allowed else None)


def test_a_star_lets_every_page_in() -> None:
    assert status(AccessRules(allowed_origins=["*"]), caller(host="localhost", origin="https://any.example")) == 200
    assert status(AccessRules(allowed_hosts=["*"]), caller(host="any.example")) == 200


def test_any_host_is_not_any_page() -> None:
    rules = AccessRules(allowed_hosts=["*"])
    assert status(rules, caller(host="any.example", origin="https://any.example")) == 200
    assert status(rules, caller(host="any.example", origin="https://evil.example")) == 403


def test_a_page_under_a_foreign_name_is_refused_by_its_host() -> None:
    assert status(AccessRules(), caller(host="evil.example", origin="http://evil.example")) == 403


def test_a_preflight_allows_every_header_it_asks_for() -> None:
    wanted = "authorization, content-type, x-api-key, anthropic-version, x-stainless-timeout, x-unknown-1"
    who = caller(
        "OPTIONS",
        origin="http://localhost:5173",
        access_control_request_method="POST",
        access_control_request_headers=wanted,
    )
    assert status(AccessRules(api_key="secret"), who) == 200
    headers = cors_headers(RULES, who)
    assert headers["access-control-allow-headers"] == wanted
    assert "DELETE" in headers["access-control-allow-methods"]


def test_callers_without_an_origin_get_no_cors_headers() -> None:
    assert cors_headers(RULES, caller()) == {}


@pytest.mark.parametrize(
    ("headers", "path", "expected"),
    [
        ({"authorization": "Bearer secret"}, "/v1/models", 200),
        ({"authorization": "bearer  secret "}, "/v1/models", 200),
        ({"x_api_key": "secret"}, "/v1/models", 200),
        ({}, "/v1/models", 401),
        ({"authorization": "Bearer wrong"}, "/v1/models", 401),
        ({"authorization": "Basic secret"}, "/v1/models", 401),
        ({"x_api_key": "é"}, "/v1/models", 401),
        ({}, "/", 200),
        ({}, "/assets/app.js", 200),
        ({}, "/health", 200),
    ],
)
def test_the_key_is_asked_for_except_by_the_page_and_health(headers: dict[str, str], path: str, expected: int) -> None:
    assert status(AccessRules(api_key="secret"), caller(path=path, **headers)) == expected


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("192.168.1.5", False), ("x", False)],
)
def test_loopback_is_told_from_the_rest(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected


def test_the_key_does_not_show_in_a_repr() -> None:
    assert "secret" not in repr(AccessRules(api_key="secret"))


def test_over_a_socket_refusals_are_json_and_cors_covers_errors_and_streams(
    start_node: Any, caplog: pytest.LogCaptureFixture
) -> None:
    node = start_node(rules=AccessRules(api_key="secret"))
    page = {"origin": "http://localhost:5173", "authorization": "Bearer secret"}
    chat = f"{node.url}/v1/chat/completions"
    question = {"model": "parrot-135m", "messages": [{"role": "user", "content": "hi"}]}

    foreign = httpx.delete(f"{node.url}/v1/placements/p1", headers={"host": "evil.example"})
    assert (foreign.status_code, foreign.json()["error"]["code"]) == (403, 403)

    keyless = httpx.get(f"{node.url}/v1/models", headers={"origin": page["origin"]})
    assert (keyless.status_code, keyless.json()["error"]["code"]) == (401, "invalid_api_key")
    assert keyless.headers["www-authenticate"] == "Bearer"
    assert keyless.headers["access-control-allow-origin"] == page["origin"]

    asked = {"access-control-request-method": "POST", "access-control-request-headers": "x-unknown-1"}
    preflight = httpx.options(chat, headers={"origin": page["origin"], **asked})
    assert (preflight.status_code, preflight.headers["access-control-allow-headers"]) == (204, "x-unknown-1")

    for body in ({}, question, {**question, "stream": True}):
        answer = httpx.post(chat, json=body, headers=page)
        assert answer.headers["access-control-allow-origin"] == page["origin"]
    assert httpx.get(f"{node.url}/").status_code == 200
    assert not [record for record in caplog.records if record.levelname == "ERROR"]

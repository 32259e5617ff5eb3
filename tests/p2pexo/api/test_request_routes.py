import json
from types import SimpleNamespace
from typing import Any, cast

import trio
from attrs import asdict, fields

from p2pexo.api.app import create_app
from p2pexo.client import EndedRequest
from p2pexo.client.operations import REQUESTS
from p2pexo.serving.records import RequestRecord

RECORD = RequestRecord(
    "req_1-0",
    "owner/model",
    "stop",
    1_700_000_000.5,
    2.5,
    "p1",
    "1.2.abcdef",
    "mac-a",
    1,
    0.5,
    0.1,
    300,
    256,
    41,
    440.0,
)


def body(**options: Any) -> bytes:
    async def main() -> bytes:
        app = create_app(cast(Any, None), cast(Any, SimpleNamespace(snapshot=None)), **options)
        response = await app.test_client().get("/v1/requests", scope_base={"server": ("127.0.0.1", 52415)})
        assert response.status_code == 200
        return await response.get_data(as_text=False)

    return trio.run(main)


def test_the_last_requests_are_told_with_all_that_is_known_of_them() -> None:
    told = json.loads(body(requests=lambda: (RECORD,)))
    assert told == {"requests": [asdict(RECORD)]}
    assert told["requests"][0]["decode_tokens_per_s"] is None


def test_the_client_reads_what_the_node_tells() -> None:
    (read,) = REQUESTS.read(body(requests=lambda: (RECORD,)))
    assert asdict(read) == asdict(RECORD)
    assert [each.name for each in fields(EndedRequest)] == [each.name for each in fields(RequestRecord)]


def test_where_nothing_is_kept_there_are_none() -> None:
    assert json.loads(body()) == {"requests": []}

"""A stored response told once more, as the events of a stream. Pure. Each item comes in one piece."""

from collections.abc import Iterator
from typing import Any, cast

import orjson

from p2pexo.api.responses_output import CallItem, Item, OpenItem, Place, ReasoningItem, TextItem, WireEvent, item_event
from p2pexo.api.responses_wire import DONE
from p2pexo.api.sse import event

_NOT_YET: Item = {
    "status": "in_progress",
    "completed_at": None,
    "incomplete_details": None,
    "output": [],
    "usage": None,
}


def replay(body: bytes, starting_after: int = -1) -> Iterator[bytes]:
    """``body``: the response as it was stored. Events up to the number ``starting_after`` are left out."""
    for number, told in enumerate(_events(orjson.loads(body))):
        if number > starting_after:
            numbered = {"type": told["type"], "sequence_number": number, **told}
            yield event(str(told["type"]), orjson.dumps(numbered))
    yield DONE


def _events(response: dict[str, Any]) -> Iterator[WireEvent]:
    for kind in ("created", "in_progress"):
        yield {"type": f"response.{kind}", "response": response | _NOT_YET}
    for index, item in enumerate(cast(list[Item], response["output"])):
        yield from _retold(item, index)
    yield {"type": f"response.{response['status']}", "response": response}


def _retold(item: dict[str, Any], index: int) -> Iterator[WireEvent]:
    place = Place(item["id"], index)
    grown = _begun(item, place)
    yield item_event("added", index, grown.item("in_progress"))
    yield from grown.opening()
    yield from _grow(grown, item)
    yield from grown.closing()
    yield item_event("done", index, item)


def _begun(item: dict[str, Any], place: Place) -> OpenItem:
    match item["type"]:
        case "reasoning":
            return ReasoningItem(place)
        case "function_call":
            return CallItem(place, item["call_id"], item["name"])
        case _:
            return TextItem(place)


def _grow(grown: OpenItem, item: dict[str, Any]) -> Iterator[WireEvent]:
    match grown:
        case ReasoningItem():
            yield from (grown.add(part["text"]) for part in item["summary"])
        case CallItem():
            yield grown.add(item["arguments"])
        case TextItem():
            yield from (grown.add(part["text"], part["logprobs"]) for part in item["content"])
        case _:
            pass

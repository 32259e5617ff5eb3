"""What a response was asked: its input items in the form in which clients read them back, page by page. Pure."""

from collections.abc import Mapping, Sequence

import orjson
from attrs import frozen

from p2pexo.api.fields import Fields, Range
from p2pexo.api.responses_output import RESPONSE_PREFIX, Item
from p2pexo.generation.errors import InvalidRequestError

PAGE = 20
"""Items of a page, unless ``limit`` says otherwise. Both it and the limit are OpenAI's own."""

_LIMIT = Range(1, 100)
_NUMBERS = ("limit", "starting_after")


def input_items(body: Fields, referable: Mapping[str, Fields], response_id: str) -> list[Item]:
    """The items of ``input``, each with an id; the messages among them with their content as a list of parts."""
    name = response_id.removeprefix(RESPONSE_PREFIX)
    value = body.get("input")
    given = (Fields({"role": "user", "content": value}),) if isinstance(value, str) else body.children("input")
    return [_item(referable.get(str(each.get("id")), each), f"{name}_in{place}") for place, each in enumerate(given)]


def _item(given: Fields, name: str) -> Item:
    kind = given.text("type", "message")
    item: Item = {"id": f"{_SHORT.get(kind, 'msg')}_{name}", "type": kind, "status": "completed"} | dict(given.values)
    if kind == "message" and isinstance(content := given.get("content"), str):
        item["content"] = [_part(content, is_said=given.get("role") == "assistant")]
    return item


_SHORT = {"function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def _part(text: str, *, is_said: bool) -> Item:
    return {"type": "output_text", "text": text, "annotations": []} if is_said else {"type": "input_text", "text": text}


@frozen
class PageQuery:
    newest_first: bool = True
    limit: int = PAGE
    after: str | None = None


@frozen
class ShowQuery:
    stream: bool = False
    starting_after: int = -1
    """The number of the last event that the client has."""


def read_show_query(query: Mapping[str, str]) -> ShowQuery:
    """The query of one response. Raises InvalidRequestError naming the parameter."""
    fields = _read_query(query, ("include", "include_obfuscation", "starting_after", "stream"))
    stream = fields.choice("stream", "false", ("true", "false")) == "true"
    starting_after = fields.integer("starting_after", -1, Range(0, 2**31 - 1))
    if starting_after >= 0 and not stream:
        raise fields.wrong("starting_after", "nothing without stream=true")
    return ShowQuery(stream, starting_after)


def read_page_query(query: Mapping[str, str]) -> PageQuery:
    """The query of a list of items. Raises InvalidRequestError naming the parameter."""
    fields = _read_query(query, ("after", "include", "limit", "order"))
    order = fields.choice("order", "desc", ("asc", "desc"))
    return PageQuery(order == "desc", fields.integer("limit", PAGE, _LIMIT), fields.text("after", None))


def _read_query(query: Mapping[str, str], known: Sequence[str]) -> Fields:
    """``include`` asks for what is there anyway, or nowhere."""
    for name in query:
        if name.removesuffix("[]") not in known:
            raise InvalidRequestError(f"{name}: no such parameter; known are {', '.join(known)}", param=name)
    numbers = {name: int(text) for name, text in query.items() if name in _NUMBERS and text.isdecimal()}
    return Fields(dict(query) | numbers)


def page(items: Sequence[Item], query: PageQuery) -> bytes:
    """One page, as JSON. Raises InvalidRequestError if ``after`` is none of the items."""
    ordered = list(reversed(items)) if query.newest_first else list(items)
    ids = [str(item["id"]) for item in ordered]
    if query.after is not None and query.after not in ids:
        raise InvalidRequestError(f"after: the response has no input item {query.after!r}", param="after")
    start = 0 if query.after is None else ids.index(query.after) + 1
    shown = ordered[start : start + query.limit]
    return orjson.dumps(
        {
            "object": "list",
            "data": shown,
            "first_id": shown[0]["id"] if shown else None,
            "last_id": shown[-1]["id"] if shown else None,
            "has_more": start + len(shown) < len(ordered),
        }
    )

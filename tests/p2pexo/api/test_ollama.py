"""Bodies of Ollama's chat and generate: what they mean, and what is wrong with them. Pure."""

from typing import Any

import pytest

from p2pexo.api.fields import Fields
from p2pexo.api.ollama import OllamaCall, Purpose, read_chat, read_generate
from p2pexo.api.ollama_options import IGNORED, TEMPERATURE, TOP_K, TOP_P, read_keep_alive
from p2pexo.generation.errors import InvalidRequestError, ModelNotFoundError, UnsupportedParameterError
from p2pexo.generation.request import FormatKind, Message, OutputFormat, Request, Role, Sampling, Thinking, Tool
from p2pexo.models.card import Card

CARD = Card("owner/Model", "1", "llama", 1, 1, 8192, 1, 1, 1, 1)
HI = {"role": "user", "content": "hi"}
READERS = {"messages": read_chat, "prompt": read_generate}


def resolve(name: str) -> Card:
    if name != "model":
        raise ModelNotFoundError(f"no model {name!r}", param="model")
    return CARD


def chat_call(**fields: Any) -> OllamaCall:
    return read_chat(Fields({"model": "model", "messages": [HI], **fields}), resolve, "id")


def generate_call(**fields: Any) -> OllamaCall:
    return read_generate(Fields({"model": "model", "prompt": "hi", **fields}), resolve, "id")


def chat(**fields: Any) -> Request:
    return chat_call(**fields).request


def generate(**fields: Any) -> Request:
    return generate_call(**fields).request


def test_defaults_are_those_of_ollama() -> None:
    call = chat_call()
    assert (call.stream, call.purpose) == (True, Purpose.ANSWER)
    assert call.request.sampling == Sampling(temperature=TEMPERATURE, top_p=TOP_P, top_k=TOP_K)
    assert (call.request.max_tokens, call.request.stop, call.request.thinking) == (None, (), None)
    assert generate() == chat()


def test_null_is_the_same_as_absent() -> None:
    names = ("tools", "format", "options", "stream", "keep_alive", "think", "logprobs", "top_logprobs", "images", "new")
    assert chat_call(**dict.fromkeys(names)) == chat_call()
    names = ("system", "raw", "suffix", "template", "context", "images", "format", "options", "stream", "new")
    assert generate_call(**dict.fromkeys(names)) == generate_call()


def test_options_are_taken_over() -> None:
    options = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "frequency_penalty": 1,
        "presence_penalty": -1,
        "repeat_penalty": 1.1,
        "seed": 3,
        "num_predict": 5,
        "stop": "###",
        "num_ctx": 8192,
    }
    request = chat(options=options)
    assert request.sampling == Sampling(0.0, 0.5, 7, 0.1, 1.0, -1.0, 1.1, seed=3)
    assert (request.max_tokens, request.stop) == (5, ("###",))
    assert generate(options=options) == request


@pytest.mark.parametrize(("limit", "expected"), [(-1, None), (-2, None), (1, 1), (None, None)])
def test_num_predict(limit: Any, expected: int | None) -> None:
    assert chat(options={"num_predict": limit}).max_tokens == expected


@pytest.mark.parametrize(
    "options", [*({name: 1} for name in sorted(IGNORED)), {"mirostat": 0}, {"tfs_z": 1}, {"typical_p": 1.0}]
)
def test_options_that_change_nothing_are_ignored(options: dict[str, Any]) -> None:
    assert chat(options=options) == chat()


@pytest.mark.parametrize("options", [{"mirostat": 2}, {"tfs_z": 0.5}, {"typical_p": 0.7}, {"wizardry": True}])
@pytest.mark.parametrize("reader", sorted(READERS))
def test_options_that_are_not_offered_are_refused_by_name(reader: str, options: dict[str, Any]) -> None:
    body = Fields({"model": "model", "messages": [HI]} if reader == "messages" else {"model": "model", "prompt": "hi"})
    with pytest.raises(UnsupportedParameterError) as refusal:
        READERS[reader](Fields({**body.values, "options": options}), resolve, "id")
    assert refusal.value.param == f"options.{next(iter(options))}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", OutputFormat()),
        ("json", OutputFormat(FormatKind.JSON_OBJECT)),
        ({"type": "object"}, OutputFormat(FormatKind.JSON_SCHEMA, '{"type":"object"}')),
    ],
)
def test_the_output_format(value: Any, expected: OutputFormat) -> None:
    assert chat(format=value).output_format == generate(format=value).output_format == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(True, Thinking.MEDIUM), (False, Thinking.OFF), ("low", Thinking.LOW), (None, None)]
)
def test_thinking(value: Any, expected: Thinking | None) -> None:
    assert chat(think=value).thinking is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [({"logprobs": True}, 0), ({"logprobs": True, "top_logprobs": 2}, 2), ({"top_logprobs": 0}, None), ({}, None)],
)
def test_log_probabilities(fields: dict[str, Any], expected: int | None) -> None:
    assert chat(**fields).top_logprobs == expected


def test_tools() -> None:
    tool = {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}
    assert chat(tools=[tool]).tools == (Tool("add", "Adds.", '{"type":"object"}'),)


def test_a_prompt_and_its_system_prompt() -> None:
    assert generate(system="S").messages == (Message(Role.SYSTEM, "S"), Message(Role.USER, "hi"))


def test_a_raw_prompt_has_no_messages() -> None:
    request = generate(raw=True)
    assert (request.messages, request.raw_prompt) == ((), "hi")


@pytest.mark.parametrize(
    ("keep_alive", "purpose"),
    [
        (None, Purpose.LOAD),
        (300, Purpose.LOAD),
        ("5m", Purpose.LOAD),
        (-1, Purpose.LOAD),
        (0, Purpose.UNLOAD),
        ("0m", Purpose.UNLOAD),
        ("0", Purpose.UNLOAD),
        ("0s", Purpose.UNLOAD),
    ],
)
def test_nothing_asked_is_to_load_or_unload(keep_alive: Any, purpose: Purpose) -> None:
    for call in (
        chat_call(messages=[], keep_alive=keep_alive),
        chat_call(messages=None, keep_alive=keep_alive),
        generate_call(prompt="", keep_alive=keep_alive),
        generate_call(prompt=None, raw=True, keep_alive=keep_alive),
    ):
        assert call.purpose is purpose
        assert (call.request.model, call.request.max_tokens) == ("owner/Model", 0)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (0, 0),
        (300, 300),
        (1.5, 1.5),
        (-1, -1),
        ("5m", 300),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        ("250ms", 0.25),
        ("-1m", -60),
        ("-1", -1),
        ("20", 20),
        (None, None),
    ],
)
def test_keep_alive(value: Any, seconds: float | None) -> None:
    assert read_keep_alive(Fields({"keep_alive": value})) == seconds


def test_the_request_carries_how_long_its_model_shall_stay() -> None:
    assert chat_call(keep_alive="5m").request.keep_alive_s == 300
    assert generate_call(prompt="", keep_alive=-1).request.keep_alive_s == -1
    assert chat_call().request.keep_alive_s is None


@pytest.mark.parametrize("value", ["bad", "", "m", "5 m", "5x", True, [], {}])
def test_a_bad_keep_alive_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequestError, match="keep_alive") as refusal:
        chat(keep_alive=value)
    assert refusal.value.param == "keep_alive"


BAD_IN_BOTH: list[tuple[dict[str, Any], str]] = [
    ({"stream": "yes"}, "stream"),
    ({"format": "yaml"}, "format"),
    ({"format": 5}, "format"),
    ({"think": "deeply"}, "think"),
    ({"think": "off"}, "think"),
    ({"options": []}, "options"),
    ({"options": {"temperature": -0.5}}, "options.temperature"),
    ({"options": {"temperature": "hot"}}, "options.temperature"),
    ({"options": {"top_p": 0}}, "options.top_p"),
    ({"options": {"top_k": 1.5}}, "options.top_k"),
    ({"options": {"num_predict": 0}}, "options.num_predict"),
    ({"options": {"num_predict": -3}}, "options.num_predict"),
    ({"options": {"num_predict": "5"}}, "options.num_predict"),
    ({"options": {"num_ctx": 8193}}, "options.num_ctx"),
    ({"options": {"stop": 5}}, "options.stop"),
    ({"options": {"stop": [""]}}, "options.stop"),
    ({"images": ["iVBORw0KGgo="]}, "images"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(("fields", "param"), BAD_IN_BOTH, ids=repr)
@pytest.mark.parametrize("call", [chat_call, generate_call])
def test_a_bad_value_is_refused_by_name(call: Any, fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        call(**fields)
    assert refusal.value.param == param
    assert not isinstance(refusal.value, UnsupportedParameterError)


def test_a_bad_value_of_one_route_alone() -> None:
    for refused, param in (
        (lambda: generate(prompt=5), "prompt"),
        (lambda: generate(system=5), "system"),
        (lambda: generate(raw=True, system="S"), "system"),
        (lambda: chat(messages="hi"), "messages"),
        (lambda: chat(tools=[{"type": "function"}]), "tools[0].function"),
        (lambda: chat(tools=[{"type": "web"}]), "tools[0].type"),
    ):
        with pytest.raises(InvalidRequestError) as refusal:
            refused()
        assert refusal.value.param == param


@pytest.mark.parametrize(
    ("call", "fields"),
    [
        (generate_call, {"suffix": "}"}),
        (generate_call, {"template": "{{ .Prompt }}"}),
        (generate_call, {"context": [1, 2]}),
        (generate_call, {"messages": [HI]}),
        (chat_call, {"prompt": "hi"}),
        (chat_call, {"tool_choice": "required"}),
    ],
)
def test_what_is_not_offered_is_refused_by_name(call: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedParameterError) as refusal:
        call(**fields)
    assert refusal.value.param == next(iter(fields))


@pytest.mark.parametrize(
    "fields", [{"suffix": ""}, {"template": ""}, {"context": []}, {"images": []}, {"truncate": True}]
)
def test_what_is_empty_asks_for_nothing(fields: dict[str, Any]) -> None:
    assert generate_call(**fields) == generate_call()


@pytest.mark.parametrize("name", ["other", "", None])
def test_an_unknown_model_is_not_found(name: Any) -> None:
    for call in (chat_call, generate_call):
        with pytest.raises(ModelNotFoundError):
            call(model=name)
    with pytest.raises(ModelNotFoundError):
        chat_call(model=name, messages=[])

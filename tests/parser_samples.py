"""Answers in the format of each family, and what they mean."""

import json

from attrs import evolve, frozen
from parser_writers import LATE, OSLO, PARIS, WRITERS, Call, as_object, hermes, kimi, llama, old_deepseek, weather

from p2pexo.engine.parsers.chat_format import ChatFormat
from p2pexo.engine.parsers.families import FAMILIES, GENERIC, find_think
from p2pexo.engine.parsers.parser import OutputParser
from p2pexo.generation.request import Message, Request, Role, Tool

WEATHER = Tool(
    "get_weather",
    "The weather of a place",
    json.dumps(
        {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "tags": {"type": "array", "items": {"type": "string"}},
                "code": {"type": ["string", "null"]},
            },
        }
    ),
)
CLOCK = Tool("clock", "What time it is")
ASK = Request("r1", "a/b", (Message(Role.USER, "hi"),), tools=(WEATHER, CLOCK))
NASTY = {"city": 'Zürich "北京" \\ 🙂\n</tool_call>', "days": 3, "tags": ["a]", "{b"]}


PLAIN_THOUGHTS = ("<think>\n", "</think>\n\n")
THOUGHTS = {
    "mistral": ("[THINK]", "[/THINK]"),
    "mistral-v11": ("[THINK]", "[/THINK]"),
    "gemma": ("<|channel>thought\n", "<channel|>"),
}
"""By family: what stands before and behind its thoughts."""


def chat_format(name: str, *, with_controls: bool = True) -> ChatFormat:
    family = next(each for each in (*FAMILIES, GENERIC) if each.name == name)
    think = find_think(THOUGHTS.get(name, PLAIN_THOUGHTS)[1].strip(), ())
    controls = {mark for mark in family.marks if with_controls and "call>" not in mark and "calls>" not in mark}
    thoughts = {"[THINK]", "[/THINK]", "<|channel>", "<channel|>"} if with_controls else set[str]()
    return ChatFormat(family, think, frozenset(controls | thoughts))


@frozen
class Meaning:
    text: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


@frozen
class Sample:
    family: str
    written: str
    meaning: Meaning
    label: str = ""

    def __str__(self) -> str:
        return f"{self.family} {self.label}"


def read(parser: OutputParser, pieces: list[str]) -> Meaning:
    """What the pieces mean, joined; ids and indices are checked on the way."""
    parts = [parser.feed(piece) for piece in pieces] + [parser.finish()]
    calls: list[Call] = []
    ids: list[str] = []
    for delta in (delta for part in parts for delta in part.tool_calls):
        if delta.id:
            assert delta.index == len(calls)
            assert delta.name
            assert delta.id.startswith("call_")
            ids.append(delta.id)
            calls.append(Call(delta.name, ""))
        else:
            assert delta.index == len(calls) - 1
            assert not delta.name
        calls[-1] = evolve(calls[-1], arguments=calls[-1].arguments + delta.arguments)
    assert len(set(ids)) == len(ids) == parser.calls
    return Meaning("".join(part.text for part in parts), "".join(part.reasoning for part in parts), tuple(calls))


def _common(family: str) -> list[Sample]:
    write = WRITERS[family]
    begin, end = THOUGHTS.get(family, PLAIN_THOUGHTS)
    nasty = Call("get_weather", json.dumps(NASTY, ensure_ascii=False))
    cases = {
        "text": ("Hi! 2 < 3, [x] and {y}.", Meaning("Hi! 2 < 3, [x] and {y}.")),
        "call": (write(PARIS), Meaning(calls=(PARIS,))),
        "no arguments": (write(LATE), Meaning(calls=(LATE,))),
        "two calls": (write(PARIS, OSLO), Meaning(calls=(PARIS, OSLO))),
        "text + call": ("Let me see 🙂. " + write(OSLO), Meaning("Let me see 🙂. ", calls=(OSLO,))),
        "reasoning + text": (f"{begin}Hm, é.{end}Yes.", Meaning("Yes.", "Hm, é.")),
        "reasoning + call": (f"{begin}Hm.{end}{write(LATE, PARIS)}", Meaning("", "Hm.", (LATE, PARIS))),
        "unicode": (write(nasty), Meaning(calls=(nasty,))),
    }
    return [Sample(family, written, meaning, label) for label, (written, meaning) in cases.items()]


def _harmony(*calls: Call, thought: str = "", preamble: str = "") -> str:
    messages = [f"<|channel|>analysis<|message|>{thought}"] * bool(thought)
    messages += [f"<|channel|>commentary<|message|>{preamble}"] * bool(preamble)
    messages += [
        f"<|channel|>commentary to=functions.{call.name} <|constrain|>json<|message|>{call.arguments}" for call in calls
    ]
    return "<|end|><|start|>assistant".join(messages) + "<|call|>" * bool(calls)


HARMONY = [
    Sample("harmony", "<|channel|>final<|message|>Hi <b>!<|return|>", Meaning("Hi <b>!"), "final"),
    Sample(
        "harmony",
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        Meaning("Yes.", "Hm."),
        "analysis + final",
    ),
    Sample("harmony", _harmony(PARIS), Meaning(calls=(PARIS,)), "call"),
    Sample("harmony", _harmony(PARIS, LATE, thought="A"), Meaning("", "A", (PARIS, LATE)), "two calls"),
    Sample("harmony", _harmony(OSLO, thought="A", preamble="B"), Meaning("B", "A", (OSLO,)), "preamble + call"),
    Sample(
        "harmony",
        "<|channel|>analysis<|message|>A<|end|>"
        '<|start|>assistant to=functions.clock<|channel|>commentary json<|message|>{"a": 1}<|call|>',
        Meaning("", "A", (Call("clock", '{"a": 1}'),)),
        "recipient in the role",
    ),
    Sample("harmony", "No header at all", Meaning("No header at all"), "no header"),
    Sample("harmony", "<|channel|>what is this<|end|>", Meaning("what is this"), "malformed header"),
]

LLAMA = [
    Sample("llama", llama(PARIS), Meaning(calls=(PARIS,)), "call"),
    Sample("llama", "\n" + llama(PARIS, OSLO), Meaning(calls=(PARIS, OSLO)), "two calls"),
    Sample("llama", "<|python_tag|>" + llama(PARIS), Meaning(calls=(PARIS,)), "tag"),
    Sample("llama", "So: <|python_tag|>" + llama(PARIS), Meaning("So: ", calls=(PARIS,)), "text + call"),
    Sample(
        "llama",
        '{"type": "function", "name": "clock", "parameters": {"a": null}}',
        Meaning(calls=(Call("clock", '{"a": null}'),)),
        "type first",
    ),
    Sample(
        "llama",
        "[get_weather(city='Zürich \"(北京)\"', days=3, tags=[\"a]\", ')']), clock()]",
        Meaning(calls=(weather(city='Zürich "(北京)"', days=3, tags=["a]", ")"]), LATE)),
        "python",
    ),
    Sample(
        "llama",
        '<|python_tag|>get_weather.call(city="Paris", code=null)',
        Meaning(calls=(weather(city="Paris", code=None),)),
        "built-in tool",
    ),
    Sample("llama", '{"name": "Bob", "parameters": {}}', Meaning('{"name": "Bob", "parameters": {}}'), "no tool"),
    Sample("llama", "[link](url) (x)", Meaning("[link](url) (x)"), "link"),
    Sample("llama", "<|python_tag|>print('hi')", Meaning("print('hi')"), "code"),
    Sample("llama", "{1, 2} is a set", Meaning("{1, 2} is a set"), "set"),
]

_ODD = Sample("hermes", "", Meaning())
MALFORMED = [
    evolve(_ODD, label=label, written=written, meaning=meaning)
    for label, written, meaning in (
        ("no object", "<tool_call>oops</tool_call>", Meaning("<tool_call>oops</tool_call>")),
        ("no name", '<tool_call> {"a": 1} </tool_call>!', Meaning('<tool_call> {"a": 1} </tool_call>!')),
        ("empty", "<tool_call>", Meaning("<tool_call>")),
        ("nearly a mark", "<tool_cal> <tool <", Meaning("<tool_cal> <tool <")),
        ("never closed, next follows", "<tool_call>" + as_object(LATE) + hermes(PARIS), Meaning(calls=(LATE, PARIS))),
        (
            "text behind a call",
            f"{hermes(LATE)}\nDone. </tool_call>",
            Meaning("Done. </tool_call>", calls=(LATE,)),
        ),
        (
            "a brace is missing",
            '<tool_call>{"name": "clock", "arguments": {"a": 1</tool_call>ok',
            Meaning("ok", calls=(Call("clock", '{"a": 1'),)),
        ),
        (
            "arguments in a string",
            r'<tool_call>{"name": "clock", "arguments": "{\"a\": \"é\"}"}</tool_call>',
            Meaning(calls=(Call("clock", '{"a": "é"}'),)),
        ),
        ("null", '<tool_call>{"name": "clock", "arguments": null}</tool_call>', Meaning(calls=(LATE,))),
        ("name alone", '<tool_call>{"name": "clock"}</tool_call>', Meaning(calls=(LATE,))),
        (
            "an id behind",
            '<tool_call>{"name": "clock", "arguments": {}, "id": "x"}</tool_call>.',
            Meaning(".", calls=(LATE,)),
        ),
        ("cut in the head", '<tool_call>{"name": "get_w', Meaning('<tool_call>{"name": "get_w')),
        ("cut in the arguments", hermes(OSLO)[:60], Meaning(calls=(Call("get_weather", '{"city": "O'),))),
        ("cut in the thought", "<think>Hm", Meaning("", "Hm")),
        ("call inside of a thought", "<think>a<tool_call>b</think>c", Meaning("c", "a<tool_call>b")),
    )
] + [
    Sample("kimi", "<|tool_calls_section_begin|>oops<|tool_calls_section_end|>!", Meaning("oops!"), "malformed"),
    Sample("kimi", "<think>a" + kimi(LATE), Meaning("", "a", (LATE,)), "thought not ended"),
    Sample("mistral", "[TOOL_CALLS] x[ARGS]y", Meaning(" xy"), "malformed"),
    Sample(
        "mistral",
        '[TOOL_CALLS] [{"name": "clock", "arguments": {}, "id": "abcdefghi"}]',
        Meaning(calls=(LATE,)),
        "with id",
    ),
    Sample("mistral-v11", "[TOOL_CALLS]clock[CALL_ID]abc[ARGS]{}", Meaning(calls=(LATE,)), "with id"),
    Sample(
        "mistral-v11", 'clock[TOOL_CALLS]clock{"a": [1', Meaning("clock", calls=(Call("clock", '{"a": [1'),)), "cut"
    ),
    Sample("deepseek-dsml", "<｜DSML｜function_calls>oops", Meaning("<function_calls>oops"), "malformed"),
    Sample(
        "deepseek-v3",
        old_deepseek(PARIS)[:-38],
        Meaning(calls=(PARIS,)),
        "cut behind the arguments",
    ),
    Sample(
        "qwen-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
        Meaning(calls=(Call("get_weather", '{"city": "Par'),)),
        "cut in a value",
    ),
    Sample(
        "qwen-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=days>\n3",
        Meaning(calls=(Call("get_weather", '{"days": '),)),
        "cut in a number",
    ),
    Sample(
        "qwen-coder",
        "<tool_call>\n<function=get_weather>\n<parameter=code>\nif a:\n\n  b\n\n</parameter>\n</function>\n</tool_call>",
        Meaning(calls=(weather(code="if a:\n\n  b\n"),)),
        "lines",
    ),
    Sample(
        "glm",
        "<tool_call>get_weather<arg_key>days</arg_key><arg_value>many</arg_value></tool_call>",
        Meaning(calls=(weather(days="many"),)),
        "a value of another type",
    ),
    Sample("glm", "<tool_call>so to say</tool_call>", Meaning("<tool_call>so to say</tool_call>"), "malformed"),
    Sample(
        "gemma",
        '<|tool_call>call:clock{at:{zone:<|"|>a,b}<|"|>,"exact":"yes"},list:[],none:null,n:-1.5}<tool_call|>ok',
        Meaning(
            "ok",
            calls=(Call("clock", '{"at": {"zone": "a,b}", "exact": "yes"}, "list": [], "none": null, "n": -1.5}'),),
        ),
        "nested",
    ),
    Sample("gemma", "<|tool_call>call clock<tool_call|>", Meaning("<|tool_call>call clock"), "malformed"),
    Sample(
        "gemma",
        '<|tool_call>call:get_weather{city:<|"|>Par',
        Meaning(calls=(Call("get_weather", '{"city": "Par'),)),
        "cut in a string",
    ),
    Sample(
        "gemma",
        "<|tool_call>call:clock{a:" + 40 * "[" + "1",
        Meaning(8 * "[" + "1", calls=(Call("clock", '{"a": ' + 32 * "["),)),
        "cut, too deep",
    ),
    Sample(
        "lfm",
        '<|tool_call_start|>[{"name": "clock", "arguments": {"a": 1}}, {"name": "clock"}]<|tool_call_end|>Wait.',
        Meaning("Wait.", calls=(Call("clock", '{"a": 1}'), LATE)),
        "json",
    ),
    Sample(
        "minicpm",
        '<function name="get_weather"><param name="city"></param><param name="days"> 3 </param></function>',
        Meaning(calls=(weather(city="", days=3),)),
        "empty",
    ),
    Sample("minimax", "<minimax:tool_call>\n<invoke>", Meaning("<minimax:tool_call>\n<invoke>"), "malformed"),
]

SAMPLES = [sample for family in WRITERS for sample in _common(family)] + HARMONY + LLAMA + MALFORMED

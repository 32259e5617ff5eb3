"""The harmony format of gpt-oss: messages on channels, each with a header that says whom it is for.

``<|channel|>analysis<|message|>…<|end|>`` is thought, ``final`` and ``commentary`` are said, and what has a recipient is a
call: ``<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{…}<|call|>``.
"""

import re

from attrs import frozen

from p2pexo.engine.parsers.emitter import Emitter
from p2pexo.engine.parsers.scanner import Match, Scanner, Sink, Steps, pattern

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
HARMONY_MARKS = frozenset({START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS})

_BEHIND_CHANNEL = r"(?P<channel>\w{1,32})(?P<rest>[^<]{0,256})(?:<\|constrain\|>[^<]{0,256})?<\|message\|>"
_HEADERS = {
    START: pattern(rf"(?P<role>[^<]{{0,256}})(?:<\|channel\|>{_BEHIND_CHANNEL}|<\|message\|>)"),
    CHANNEL: pattern(_BEHIND_CHANNEL),
}
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")


@frozen
class Harmony:
    """The grammar of one answer; it begins behind ``<|start|>assistant``."""

    reads_calls: bool

    def read(self, scanner: Scanner, emitter: Emitter) -> Steps[None]:
        mark = yield from self._next_header(scanner, emitter)
        while mark:
            header = yield from scanner.match(_HEADERS[mark])
            sink = self._open(header, emitter) if header is not None else emitter.text
            mark = yield from scanner.until((*_HEADERS, *ENDS), sink)
            emitter.after_mark(thinking=emitter.thinking and not mark)
            if mark and mark not in _HEADERS:
                mark = yield from self._next_header(scanner, emitter)

    def _next_header(self, scanner: Scanner, emitter: Emitter) -> Steps[str]:
        return (yield from scanner.until(tuple(_HEADERS), emitter.text))

    def _open(self, header: Match, emitter: Emitter) -> Sink:
        """Where the message goes."""
        parts = header.groupdict()
        recipient = _RECIPIENT.search(f"{parts.get('role') or ''} {parts.get('rest') or ''}")
        if recipient is not None and self.reads_calls:
            emitter.begin_call(recipient[1])
            return emitter.arguments
        if parts["channel"] == "analysis":
            emitter.after_mark(thinking=True)
            return emitter.reasoning
        emitter.after_mark()
        return emitter.text

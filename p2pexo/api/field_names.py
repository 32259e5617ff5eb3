"""Fields of a ``generation.Request`` as each dialect calls them: for faults that only the engine finds. Pure."""

from collections.abc import Mapping

from attrs import evolve, field, frozen

from p2pexo.generation.errors import ErrorReport


@frozen
class FieldNames:
    """``theirs``: by our name, which is that of OpenAI Chat Completions; the others are called the same."""

    theirs: Mapping[str, str] = field(factory=dict[str, str])

    def tell(self, report: ErrorReport) -> ErrorReport:
        """The report with the field that the client sent, in its message, too: not all dialects and clients show another."""
        if report.param is None:
            return report
        name = self.theirs.get(report.param, report.param)
        message = f"{name}: {report.message}" if name not in report.message else report.message
        return evolve(report, param=name, message=message)


CHAT = FieldNames()
COMPLETIONS = FieldNames({"messages": "prompt"})
RESPONSES = FieldNames({"messages": "input", "response_format": "text.format"})
CLAUDE = FieldNames({"response_format": "output_config.format"})
OLLAMA_CHAT = FieldNames({"response_format": "format"})
OLLAMA_GENERATE = FieldNames({"response_format": "format", "messages": "prompt"})

"""Chat templates, as Hugging Face's tokenizers carry them: Jinja in a sandbox, with the same names and options.

Whatever is wrong with a template, or with what it makes of the messages, is an InvalidRequestError that names the cause.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, cast

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from p2pexo.generation.errors import InvalidRequestError


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` marks the assistant's part for training; here its body is simply rendered."""

    tags = {"generation"}  # noqa: RUF012 - jinja declares it so

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """``source`` may be None: a base model without one. All errors come out at ``render``, so that the model still loads."""

    def __init__(self, source: str | None, *, bos_token: str = "", eos_token: str = "") -> None:
        self.source = source
        self.bos_token = bos_token
        self._marks = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> str:
        """The prompt, up to where the assistant's answer begins. ``options``: further names for the template to see.

        Raises InvalidRequestError.
        """
        template = self._template
        names = {"add_generation_prompt": True, "tools": list(tools) or None, **self._marks, **options}
        try:
            return template.render(messages=messages, **names)
        except jinja2.TemplateError as error:
            raise InvalidRequestError(f"this model's chat template refuses the messages: {error}") from error
        except Exception as error:  # a template is a program that somebody else wrote
            raise InvalidRequestError(f"this model's chat template fails on the messages: {error}") from error

    @cached_property
    def _template(self) -> jinja2.Template:
        if self.source is None:
            raise InvalidRequestError(
                "this model has no chat template, so it can't be talked to; it may be a base model"
            )
        try:
            return _environment().from_string(self.source)
        except jinja2.TemplateSyntaxError as error:
            message = f"this model's chat template has a syntax error in line {error.lineno}: {error.message}"
            raise InvalidRequestError(message) from error


def read_template(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """A model's template: its own file first, then the tokenizer's config, where it may be one of several with names."""
    file = directory / "chat_template.jinja"
    if file.exists():
        return file.read_text(encoding="utf-8")
    return _named(tokenizer_config.get("chat_template"))


def _named(template: object) -> str | None:
    if isinstance(template, str):
        return template
    if isinstance(template, Mapping):
        named = cast(Mapping[str, str], template)
    else:
        entries = cast(Sequence[Mapping[str, str]], template or ())
        named = {entry["name"]: entry["template"] for entry in entries}
    return named.get("default", next(iter(named.values()), None))


def _environment() -> jinja2.Environment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    functions: dict[str, Any] = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.globals.update(functions)
    return environment


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """Jinja's own filter escapes for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(layout: str) -> str:
    return datetime.now().astimezone().strftime(layout)

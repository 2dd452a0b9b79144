"""Renders the prompt of a chat with a tokenizer's chat template, as transformers does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from edgefront.core.errors import InvalidInput

Template = str | list[dict[str, str]]
"""A Jinja template, or several with their names."""
_DEFAULT = "default"


def rendered(template: Template, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    """The text of these messages, up to where the answer begins; special tokens are written in it.

    `tokens` are those that templates name: bos_token, eos_token … Raises `InvalidInput` for a template that is invalid,
    has no default, or refuses the messages.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, which marks what an assistant said; what is in it is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(form),
    }
    try:
        return environment.from_string(_chosen(template)).render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **tokens,
        )
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:  # a template is a program
        raise InvalidInput(
            f"the model's chat template cannot be used: {error}",
            field="chat",
            allowed="--no-chat, which continues the text",
        ) from None


def _chosen(template: Template) -> str:
    if isinstance(template, str):
        return template
    named = {choice.get("name"): choice.get("template", "") for choice in template}
    if _DEFAULT not in named:
        raise InvalidInput(
            f"the model has chat templates {', '.join(map(str, named))}, and none of them is the default",
            field="chat",
            allowed="--no-chat, which continues the text",
        )
    return named[_DEFAULT]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, unlike that of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

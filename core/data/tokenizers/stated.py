"""What the files beside a `tokenizer.json` of Hugging Face's say of it: its special tokens, and its chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG, refuse_pointer
from edgefront.core.common.validation import short
from edgefront.core.data.sources.text import not_utf8

_SPECIAL_TOKENS, _CHAT_TEMPLATE = "special_tokens_map.json", "chat_template.jinja"
_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class Stated:
    """`tokens` by their role: bos_token, eos_token, pad_token, unk_token. `ids` by role: bos_token_id, pad_token_id.
    `ends`: all tokens at which a generation ends. Numbers below zero stand for no token and are left out.
    `numbers_file`: the name of the file with `ids` and `ends`. `adds`: by add_bos_token and add_eos_token, whether such
    a token is put at the ends of a text; `tokenizer.json` decides on one that is not stated. `chat_template`: a text,
    or a list of them by name.
    """

    tokens: Mapping[str, str] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    ends: tuple[int, ...] = ()
    numbers_file: str = GENERATION_CONFIG
    adds: Mapping[str, bool] = field(default_factory=dict)
    chat_template: str | list[dict[str, str]] | None = None


def stated_in(folder: Path) -> Stated:
    """What this folder's files say; nothing where there are none.

    `InvalidInput` for no JSON object, no text, or what is no token's number.
    """
    config = _object(folder / TOKENIZER_CONFIG)
    # transformers takes the numbers of tokens from the model's own file where the other is missing.
    place = folder / (GENERATION_CONFIG if (folder / GENERATION_CONFIG).exists() else CONFIG)
    generation = _object(place)
    tokens, sources = {}, [config, _object(folder / _SPECIAL_TOKENS)]
    # The last one decides: as in transformers, the newer form of the first goes without the second.
    for described in sources[::-1] if "added_tokens_decoder" in config else sources:
        for name in _NAMES:
            token = described.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                tokens[name] = token
    ends = generation.get("eos_token_id")
    numbers = {name: _numbers(place, name, [generation.get(name)]) for name in ("bos_token_id", "pad_token_id")}
    template = config.get("chat_template")
    if isinstance(template, list):
        template = [
            {name: str(entry.get(name, "")) for name in ("name", "template")}
            for entry in template
            if isinstance(entry, dict)
        ]
    if (folder / _CHAT_TEMPLATE).is_file():
        template = read_text(folder / _CHAT_TEMPLATE)
    return Stated(
        tokens,
        {name: values[0] for name, values in numbers.items() if values},
        _numbers(place, "eos_token_id", ends if isinstance(ends, list) else [ends]),
        place.name,
        {name: config[name] for name in ("add_bos_token", "add_eos_token") if type(config.get(name)) is bool},
        template if isinstance(template, str | list) else None,
    )


def _numbers(path: Path, name: str, given: Sequence[Any]) -> tuple[int, ...]:
    for value in given:
        if value is not None and type(value) is not int:
            raise InvalidInput(
                f"{path} has {name} {short(value)}, which is no token's number",
                field="tokenizer",
                value=str(path),
                allowed="a whole number; for the ends of a text also a list of them",
            )
    return tuple(value for value in given if value is not None and value >= 0)


def _object(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        refuse_pointer(content, path)
        document = json.loads(content)
    except FileNotFoundError:
        return {}
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as error:
        raise _wrong(path, str(error)) from None
    if not isinstance(document, dict):
        raise _wrong(path, "it is no object")
    return document


def _wrong(path: Path, what: str) -> InvalidInput:
    return InvalidInput(f"{path} is not a JSON object: {what}", field="tokenizer", value=str(path))


def read_text(path: Path) -> str:
    """Content of a UTF-8 file; `NotFound` if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start) from None

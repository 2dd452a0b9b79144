"""Special tokens and chat template from the files beside a Hugging Face `tokenizer.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.hugging_face import CONFIG, GENERATION_CONFIG, TOKENIZER_CONFIG, refuse_pointer
from edgefront.core.common.validation import short
from edgefront.core.data.tokenizers.tokenizers import read_text

_SPECIAL_TOKENS, _CHAT_TEMPLATE = "special_tokens_map.json", "chat_template.jinja"
_ROLES = ("bos_token", "eos_token", "pad_token", "unk_token")


@dataclass(frozen=True)
class TokenizerConfig:
    """Tokenizer settings in the files beside `tokenizer.json`. Negative ids mean no token and are left out."""

    tokens: Mapping[str, str] = field(default_factory=dict)
    """Token by role: bos_token, eos_token, pad_token, unk_token."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """Id by role: bos_token_id, pad_token_id."""
    eos_ids: tuple[int, ...] = ()
    """All tokens that end a generation."""
    ids_file: str = GENERATION_CONFIG
    """Name of the file that contains `ids` and `eos_ids`."""
    adds: Mapping[str, bool] = field(default_factory=dict)
    """Flags add_bos_token and add_eos_token. `tokenizer.json` decides if a flag is missing."""
    chat_template: str | list[dict[str, str]] | None = None
    """A chat template in Jinja, or several chat templates by name."""


def read_tokenizer_config(folder: Path) -> TokenizerConfig:
    """Reads the tokenizer settings from the files of a folder; returns empty settings if there are no files.

    Raises `InvalidInput` for a file that is not a JSON object or not text, and for an invalid token id.
    """
    config = _object(folder / TOKENIZER_CONFIG)
    # As transformers does: the model's config.json, where generation_config.json is missing.
    ids_path = folder / (GENERATION_CONFIG if (folder / GENERATION_CONFIG).exists() else CONFIG)
    generation = _object(ids_path)
    tokens, sources = {}, [config, _object(folder / _SPECIAL_TOKENS)]
    # The final source takes precedence. As in transformers, a config of the newer form overrides the map.
    for source in sources[::-1] if "added_tokens_decoder" in config else sources:
        for name in _ROLES:
            token = source.get(name)
            token = token.get("content") if isinstance(token, dict) else token
            if isinstance(token, str):
                tokens[name] = token
    eos_ids = generation.get("eos_token_id")
    ids = {name: _token_ids(ids_path, name, [generation.get(name)]) for name in ("bos_token_id", "pad_token_id")}
    template = config.get("chat_template")
    if isinstance(template, list):
        template = [
            {name: str(entry.get(name, "")) for name in ("name", "template")}
            for entry in template
            if isinstance(entry, dict)
        ]
    if (folder / _CHAT_TEMPLATE).is_file():
        template = read_text(folder / _CHAT_TEMPLATE)
    return TokenizerConfig(
        tokens,
        {name: values[0] for name, values in ids.items() if values},
        _token_ids(ids_path, "eos_token_id", eos_ids if isinstance(eos_ids, list) else [eos_ids]),
        ids_path.name,
        {name: config[name] for name in ("add_bos_token", "add_eos_token") if type(config.get(name)) is bool},
        template if isinstance(template, str | list) else None,
    )


def _token_ids(path: Path, name: str, values: Sequence[Any]) -> tuple[int, ...]:
    for value in values:
        if value is not None and type(value) is not int:
            raise InvalidInput(
                f"{path} has {name} {short(value)}, which is not a token id",
                field="tokenizer",
                value=str(path),
                allowed="a whole number; for eos_token_id also a list of whole numbers",
            )
    return tuple(value for value in values if value is not None and value >= 0)


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
        raise _wrong(path, "it is another JSON value")
    return document


def _wrong(path: Path, what: str) -> InvalidInput:
    return InvalidInput(f"{path} is not a JSON object: {what}", field="tokenizer", value=str(path))

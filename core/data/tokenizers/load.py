"""Reads a saved tokenizer of any level."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefront.core.data.tokenizers.tokenizers import FILE, FORMAT, Bytes, Characters, Tokenizer, Words
from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.validation import short


def load_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer that was saved there. `NotFound` where there is none, `InvalidInput` where it is damaged."""
    path = folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is not a tokenizer of format {FORMAT}")
        return _loaded(content, folder)
    except FileNotFoundError as error:
        raise NotFound(f"there is no tokenizer in {folder}: {error.filename} is missing") from None
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
        ) from None


def _loaded(content: Mapping[str, Any], folder: Path) -> Tokenizer:
    level = content["level"]
    if level == "bytes":
        return Bytes(content["bytes"])
    if level == "characters":
        return Characters(content["characters"])
    if level == "words":
        return Words(content["words"])
    if level == "bpe":
        from edgefront.core.data.tokenizers.bpe import Pieces

        return Pieces.read(folder, content["special"])
    raise ValueError(f"its level is {short(level)}")

"""Reads a saved tokenizer of any level."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefront.core.data.tokenizers.tokenizers import (
    FILE,
    FORMAT,
    Bytes,
    Characters,
    Tokenizer,
    Words,
)
from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.hugging_face import TOKENIZER
from edgefront.core.validation import short

_OLD_FILE, _OLD_PIECES = "tokenizer.json", "bpe.json"
"""Their names before Hugging Face's `tokenizer.json` was written beside them."""


def tokenizer_file(folder: Path) -> Path | None:
    """The file that describes the tokenizer saved in a folder; None if there is none."""
    return next((folder / name for name in (FILE, _OLD_FILE) if (folder / name).is_file()), None)


def same_tokens(folder: Path, other: Path) -> bool:
    """Whether the tokenizers in `folder`, a source's in `source/` too, are those in the other; none there, so is that.

    The size of a vocabulary is no proof: two texts give as many pieces, and other ones.
    """
    for part in ("", "source"):
        if tokenizer_file(folder / part) is not None:
            content = _content(folder / part)
            if content is None or content != _content(other / part):
                return False
    return True


def _content(folder: Path) -> list[Any] | None:
    """What decides which tokens a text has; not what is put around it, which earlier versions did not store."""
    path = tokenizer_file(folder)
    if path is None:
        return None
    try:
        described = json.loads(path.read_bytes())
        if not isinstance(described, dict) or described.get("level") != "bpe":
            return [described]
        pieces = json.loads(_pieces_file(folder).read_bytes())
        return [{**described, "bos": None}, {**pieces, "post_processor": None}]
    except (ValueError, TypeError, FileNotFoundError):
        return None


def _pieces_file(folder: Path) -> Path:
    """The file with the pieces of a tokenizer of level bpe, in Hugging Face's own form."""
    old = folder / _OLD_PIECES
    return old if old.is_file() else folder / TOKENIZER


def load_tokenizer(folder: Path, *, trained: bool = True) -> Tokenizer:
    """The tokenizer that was saved there. `NotFound` where there is none, `InvalidInput` where it is damaged.

    `trained`: it is of data that was prepared here, or of a model that was trained on such, not of an imported one.
    """
    path = tokenizer_file(folder) or folder / FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is not a tokenizer of format {FORMAT}")
        return _loaded(content, folder, trained)
    except FileNotFoundError as error:
        raise NotFound(f"there is no tokenizer in {folder}: {error.filename} is missing") from None
    except InvalidInput:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(
            f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
        ) from None


def _loaded(content: Mapping[str, Any], folder: Path, trained: bool) -> Tokenizer:
    level = content["level"]
    if level == "bytes":
        return Bytes(content["bytes"])
    if level == "characters":
        return Characters(content["characters"])
    if level == "words":
        return Words(content["words"])
    if level == "bpe":
        from edgefront.core.data.tokenizers.bpe import Pieces

        return Pieces.read(_pieces_file(folder), content, trained)
    raise ValueError(f"its level is {short(level)}")

"""Files in a folder of Hugging Face's or of ours, for all layers that read or write them."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.common.errors import InvalidInput

CONFIG = "config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
ARCHITECTURE = "architecture.json"
"""The description in a folder of ours, which has the others beside it."""

_POINTER = "version https://git-lfs.github.com/spec/"


def refuse_pointer(content: str | bytes, path: Path | str) -> None:
    """`InvalidInput` where the content of a file, or how it begins, is a pointer of Git LFS."""
    start = content[: len(_POINTER)]
    if start in (_POINTER, _POINTER.encode()):
        raise InvalidInput(
            f"{path} is a pointer of Git LFS, not the file itself: fetch it with `git lfs pull`",
            field="path",
            value=str(path),
            allowed="the file itself",
        )

"""File names in model folders of Hugging Face and of Edgefront, for all packages that read or write model folders."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.common.errors import InvalidInput

CONFIG = "config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
ARCHITECTURE = "architecture.json"
"""File of the architecture description, which only Edgefront's folders have."""

_POINTER = "version https://git-lfs.github.com/spec/"


def refuse_pointer(content: str | bytes, path: Path | str) -> None:
    """Raises `InvalidInput` if the content, or the first bytes, of a file is a pointer of Git LFS."""
    start = content[: len(_POINTER)]
    if start in (_POINTER, _POINTER.encode()):
        raise InvalidInput(
            f"{path} is a pointer of Git LFS, not the file itself: fetch it with `git lfs pull`",
            field="path",
            value=str(path),
            allowed="the file itself",
        )

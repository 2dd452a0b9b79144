"""The tensors of a Hugging Face folder's safetensors files, by their names in the model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.huggingface import CONFIG
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import refuse_pointer
from edgefront.core.model_files.parameter_values import not_finite, safetensors_header

WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_ADAPTER = "adapter_config.json"
_ELEMENTS = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}

_WRAPPERS = {"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"}
"""Name parts that torch.compile, DDP, FSDP and checkpointing add to parameter names."""
_UNSUPPORTED: Mapping[str, tuple[str, ...]] = {
    "part of a LoRA adapter; merge the adapter into its model first": (".lora_A.", ".lora_B.", ".lora_embedding_"),
    "part of weights quantised by GPTQ or AWQ": (".qweight", ".qzeros", ".g_idx"),
    "part of weights quantised by bitsandbytes": (".absmax", ".quant_map", ".quant_state.", ".SCB", ".weight_format"),
    "part of quantised weights with separate scales": (
        ".weight_scale",
        ".input_scale",
        ".weight_packed",
        ".weight_zero_point",
    ),
    "part of weights quantised by MLX": (".scales", ".biases"),
}
"""Kinds of unsupported tensors, by substrings of their names; the first match counts."""


class FolderTensors(Mapping[str, NDArray[np.float32]]):
    """Tensors of one safetensors file, or of the files in the folder's index, as float32; read on access.

    Names lack the prefixes that wrappers add. Raises `NotFound` if the folder has no safetensors files, `InvalidInput`
    for an invalid file, tensors missing from the index's files, and weights that are quantised or of an adapter.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[str, tuple[Path, Any, int]] = {}
        if (folder / _ADAPTER).is_file():
            raise unfit(
                folder, f"has an {_ADAPTER}, so it holds an adapter without its model. Merge adapter and model first"
            )
        files = self._files()
        self._all = next(iter(files)) if len(files) == 1 else folder
        """Path that errors about missing tensors name."""
        for path, promised in files.items():
            entries, start = safetensors_header(path)
            for name in sorted(promised - entries.keys()):
                raise unfit(path, f"lacks {name}, which the {_INDEX} in its folder names")
            for name, entry in entries.items():
                if name == "__metadata__":
                    continue
                plain = ".".join(part for part in name.split(".") if part not in _WRAPPERS)
                if plain in self._entries:
                    raise unfit(path, f"has {name} a second time")
                self._entries[plain] = path, entry, start
        for kind, parts in _UNSUPPORTED.items():
            for name, (path, _, _) in self._entries.items():
                if any(part in name for part in parts):
                    raise unfit(path, f"has the unsupported tensor {name}: it is {kind}")

    def _files(self) -> dict[Path, set[str]]:
        """The folder's safetensors files, each with the tensors that the index expects in the file."""
        if (self._folder / WEIGHTS).is_file():
            return {self._folder / WEIGHTS: set()}
        try:
            content = (self._folder / _INDEX).read_bytes()
            refuse_pointer(content, self._folder / _INDEX)
            file_of = {str(tensor): str(name) for tensor, name in json.loads(content)["weight_map"].items()}
        except FileNotFoundError:
            shard = next((path.name for path in sorted(self._folder.glob("*.safetensors"))), None)
            only = "only safetensors files are read" if shard is None else f"{shard} needs {_INDEX} in the same folder"
            raise NotFound(f"{self._folder} has no {WEIGHTS}: {only}") from None
        except InvalidInput:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise unfit(self._folder, f"has an {_INDEX} without a weight_map") from None
        files: dict[Path, set[str]] = {}
        for tensor, name in sorted(file_of.items(), key=lambda item: item[1]):
            if Path(name).name != name or not (self._folder / name).is_file():
                raise unfit(self._folder, f"lacks {name}, which its {_INDEX} names")
            files.setdefault(self._folder / name, set()).add(tensor)
        return files

    def file_of(self, name: str) -> Path:
        return self._entries[name][0]

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raises `InvalidInput` unless there is a complete tensor of this name and shape."""
        if name not in self._entries:
            owner = name.rpartition(".")[0] + "."
            alike = next(
                (
                    other
                    for other in self._entries
                    if other.endswith(f".{name}") or name.endswith(f".{other}") or other.startswith(owner)
                ),
                None,
            )
            raise unfit(self._all, f"lacks {name}" + (f"; it has {alike}" if alike else ""))
        path, entry, start = self._entries[name]
        fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
        kind, stored, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
        if not isinstance(kind, str) or kind not in _ELEMENTS:
            raise unfit(path, f"has {name} as {kind}; it must be one of {', '.join(_ELEMENTS)}")
        if stored != list(shape):
            raise unfit(path, f"has {name} of shape {stored}, not {list(shape)}")
        is_place = isinstance(offsets, list) and [type(offset) for offset in offsets] == [int, int]
        low, high = offsets if is_place and offsets else (0, -1)
        if not 0 <= low <= high:
            raise unfit(path, f"has {name} at invalid offsets {offsets}")
        size = np.dtype(_ELEMENTS[kind]).itemsize * math.prod(shape)
        if high > path.stat().st_size - start:
            raise unfit(path, f"was cut short: {name} is incomplete, because it should end at byte {start + high}")
        if high - low != size:
            raise unfit(path, f"has {name} in {high - low} bytes; its shape needs {size}")

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        path, entry, start = self._entries[name]
        data = np.memmap(path, np.uint8, "r", offset=start)
        low, high = entry["data_offsets"]
        values = data[low:high].view(_ELEMENTS[entry["dtype"]]).reshape(entry["shape"])
        if entry["dtype"] == "BF16":
            values = np.asarray(values.astype("<u4") << np.uint32(16)).view("<f4")
        if not np.isfinite(values).all():
            raise not_finite(path, name)
        return np.asarray(values.astype("<f4", copy=False))

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


def unfit(path: Path, what: str) -> InvalidInput:
    """Error about an unusable file or folder of weights; `what` completes the sentence that begins with the path."""
    return InvalidInput(
        f"{path} {what}", field="weights", value=str(path), allowed=f"exactly the tensors of its {CONFIG}"
    )

"""llama.cpp's own quantisation of blocks of weights, from the shared library within the package xllamacpp."""

from __future__ import annotations

import ctypes
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import Unavailable
from edgefront.core.number_formats import GGUF_BLOCKS, GgufBlocks

_PACKAGE = "xllamacpp"


def quantised(values: NDArray[np.float32], blocks: GgufBlocks) -> NDArray[np.uint8]:
    """Weights, whole blocks of them, as the bytes that `ggml_quantize_chunk` makes without an importance matrix.

    Raises `Unavailable` where xllamacpp is not installed, or lacks that function.
    """
    from gguf import GGMLQuantizationType

    count, size = GGUF_BLOCKS[blocks]
    number = GGMLQuantizationType[blocks.upper()].value
    source = np.ascontiguousarray(values, np.float32).reshape(-1, count)
    made = np.empty((len(source), size), np.uint8)
    written = _quantize_chunk()(number, source.ctypes.data, made.ctypes.data, 0, len(source), count, None)
    assert written == made.size
    return made.reshape(-1)


@cache
def _quantize_chunk() -> Any:
    try:
        function = ctypes.CDLL(str(_library())).ggml_quantize_chunk
    except (OSError, AttributeError) as error:
        raise Unavailable(f"the quantisation of llama.cpp is not in this build of {_PACKAGE}: {error}") from error
    function.restype = ctypes.c_size_t
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [ctypes.c_int, pointer, pointer, number, number, number, pointer]
    return function


def _library() -> Path:
    package = find_spec(_PACKAGE)
    if package is None:
        raise Unavailable(
            f"llama.cpp itself quantises weights into this format, and {_PACKAGE}, which has it, is not installed: "
            "pip install 'edgefront-lm[llamacpp]'"
        )
    folder = Path(str(package.origin)).parent
    paths = [folder / f"{_PACKAGE}{suffix}" for suffix in EXTENSION_SUFFIXES]
    return next((path for path in paths if path.exists()), paths[0])

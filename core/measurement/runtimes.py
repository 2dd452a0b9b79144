"""The runtimes that devices measure with, and the packages that each runtime needs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Literal, NamedTuple

Runtime = Literal["onnxruntime", "pytorch", "openvino", "llamacpp"]


class Installation(NamedTuple):
    """The packages that a runtime imports, and the extra of `edgefront-lm` that installs these packages."""

    packages: tuple[str, ...]
    extra: str


INSTALLATIONS: Mapping[Runtime, Installation] = MappingProxyType(
    {
        "onnxruntime": Installation(("onnxruntime", "onnx"), "agent"),
        "pytorch": Installation(("torch",), "torch"),
        "openvino": Installation(("openvino", "onnx"), "openvino"),
        "llamacpp": Installation(("xllamacpp", "gguf"), "llamacpp"),
    }
)


def not_installed(runtime: Runtime) -> str | None:
    """A sentence that names the missing package of this runtime and the extra to install; None if none is missing."""
    packages, extra = INSTALLATIONS[runtime]
    missing = next((package for package in packages if find_spec(package) is None), None)
    if missing is None:
        return None
    return f"runtime {runtime} needs {missing}, which is not installed: pip install 'edgefront-lm[{extra}]'"

"""The extras (optional dependencies) of the package `edgefront-lm`, and the error if a dependency is missing."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from edgefront.core.common.errors import EdgefrontError

_EXTRAS = {
    "torch": ("torch",),
    "agent": ("onnxruntime", "onnx", "psutil", "numpy"),
    "openvino": ("openvino",),
    "llamacpp": ("xllamacpp", "gguf"),
    "server": (
        "alembic",
        "celery",
        "fastapi",
        "jinja2",
        "kombu",
        "moocore",
        "orjson",
        "plotly",
        "prometheus_client",
        "psycopg",
        "pyarrow",
        "safetensors",
        "scipy",
        "sklearn",
        "sqlalchemy",
        "sse_starlette",
        "starlette",
        "ulid",
        "uvicorn",
        "yaml",
    ),
    "train": ("huggingface_hub", "jinja2", "sacrebleu", "scipy", "tensorboardX", "tokenizers", "yaml"),
    "eval": ("lm_eval",),
    "demo": ("matplotlib",),
    "notebook": ("matplotlib", "pandas", "pyarrow"),
    "cpu-fast": ("numba",),
}


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Returns the pip command that installs the missing module; None if no extra contains the module."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if package in packages:
            return _message("this", package, extra)
    return None


def need(what: str, *extras: str, install: str | None = None, otherwise: str = "") -> None:
    """Raises `EdgefrontError` if a package of these extras is missing."""
    for package in (package for extra in extras for package in _EXTRAS[extra]):
        # A loaded package may have no import specification: kombu removes its own.
        if package not in sys.modules and find_spec(package) is None:
            raise EdgefrontError(_message(what, package, install or ",".join(extras)) + otherwise)


def _message(what: str, missing: str, extra: str) -> str:
    return f"{what} needs {missing}, which is not installed: pip install 'edgefront-lm[{extra}]'"

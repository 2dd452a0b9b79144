"""The extras that install missing packages."""

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
        "pymoo",
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
    "train": ("jinja2", "sacrebleu", "scipy", "tensorboardX", "tokenizers", "yaml"),
    "eval": ("lm_eval",),
    "demo": ("matplotlib",),
    "notebook": ("matplotlib", "pandas", "pyarrow"),
    "cpu-fast": ("numba",),
}


def advice(error: ModuleNotFoundError) -> str | None:
    """A message on what to install, or None if no extra has the module."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if package in packages:
            return _sentence("this", package, extra)
    return None


def _is_there(package: str) -> bool:
    # Of a package that is loaded there may be no specification: kombu takes its own away.
    return package in sys.modules or find_spec(package) is not None


def need(what: str, *extras: str, install: str | None = None, otherwise: str = "") -> None:
    """Raises EdgefrontError at once if a package of these extras is missing."""
    missing = [package for extra in extras for package in _EXTRAS[extra] if not _is_there(package)]
    if missing:
        raise EdgefrontError(_sentence(what, missing[0], install or ",".join(extras)) + otherwise)


def _sentence(what: str, missing: str, extra: str) -> str:
    return f"{what} needs {missing}, which is not installed: pip install 'edgefront-lm[{extra}]'"

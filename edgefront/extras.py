"""Which extra brings a package that is not installed."""

from __future__ import annotations

_EXTRAS = {
    "torch": ("torch",),
    "agent": ("onnx", "onnxruntime", "psutil", "numpy"),
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
        "pydantic_settings",
        "pymoo",
        "safetensors",
        "sqlalchemy",
        "sse_starlette",
        "starlette",
        "ulid",
        "uvicorn",
    ),
    "demo": ("matplotlib",),
}


def advice(error: ModuleNotFoundError) -> str | None:
    """The sentence that tells what to install, or None if the module is none of an extra's."""
    package = (error.name or "").partition(".")[0]
    for extra, packages in _EXTRAS.items():
        if package in packages:
            return f"this needs {package}, which is not installed: pip install 'edgefront[{extra}]'"
    return None

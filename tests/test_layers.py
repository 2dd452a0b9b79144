"""An import only points down (see docs/decisions/0001-layers-and-words.md), and small installs stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("core", "api", "workers", "agents", "edgefront", "migrations")

# Package → those that it may import besides itself; the longest prefix that matches decides.
LEAVES = {"edgefront.core.errors", "edgefront.core.canonical", "edgefront.core.validation"}
ALLOWED: dict[str, set[str]] = {
    "edgefront.core.errors": set(),
    "edgefront.core.canonical": set(),
    "edgefront.core.validation": {"edgefront.core.errors"},
    "edgefront.core.processes": set(),
    "edgefront.core.spaces": LEAVES,
    "edgefront.core.cost": LEAVES | {"edgefront.core.spaces"},
    "edgefront.core.measurement": LEAVES | {"edgefront.core.spaces", "edgefront.core.cost"},
    "edgefront.core.pareto": LEAVES,
    "edgefront.core.search": LEAVES
    | {
        "edgefront.core.spaces",
        "edgefront.core.pareto",
        "edgefront.core.cost",
        "edgefront.core.supernet.settings",
    },  # data, no torch
    "edgefront.core.wire": LEAVES | {"edgefront.core.measurement"},
    "edgefront.core.graph": LEAVES | {"edgefront.core.spaces"},
    "edgefront.core.nn": LEAVES | {"edgefront.core.spaces", "edgefront.core.graph"},
    "edgefront.core.training": LEAVES
    | {"edgefront.core.spaces", "edgefront.core.cost", "edgefront.core.graph", "edgefront.core.nn"},
    "edgefront.core.proxies": LEAVES
    | {
        "edgefront.core.spaces",
        "edgefront.core.cost",
        "edgefront.core.graph",
        "edgefront.core.nn",
        "edgefront.core.training",
    },
    "edgefront.core.supernet": LEAVES
    | {
        "edgefront.core.spaces",
        "edgefront.core.cost",
        "edgefront.core.graph",
        "edgefront.core.nn",
        "edgefront.core.training",
    },
    "edgefront.core.store": LEAVES | {"edgefront.core.measurement", "migrations"},
    "migrations": {
        "edgefront.core.store",
        "edgefront.core.services.settings",
    },  # alembic's command line reads the settings
    "edgefront.core.services": LEAVES
    | {
        f"core.{name}"
        for name in (
            *("cost", "graph", "measurement", "pareto", "proxies", "search", "spaces", "store", "supernet"),
            *("training", "wire"),
        )
    },
    "api": {"core"},
    "workers": {"core"},
    "agents": LEAVES
    | {
        "edgefront.core.processes",
        "edgefront.core.spaces",
        "edgefront.core.measurement",
        "edgefront.core.wire",
        "edgefront.core.graph",
        "edgefront.core.nn",
        "edgefront.core.cost",
    },
    "edgefront": {"core", "api", "workers", "agents"},
}


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found.append((name.removesuffix(".__init__"), path))
    return found


def _within(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    return names


@pytest.mark.parametrize(("module", "path"), _modules(), ids=lambda value: value if isinstance(value, str) else "")
def test_imports_point_down(module: str, path: Path) -> None:
    owner = max((prefix for prefix in ALLOWED if _within(module, {prefix})), key=len, default=None)
    if owner is None:  # a bare package file
        return
    ours = {name for name in _imports(path) if name.split(".")[0] in PACKAGES}
    wrong = {name for name in ours if not _within(name, ALLOWED[owner] | {owner})}
    assert not wrong, f"{module} may not import {sorted(wrong)}"


def test_relative_imports_are_not_used() -> None:
    for module, path in _modules():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{module} imports relatively"


HEAVY_FREE = {
    # What must load without what (import in a fresh process).
    "edgefront.cli": ("torch", "onnxruntime", "onnx", "sqlalchemy", "fastapi", "celery", "moocore", "pymoo"),
    "edgefront": ("torch", "onnxruntime", "onnx", "sqlalchemy", "fastapi", "celery"),
    "edgefront.agents.main": ("torch", "sqlalchemy", "fastapi", "celery"),
    "edgefront.core.graph.build": ("torch", "sqlalchemy", "onnxruntime"),
    "edgefront.core.graph.export": ("torch", "sqlalchemy"),
    "edgefront.core.search.registry": ("torch", "sqlalchemy", "matplotlib"),
    "edgefront.core.spaces.catalogue": ("torch", "sqlalchemy", "onnx"),
    "edgefront.core.cost.costs": ("torch", "sqlalchemy", "numpy"),
    "edgefront.core.wire.jobs": ("torch", "sqlalchemy", "numpy"),
    "edgefront.core.services.search.advance": ("torch", "fastapi", "matplotlib"),
    "edgefront.core.supernet.result": ("torch", "sqlalchemy", "matplotlib"),
    "edgefront.core.supernet.picture": ("torch", "sqlalchemy", "matplotlib"),
    "edgefront.core.recipes.recipe": ("torch", "sqlalchemy"),
    "edgefront.core.recipes.papers": ("torch", "sqlalchemy"),
    "edgefront.core.training.run_folder": ("torch", "sqlalchemy"),
    "edgefront.core.data.batches.batches": ("torch", "sqlalchemy", "tokenizers"),
    "edgefront.core.data.prepared.preparation": ("torch", "sqlalchemy"),
    "edgefront.api.app": ("torch", "workers", "agents"),
    "edgefront.workers.app": ("torch", "api", "agents", "fastapi"),
    "edgefront.workers.training.supervisor": ("torch", "api", "agents", "fastapi", "celery"),
}


@pytest.mark.parametrize("module", HEAVY_FREE)
def test_loads_without(module: str) -> None:
    code = f"import sys, {module}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not set(loaded.stdout.split()) & set(HEAVY_FREE[module])

"""An import only points down (docs/decisions/0001-layers-and-words.md), and neither rooms nor files form a circle."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "api", "workers", "agents", "edgefront", "migrations")

# Folder → its packages and files, lowest first: each imports itself and lower ones. Names are within `edgefront`.
ORDERS: dict[str, tuple[str, ...]] = {
    "core": (
        "common",
        "architectures",
        "model_files",
        "measurement",
        "quality",
        "search",
        "nn",
        "data",
        "schemas",
        "training",
        "store",
        "services",
    ),
    "core.services": (
        "settings",
        "tasks",
        "turns",
        "cursor",
        "stored",
        "spaces",
        "datasets",
        "idempotency",
        "work",
        "dispatch",
        "access",
        "event_log",
        "fleet",
        "quality",
        "trainings",
        "jobs",
        "measuring",
        "search",
        "prediction",
    ),
    "api": ("http", "docs", "polling", "context", "routers", "web", "app", "serve", "setup", "__main__"),
    "workers": ("training", "sweep", "retention", "work", "app"),
    "agents": ("device", "options", "server", "measuring", "loop", "main"),
    "edgefront": ("client", "embedded", "cli", "__main__"),
    "edgefront.cli": ("exits", "session", "workflows", "commands", "main"),
}
# Part → those that it may import besides itself; the longest prefix that matches decides.
ALLOWED: dict[str, set[str]] = {
    "core": set(),
    "migrations": {"core.common", "core.store", "core.services.settings"},  # alembic's command line reads the settings
    "api": {"core"},
    "workers": {"core"},
    "agents": {f"core.{room}" for room in ("common", "architectures", "model_files", "measurement", "nn", "schemas")},
    "edgefront": {"core", "api", "workers", "agents", "edgefront.__version__"},
}
for folder, order in ORDERS.items():
    for number, part in enumerate(order):
        ALLOWED[f"{folder}.{part}"] = ALLOWED[folder] | {f"{folder}.{lower}" for lower in order[:number]}
ALLOWED["core.store"] ^= {"core.training", "migrations"}
OURS = {*FOLDERS} - {"edgefront"}
BY_NAME = ("import_module", "setattr")
"""Calls that name a module in a string."""
DOTTED = re.compile(r"(edgefront|core|api|workers|agents|migrations)\.\w")

WITHOUT_FACE = re.compile(rf"(?<![\w.])({'|'.join(sorted(OURS))})(\.\w|\s+(import|as)\b|\s*(,|$))", re.MULTILINE)
"""What a file holds that names a module without `edgefront.`; only such files are parsed."""


@cache
def _modules() -> list[tuple[str, Path]]:
    """Modules of the folders of the repository, which `edgefront` links to: named within `edgefront`."""
    modules = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if any(part.is_symlink() for part in path.relative_to(ROOT).parents if str(part) != "."):
                continue
            if (ROOT / "edgefront" / path.relative_to(ROOT / folder).parts[0]).is_symlink() and folder == "edgefront":
                continue
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            modules.append((name.removesuffix(".__init__"), path))
    return modules


def _within(module: str, prefixes: set[str]) -> bool:
    return any(module == prefix or module.startswith(f"{prefix}.") for prefix in prefixes)


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """What may name a module."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return tuple(node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)))


def _named(path: Path) -> Iterator[str]:
    """Every module that the file names in an import, or in a string by which one is imported or run."""
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in BY_NAME:
            texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str) and DOTTED.match(text))


def _ours(path: Path) -> set[str]:
    """Of those, ours: named within `edgefront`, or `edgefront.…` for the face itself."""
    names = set()
    for name in _named(path):
        if name.split(".")[0] == "edgefront":
            within = name.removeprefix("edgefront.")
            names.add(within if within.split(".")[0] in OURS else name)
    return names


def test_imports_point_down() -> None:
    for module, path in _modules():
        owner = max((prefix for prefix in ALLOWED if _within(module, {prefix})), key=len, default=None)
        if owner is not None:  # else a bare package file
            wrong = {name for name in _ours(path) if not _within(name, ALLOWED[owner] | {owner})}
            assert not wrong, f"{module} may not import {sorted(wrong)}"


def test_there_is_one_name_outside() -> None:
    """`core`, `agents` and the like may be anybody's packages where this one is installed."""
    tests = [(str(path), path) for path in (ROOT / "tests").rglob("*.py") if WITHOUT_FACE.search(path.read_text())]
    for module, path in [*_modules(), *tests]:
        strangers = {name for name in _named(path) if name.split(".")[0] in OURS}
        assert not strangers, f"{module} imports {sorted(strangers)} without `edgefront.`"


@pytest.mark.parametrize("folder", ORDERS)
def test_an_order_names_all_of_its_folder(folder: str) -> None:
    within = [module.removeprefix(f"{folder}.") for module, _ in _modules() if module.startswith(f"{folder}.")]
    assert {name.split(".")[0] for name in within} == set(ORDERS[folder])


def test_no_test_module_is_imported() -> None:
    """What several files of tests use is in a module without `test_` beside them."""
    imported = re.compile(r"\b(from|import) +test_\w+")
    assert [path for path in (ROOT / "tests").rglob("*.py") if imported.search(path.read_text())] == []


def test_files_form_no_circle() -> None:
    modules = dict(_modules())
    uses: dict[str, set[str]] = {}
    for module, path in modules.items():
        whole = {name for name in _ours(path) if not name.endswith(".")}  # others are completed at run time
        named = {name if name in modules else name.rpartition(".")[0] for name in whole}
        below = f"{module}."  # a package may offer what is in it
        uses[module] = {name for name in named if name in modules and name != module and not name.startswith(below)}
    assert list(TopologicalSorter(uses).static_order())


def test_relative_imports_are_not_used() -> None:
    for module, path in _modules():
        for node in _nodes(path):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{module} imports relatively"


WITHOUT: tuple[dict[str, tuple[str, ...]], ...] = (
    {
        "edgefront.core.architectures.cost.costs": ("torch", "sqlalchemy", "numpy"),
        "edgefront.core.schemas.jobs": ("torch", "sqlalchemy", "numpy"),
        "edgefront": ("torch", "onnxruntime", "onnx", "sqlalchemy", "fastapi", "celery", "httpx"),
        "edgefront.core.training.proxies.registry": ("torch", "sqlalchemy", "numpy", "sklearn"),
        "edgefront.agents.measuring.forkserver": ("torch", "filelock"),  # filelock hooks into forks
        "edgefront.core.architectures.catalogue": ("torch", "sqlalchemy", "onnx"),
        "edgefront.core.quality.shipped": ("torch", "sqlalchemy", "sklearn", "scipy"),
        "edgefront.core.training.pruning.study_file": ("torch", "sqlalchemy", "scipy"),
        "edgefront.core.training.recipes.recipe": ("torch", "sqlalchemy"),
        "edgefront.core.training.recipes.catalogue": ("torch", "sqlalchemy"),
        "edgefront.core.training.run_folder": ("torch", "sqlalchemy"),
        "edgefront.core.data.batches.batches": ("torch", "sqlalchemy", "tokenizers"),
        "edgefront.core.measurement.prediction.latency": ("torch", "sqlalchemy", "onnx", "sklearn"),
        "edgefront.core.measurement.prediction.memory": ("torch", "sqlalchemy", "onnx", "sklearn"),
        "edgefront.cli.main": ("torch", "onnxruntime", "onnx", "sqlalchemy", "fastapi", "celery", "moocore"),
        "edgefront.core.data.prepared.preparation": ("torch", "sqlalchemy"),
        "edgefront.core.search.registry": ("torch", "sqlalchemy", "matplotlib"),
        "edgefront.core.search.supernet_settings": ("torch", "sqlalchemy", "matplotlib"),
        "edgefront.core.model_files.build": ("torch", "sqlalchemy", "onnxruntime"),
        "edgefront.core.model_files.export": ("torch", "sqlalchemy"),
        "edgefront.agents.main": ("torch", "sqlalchemy", "fastapi", "celery"),
        "edgefront.core.services.search.advance": ("torch", "fastapi", "matplotlib"),
    },
    {"edgefront.api.app": ("torch", "edgefront.workers", "edgefront.agents")},
    {
        "edgefront.workers.training.supervise": ("torch", "edgefront.api", "edgefront.agents", "fastapi", "celery"),
        "edgefront.workers.app": ("torch", "edgefront.api", "edgefront.agents", "fastapi"),
    },
)
"""Module → what it loads without. Those of a group are imported by one process, one after the other."""
IMPORTS = """
import importlib, json, sys
loaded = []
for module in sys.argv[1:]:
    importlib.import_module(module)
    loaded.append(sorted(sys.modules))
print(json.dumps(loaded))
"""


@pytest.mark.slow
@pytest.mark.parametrize("group", WITHOUT, ids=lambda group: next(iter(group)))
def test_loads_without(group: dict[str, tuple[str, ...]]) -> None:
    said = subprocess.run([sys.executable, "-c", IMPORTS, *group], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = dict(zip(group, map(set, json.loads(said.stdout)), strict=True))
    assert {module: set(without) & loaded[module] for module, without in group.items()} == {
        module: set() for module in group
    }


HOMES = {
    r"^_?[MG]IB = ": "core/common/units.py",
    r"[\"'](device|class):": "core/services/fleet/device_keys.py",
    r"= \"(127\.0\.0\.1|::1)\"": "core/common/addresses.py",
    r"def _?is_loopback\b": "core/common/addresses.py",
    r"^(LIVE|ACTIVE|ENDED)_\w+ = ": "core/common/states.py",
    r"^(Quantisation|NumberFormat) = ": "core/common/number_formats.py",
    r"[\"'](tokenizer_config|generation_config)\.json[\"']": "core/common/hugging_face.py",
    r"\b(1\.96|1\.959\d*|1\.4826)\b": "core/measurement/statistics.py",
    r"def _?matern": "core/common/gaussian_process.py",
    r"^MAX_KEY = ": "core/services/idempotency.py",
}
"""What marks the definition of a fact → the file that it is defined in."""


@pytest.mark.parametrize(("mark", "home"), HOMES.items())
def test_a_fact_has_one_home(mark: str, home: str) -> None:
    pattern = re.compile(mark, re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for _, path in _modules() if pattern.search(path.read_text())] == [home]


STATE_AS_TEXT = re.compile(r"""\b(state|purpose) (==|!=|in|not in) \(?["']|\.state = ["']""")


def test_no_state_is_compared_as_text() -> None:
    own = [(name, path) for name, path in _modules() if not _within(name, {"migrations"})]
    assert [name for name, path in own if STATE_AS_TEXT.search(path.read_text())] == []


PROGRAMS = sorted(path for folder in ("benchmarks", "docs", "scripts") for path in (ROOT / folder).glob("*.py"))


def test_what_programs_beside_the_package_import_is_there() -> None:
    """They are in no room and in no other test, so a name that moved would be missed."""
    for node in (node for path in PROGRAMS for node in _nodes(path)):
        if isinstance(node, ast.ImportFrom) and _within(node.module or "", {"edgefront"}):
            missing = {alias.name for alias in node.names} - _names(ROOT.joinpath(*str(node.module).split(".")))
            assert not missing, f"{node.module} has no {missing}"


@cache
def _names(module: Path) -> set[str]:
    """What can be imported from a module or a package."""
    inside = {path.stem for path in module.iterdir()} if module.is_dir() else set()
    source = module / "__init__.py" if module.is_dir() else module.with_suffix(".py")
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        for part in ast.walk(node) if isinstance(node, ast.If | ast.Try) else (node,):
            if isinstance(part, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                inside.add(part.name)
            elif isinstance(part, ast.Import | ast.ImportFrom):
                inside |= {alias.asname or alias.name for alias in part.names}
            elif isinstance(part, ast.Assign | ast.AnnAssign):
                targets = part.targets if isinstance(part, ast.Assign) else [part.target]
                inside |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    return inside


def test_python_children_are_started_by_one_function() -> None:
    """Else a file of the user's working folder may be a module to them (`core.common.processes.child.python`)."""
    naming = {name for name, path in _modules() if "sys.executable" in path.read_text(encoding="utf-8")}
    assert naming == {"core.common.processes.child"}

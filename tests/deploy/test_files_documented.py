"""Files, rooms and imports that the documents name are there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("CONTRIBUTING.md", "docs/how-it-works.md", "docs/decisions/0015-rooms-and-one-name.md")
FOLDERS = ("core", "api", "workers", "agents", "edgefront")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_files_exist(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    named = set(re.findall(r"`([\w/-]+\.(?:py|js))`", text)) - {"utils.py"}
    assert named
    # A path may begin anywhere: `jobs/progress.py` stands where `core/services` was named.
    paths = {
        path.as_posix() for folder in (*FOLDERS, "tests", "scripts") for path in Path(ROOT / folder).rglob("*.[pj]*")
    }
    assert not {name for name in named if not any(path.endswith(f"/{name}") for path in paths)}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_named_functions_are_in_the_file_that_follows(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    for name, file in re.findall(r"`(\w+)`\s+\(`(\w+/[\w/]+\.py)`\)", text):
        defined = rf"^ *((async )?def|class) {name}\b|^{name}\b[^=\n]*="
        assert re.search(defined, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), f"{file} has no {name}"


def test_the_picture_has_every_room() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = text[text.index("```\nedgefront/") :].split("```")[1]
    for folder in ("core/services", "agents", "workers"):
        rooms = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
        assert {room for room in rooms if not re.search(rf"\b{room}\b", picture)} == set()


@pytest.mark.parametrize(
    "document", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"], ids=lambda path: path.name
)
def test_python_in_the_documents_imports_what_exists(document: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```$", document.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module:
                module = importlib.import_module(node.module)
                assert all(hasattr(module, alias.name) for alias in node.names)

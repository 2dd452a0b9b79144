"""What is read in part is read in an order: without one, a database returns whichever rows it comes to first."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path for part in ("core/services", "core/store", "api", "workers") for path in (ROOT / part).rglob("*.py")
)


def unordered(text: str) -> list[int]:
    """The lines on which `.limit(…)` is asked of a query that has no `.order_by(…)` before it."""
    tree = ast.parse(text)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    found = []
    for scope in [tree, *functions.values()]:
        names = {
            target.id: node.value
            for node in _own(scope)
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        found += [
            node.lineno
            for node in _own(scope)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "limit"
            and not _is_ordered(node.func.value, names, functions)
        ]
    return found


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module or function but those of functions in it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef) or isinstance(scope, ast.ClassDef):
            yield child
            yield from _own(child)


def _is_ordered(value: ast.expr, names: dict[str, ast.expr], functions: dict[str, ast.FunctionDef]) -> bool:
    if isinstance(value, ast.IfExp):
        return all(_is_ordered(branch, names, functions) for branch in (value.body, value.orelse))
    if isinstance(value, ast.Name):
        others = {name: other for name, other in names.items() if name != value.id}
        return value.id in names and _is_ordered(names[value.id], others, functions)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        return value.func.attr == "order_by" or _is_ordered(value.func.value, names, functions)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in functions:
        returned = [node.value for node in ast.walk(functions[value.func.id]) if isinstance(node, ast.Return)]
        return all(statement is not None and "order_by" in ast.unparse(statement) for statement in returned)
    return False


def test_no_query_takes_some_of_its_rows_in_no_order() -> None:
    found = {path.relative_to(ROOT).as_posix(): unordered(path.read_text(encoding="utf-8")) for path in FILES}
    assert len(found) > 100
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("select(A).limit(1)", [1]),
        ("select(A).limit(1).order_by(A.id)", [1]),
        ("select(A).order_by(A.id).where(A.b).limit(1)", []),
        ("def f():\n    q = select(A)\n    return q.limit(1)", [3]),
        ("def f():\n    q = select(A)\n    return q.order_by(A.id).limit(1)", []),
        ("def f(a):\n    q = select(A).order_by(A.id)\n    p = q if a else q.where(a)\n    return p.limit(1)", []),
        ("def f(a):\n    q = select(A)\n    p = q.order_by(A.id) if a else q\n    return p.limit(1)", [4]),
        ("def g():\n    return select(A).order_by(A.id)\ndef f():\n    return g().where(A.b).limit(1)", []),
        ("def g():\n    return select(A)\ndef f():\n    return g().where(A.b).limit(1)", [4]),
    ],
)
def test_such_a_query_is_seen(text: str, lines: list[int]) -> None:
    assert unordered(text) == lines

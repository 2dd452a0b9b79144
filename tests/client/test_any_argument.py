"""Any argument of the Python client, and any answer, ends in a result or in one of the project's errors."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rough_server import Rough, answer, rough_server

import edgefront
from edgefront import Client
from edgefront.client.resources.repeated import follow_log
from edgefront.client.transport import Transport
from edgefront.core.common.errors import EdgefrontError

RESOURCES = ("jobs", "candidates", "models", "trainings", "devices", "tokens", "keys", "catalogue")
NOT_ASKED = {"close", "to_pandas"}
"""Methods that send nothing, or need an extra."""


def methods() -> dict[str, Callable[[Client], Callable[..., Any]]]:
    """Each public method of the client and its resources, by the words a caller writes."""
    by_name: dict[str, Callable[[Client], Callable[..., Any]]] = {}
    with Client("http://127.0.0.1:1") as client:
        for name, _ in inspect.getmembers(type(client), inspect.isfunction):
            by_name[name] = lambda client, name=name: getattr(client, name)  # type: ignore[misc]
        for resource in RESOURCES:
            for name, _ in inspect.getmembers(type(getattr(client, resource)), inspect.isfunction):
                by_name[f"{resource}.{name}"] = lambda client, resource=resource, name=name: getattr(  # type: ignore[misc]
                    getattr(client, resource), name
                )
    kept = {name: get for name, get in by_name.items() if not name.rpartition(".")[2].startswith("_")}
    return {name: get for name, get in kept.items() if name.rpartition(".")[2] not in NOT_ASKED}


METHODS = methods()

TEXTS = st.sampled_from(["", "a", "a/../b", "job_x", "\udcff", "\0", "é", "x" * 5000, "class="])
NUMBERS = st.sampled_from([0, -1, 1, 10**20, -(10**400), True])
REALS = st.sampled_from([0.5, -1.0, float("nan"), float("inf"), 1e308])
LEAVES = TEXTS | NUMBERS | REALS | st.none() | st.sampled_from([b"x", {1}, object()])
FIELDS = st.sampled_from(["name", "space", "targets", "budget", "narrow", "architecture", "protocol", "version", "x"])
TREES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=3))
MAPPINGS = st.dictionaries(FIELDS, TREES, max_size=4)

ANSWERS = [b"", b"null", b"[]", b"{}", b'"x"', b"<html>", b'{"items": [{}]}', b'{"items": 5}', b'[{"id": 1}]', b"\xff"]
ANSWERS += [b"[" * 100_000, b'{"items": [], "next_cursor": null}', b'{"id": NaN, "state": []}', b"1" * 5000]


def values(parameter: inspect.Parameter, folder: Path) -> st.SearchStrategy[Any]:
    kind = str(parameter.annotation)
    if "PathLike" in kind:
        return st.just(folder / "new.svg")
    if "Callable" in kind or "Progress" in kind:
        return st.none()
    if "Mapping" in kind:
        return st.lists(MAPPINGS | TEXTS, max_size=2) if "Sequence" in kind else MAPPINGS
    if "Sequence" in kind or "Collection" in kind:
        return st.lists(TEXTS, max_size=2)
    if parameter.kind is parameter.VAR_KEYWORD:
        return st.none()
    plain = NUMBERS if "int" in kind else REALS if "float" in kind else st.booleans() if "bool" in kind else TEXTS
    return plain | st.none() if "None" in kind else plain


@pytest.fixture(scope="module")
def rough() -> Iterator[Rough]:
    with rough_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(rough: Rough) -> Iterator[Client]:
    with Client(rough.url, "efk_secret", patience_s=0.0) as client:
        yield client


@pytest.mark.parametrize("name", METHODS)
def test_nothing_but_an_error_of_this_project_comes_out(
    name: str, rough: Rough, client: Client, tmp_path: Path
) -> None:
    call = METHODS[name](client)
    parameters = [item for item in inspect.signature(call).parameters.values() if item.kind is not item.VAR_KEYWORD]
    arguments = st.fixed_dictionaries(
        {item.name: values(item, tmp_path) for item in parameters if item.default is item.empty},
        optional={item.name: values(item, tmp_path) for item in parameters if item.default is not item.empty},
    )

    @settings(max_examples=settings.default.max_examples // 5, suppress_health_check=list(HealthCheck))
    @given(arguments, st.sampled_from(ANSWERS))
    def check(given: dict[str, Any], body: bytes) -> None:
        rough.answers = [answer(200, body)]
        # OSError: of the file that it should write.
        with suppress(EdgefrontError, *([OSError] if "path" in given else [])):
            outcome = call(**given)
            list(islice(outcome, 3)) if inspect.isgenerator(outcome) else outcome

    check()


def test_an_answer_of_another_release_says_what_could_not_be_read(client: Client, rough: Rough) -> None:
    rough.answers = [answer(200, b'[{"id": 5}]')]
    with pytest.raises(EdgefrontError, match=r"edgefront \S+ cannot read as .*KeyView.*0\.id: must be text") as caught:
        client.keys.list()
    assert rough.url in caught.value.detail
    rough.answers = [answer(200, b"<html>", content_type="text/html")]
    with pytest.raises(EdgefrontError, match="is not JSON"):
        client.health()


def test_an_event_that_cannot_be_read_is_an_error(rough: Rough) -> None:
    rough.answers = [answer(200, b"id: 1\ndata: {\n\n", content_type="text/event-stream")]
    transport = Transport(rough.url, None, timeout_s=5, patience_s=0)
    running = SimpleNamespace(state="running", last_event=1)
    log = follow_log(transport, "/events", lambda: running, (), after=0, kinds=None)
    with pytest.raises(EdgefrontError, match="cannot read as an event"):
        list(log)
    transport.close()


READ = {"model_validate", "model_validate_json", "validate_json", "validate_python"}


def read_unguarded(node: ast.AST) -> Iterator[str]:
    """What reads a model where pydantic's error is not caught."""
    if isinstance(node, ast.Try) and any(
        "ValidationError" in ast.unparse(handler.type or node) for handler in node.handlers
    ):
        return
    if isinstance(node, ast.Attribute) and node.attr in READ:
        yield node.attr
    for child in ast.iter_child_nodes(node):
        yield from read_unguarded(child)


def test_what_is_read_and_sent_is_checked_in_one_place() -> None:
    """`checked` for requests, `Transport` for answers: elsewhere pydantic's error would come out."""
    root = Path(edgefront.__file__).parent
    files = {*(root / "client").rglob("*.py"), *(root / "cli" / "commands").rglob("*.py")}
    for path in files - {root / "client" / "transport.py"}:
        wrong = list(read_unguarded(ast.parse(path.read_text())))
        assert not wrong, f"{path.name} calls {wrong}"

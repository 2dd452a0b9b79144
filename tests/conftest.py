"""Fixtures of the whole suite: real databases, migrated once and copied for each test, and a real Redis."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import databases
import pytest
from databases import EmptyDatabase, PostgresServer
from filelock import FileLock
from hypothesis import HealthCheck, core, settings
from hypothesis.internal.conjecture import providers
from hypothesis.vendor import pretty
from sqlalchemy import URL, Engine, create_engine, make_url

import servers
from edgefront.agents.device.probe import probe
from edgefront.core.store.database import Database

# One thread for linear algebra, here and in what tests start: several processes test at once, and threads of OpenBLAS
# that wait for a core spin: a law that is fitted in 14 s of a core takes 66 with two threads on two busy cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# ONNX Runtime would report from a thread that it starts on import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# The same examples everywhere, so that no run fails by chance: more of them for `make test-long`; `make fuzz` looks for
# others. No deadlines: shared machines are noisy.
settings.register_profile(
    "edgefront", deadline=None, derandomize=True, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("long", settings.get_profile("edgefront"), max_examples=500)
settings.register_profile("fuzz", settings.get_profile("long"), derandomize=False, database=None)
settings.load_profile("edgefront")
# Hypothesis would draw some examples from the constants of all modules imported so far, which depend on the files that
# this process tested before. It has no public way to leave them out.
providers._get_local_constants = providers.Constants  # type: ignore[attr-defined]
# schemathesis keeps Hypothesis from printing the example on which a test fails.
core.RepresentationPrinter = pretty.RepresentationPrinter  # type: ignore[attr-defined]


def pytest_xdist_auto_num_workers() -> int:
    """One process a core that this one may use, and one more, for many tests wait for processes of their own; but no
    more than four: each holds its own copy of torch.
    """
    allowed = getattr(os, "sched_getaffinity", None)
    return min(4, 1 + (len(allowed(0)) if allowed else os.cpu_count() or 1))


ORDER = (
    *("e2e/test_demo.py", "agents/test_agent_process.py", "e2e", "workers/test_redis_worker.py", "agents", "workers"),
    "examples",
    *("deploy", "faults", "api", "services", "models", "training", "supernet", "proxies", "client", "web", ""),
)
"""Files and folders, the slowest first, so that the last files are short and every process ends at the same time. What
keeps a service or a browser until its session ends comes late.
"""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # pytest-xdist would put the files with most tests first


def _place(item: pytest.Item) -> int:
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return next(place for place, start in enumerate(ORDER) if path.startswith(start))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the slowest first."""
    items.sort(key=_place)


TORCH = {"gpu", "inherit", "models", "proxies", "supernet", "training"}
"""Folders whose tests run torch in this process."""


@pytest.fixture(autouse=True, scope="module")
def one_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """One thread for torch: these models are tiny, and threads would wait for each other at every operator."""
    if request.path.relative_to(Path(__file__).parent).parts[0] not in TORCH:
        yield
        return
    import torch  # only where it is needed: it takes seconds to load

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session", autouse=True)
def own_measuring_lock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Agents of these tests wait for each other, not for those of other processes that test or measure here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDGEFRONT_MEASURE_LOCK", str(tmp_path_factory.mktemp("lock") / "measure.lock"))
        yield


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], None]], Path]:
    """`made_once(name, make)`: what `make(path)` makes there, once for all processes that test."""
    base = tmp_path_factory.getbasetemp()
    folder = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def get(name: str, make: Callable[[Path], None]) -> Path:
        with FileLock(folder / f"{name}.lock"):
            if not (folder / name).exists():
                make(folder / f"{name}.new")
                (folder / f"{name}.new").rename(folder / name)
        return folder / name

    return get


@pytest.fixture(scope="session")
def known_device(made_once: Callable[[str, Callable[[Path], None]], Path]) -> dict[str, str]:
    """Environment variables of a program whose agent knows its device."""
    path = made_once("facts.json", lambda new: new.write_text(probe().model_dump_json(), encoding="utf-8"))
    return {"PYTHONPATH": str(Path(__file__).parent / "known_device"), "EDGEFRONT_TEST_FACTS": str(path)}


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[URL]:
    with servers.postgres() as url:
        yield make_url(url)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    with servers.redis_server() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_template(postgres_server: URL) -> Iterator[str]:
    """A migrated, empty database to clone."""
    server = PostgresServer(postgres_server)
    name = server.create_template()
    yield name
    server.drop(name)


@pytest.fixture(scope="session")
def folder_in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where commits cost nothing: for what a test does not mean to find on a disk."""
    with databases.folder_in_memory(otherwise=tmp_path_factory.mktemp("memory")) as folder:
        yield folder


@pytest.fixture(scope="session")
def sqlite_template(folder_in_memory: Path) -> Path:
    path = folder_in_memory / "template.db"
    databases.migrate(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path) -> Iterator[str]:
    with TemporaryDirectory(dir=sqlite_template.parent) as folder:
        path = Path(folder) / "edgefront.db"
        shutil.copyfile(sqlite_template, path)
        yield f"sqlite:///{path}"


@pytest.fixture(scope="session")
def _empty_postgres(postgres_server: URL, postgres_template: str) -> Iterator[EmptyDatabase]:
    made = EmptyDatabase(PostgresServer(postgres_server), postgres_template)
    yield made
    made.drop()


@pytest.fixture
def postgres_url(postgres_server: URL, _empty_postgres: EmptyDatabase) -> Iterator[str]:
    yield PostgresServer(postgres_server).url_of(_empty_postgres.name)
    _empty_postgres.clear()


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> str:
    """A migrated, empty database, on SQLite unless a test is marked `ON_BOTH` (`databases.py`)."""
    return str(request.getfixturevalue(f"{getattr(request, 'param', 'sqlite')}_url"))


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """Databases of one kind share what SQLAlchemy compiles, as the requests to one service do: thousands of tests open
    one each, and would compile every statement anew (an eighth of their time).
    """
    connected: dict[str, Engine] = {}

    def create(url: URL, **options: Any) -> Engine:
        engine = create_engine(url, query_cache_size=5000, **options)
        earlier = connected.get(url.drivername)
        if earlier is not None and earlier.dialect.server_version_info:  # what it learnt from its server holds for all
            engine.dialect, engine._compiled_cache = earlier.dialect, earlier._compiled_cache
        else:
            connected[url.drivername] = engine
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edgefront.core.store.database.create_engine", create)
        yield


@pytest.fixture
def open_database() -> Iterator[Callable[..., Database]]:
    """Opens databases and closes them at the end: `open_database(url, send=…)`."""
    opened: list[Database] = []

    def opener(url: str, **kwargs: object) -> Database:
        opened.append(Database(url, **kwargs))  # type: ignore[arg-type]
        return opened[-1]

    yield opener
    for database in opened:
        database.dispose()


@pytest.fixture
def database(database_url: str, open_database: Callable[..., Database]) -> Database:
    """A `Database` whose sent tasks go nowhere."""
    return open_database(database_url)

"""The real servers that the suite runs against: those named, those on this host, or throw-away ones.

Order for each: the environment variable, the standard port on localhost, a server started from the binaries on this
machine. `make test` gets these, or says what to install: nothing is skipped.
"""

from __future__ import annotations

import getpass
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psycopg
import redis
import yaml
from sqlalchemy import make_url

import tools

_RANDOM = random.SystemRandom()
_ROOT = Path(__file__).parents[1]
_TEMPLATES = Path("/etc/nginx/templates")
"""Where the image of nginx takes templates from."""


def free_port() -> int:
    """One that nobody listens on, and that the system gives to no connection before somebody does (RFC 6335)."""
    while True:
        port = _RANDOM.randrange(10_000, 32_000)  # below those that Linux takes by itself
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def postgres() -> Iterator[str]:
    """An SQLAlchemy URL of a Postgres server on which databases may be created."""
    running = running_postgres()
    if running is not None:
        yield running
        return
    with closing(OwnPostgres()) as server:
        server.start()
        yield server.url


def running_postgres() -> str | None:
    """The URL of the server that was named (which must be usable), else of one on this host."""
    given = os.environ.get("EDGEFRONT_TEST_DATABASE_URL")
    if given:
        _check_postgres(given)
        return given
    return next(filter(_is_usable, _usual_places()), None)


@contextmanager
def redis_server() -> Iterator[str]:
    """A URL of an empty database on a Redis server; emptied again at the end."""
    given = os.environ.get("EDGEFRONT_TEST_REDIS_URL")
    if given:
        redis.Redis.from_url(given).ping()
        yield given
        return
    client = _unused_redis()
    if client is not None:
        try:
            yield f"redis://localhost:6379/{client.connection_pool.connection_kwargs['db']}"
        finally:
            client.flushdb()
            client.close()
        return
    with own_redis() as url:
        yield url


def _unused_redis() -> redis.Redis | None:
    """An empty database of the server on this host, marked as taken: another suite may be looking for one just now."""
    with suppress(redis.RedisError):
        for number in range(15, 0, -1):
            client = redis.Redis(db=number)
            if client.dbsize() == 0 and client.set("edgefront-tests", os.getpid(), nx=True, ex=7200):
                return client
            client.close()
    return None


class OwnRedis:
    """A Redis server of our own on a free port, with nothing on disk. It can be killed and started again."""

    def __init__(self, port: int | None = None) -> None:
        self._binary = tools.REDIS.path()
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers."""
        command = [self._binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        self._process = subprocess.Popen([*command, "--dir", self._folder.name], stdout=subprocess.DEVNULL)
        client = redis.Redis(port=self.port)
        _wait(lambda: client.ping(), redis.RedisError)
        client.close()

    def kill(self) -> None:
        """SIGKILL: what it held is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


@contextmanager
def own_redis(port: int | None = None) -> Iterator[str]:
    """The URL of a Redis server of our own, ended at the end."""
    with closing(OwnRedis(port)) as server:
        server.start()
        yield server.url


class OwnPostgres:
    """A Postgres server of our own on a free port, with a new cluster. It can be killed and started again."""

    def __init__(self) -> None:
        self._binaries = Path(tools.POSTGRES.path()).parent
        # Postgres refuses to run as root.
        self._user = "postgres" if os.geteuid() == 0 else None
        self._folder = tempfile.TemporaryDirectory()
        self._data = Path(self._folder.name) / "data"
        self._data.mkdir()
        self._data.parent.chmod(0o755)
        if self._user:
            shutil.chown(self._data, self._user)
        subprocess.run(
            [self._binaries / "initdb", "-D", self._data, "-A", "trust", "-U", "edgefront", "--no-sync"],
            check=True,
            stdout=subprocess.DEVNULL,
            user=self._user,
        )
        self.port = free_port()
        self.url = f"postgresql+psycopg://edgefront@127.0.0.1:{self.port}/postgres"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it answers, after it has recovered if it was killed."""
        options = ["-D", self._data, "-p", str(self.port), "-h", "127.0.0.1", "-k", self._data, "-F"]
        self._process = subprocess.Popen(
            [self._binaries / "postgres", *options], stderr=subprocess.DEVNULL, user=self._user
        )
        _wait(lambda: _check_postgres(self.url), psycopg.Error, seconds=60)

    def kill(self) -> None:
        """Ends all of it at once, without a checkpoint (SIGQUIT to its first process): as in a crash."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(60)

    def close(self) -> None:
        self.kill()
        self._folder.cleanup()


class OwnNginx:
    """A proxy of docker-compose.yml in front of an API at `host:port`, on free ports.

    Args:
        service: `proxy`, or `https` (which needs a module that only its image has: edit its files in `folder`).
        values: of `EDGEFRONT_PROXY_…`, instead of those that compose gives, by the rest of their names.
    """

    def __init__(self, api: str, service: str = "proxy", **values: object) -> None:
        self._binary = tools.NGINX.path()
        self._folder = tempfile.TemporaryDirectory()
        self.folder = Path(self._folder.name)
        names = ("LISTEN", "LISTEN_BEHIND", "LISTEN_HTTPS", "LISTEN_HTTP")
        listen = {name: str(values.get(name, f"127.0.0.1:{free_port()}")) for name in names}
        self.url, self.url_behind = (f"http://{listen[name]}" for name in ("LISTEN", "LISTEN_BEHIND"))
        self.url_https, self.url_http = f"https://{listen['LISTEN_HTTPS']}", f"http://{listen['LISTEN_HTTP']}"
        given = {f"EDGEFRONT_PROXY_{name}": str(value) for name, value in {"API": api, **listen, **values}.items()}
        _write_proxy_configuration(self.folder, service, given)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it accepts connections."""
        command = [self._binary, "-e", "stderr", "-p", self._folder.name, "-c", "nginx.conf"]
        # Its workers own their temporary files as the tests do.
        directives = "daemon off;" + (f" user {getpass.getuser()};" if os.geteuid() == 0 else "")
        self._process = process = subprocess.Popen([*command, "-g", directives])

        def ask() -> None:
            assert process.poll() is None, "nginx ended while it started"
            host, _, port = self.url.removeprefix("http://").partition(":")
            socket.create_connection((host, int(port)), 1).close()

        _wait(ask, OSError)

    def close(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
        self._folder.cleanup()


@contextmanager
def own_nginx(api: str, **values: object) -> Iterator[OwnNginx]:
    """A running proxy in front of an API, ended at the end."""
    with closing(OwnNginx(api, **values)) as proxy:
        proxy.start()
        yield proxy


def _write_proxy_configuration(folder: Path, service: str, values: dict[str, str]) -> None:
    """Writes the templates that compose mounts for this service, with the values that it gives and these instead, as
    the image of nginx does: only variables that are set are replaced, so that those of nginx stay.
    """
    proxy = yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"][service]
    given = {name: re.sub(r"^\$\{\w+:-(.*)\}$", r"\1", str(value)) for name, value in proxy["environment"].items()}
    given |= {"NGINX_LOCAL_RESOLVERS": "127.0.0.11"} | values
    for mount in proxy["volumes"]:
        source, target = (Path(part) for part in mount.split(":")[:2])
        if not (_ROOT / source).exists():  # a volume, not a file of the project
            continue
        for template in [_ROOT / source, *(_ROOT / source).glob("*.template")]:
            if template.is_file():
                text = template.read_text(encoding="utf-8")
                for name, value in given.items():
                    text = text.replace(f"${{{name}}}", value)
                path = folder / target.relative_to(_TEMPLATES) / template.relative_to(_ROOT / source)
                path.parent.mkdir(exist_ok=True)
                path.with_suffix("").write_text(text, encoding="utf-8")


def _usual_places() -> Iterator[str]:
    for user in dict.fromkeys((getpass.getuser(), "postgres")):
        for place in ("@localhost:5432", "@"):
            yield f"postgresql+psycopg://{user}{place}/postgres"


def _is_usable(url: str) -> bool:
    try:
        _check_postgres(url)
    except (psycopg.Error, AssertionError):
        return False
    return True


def _check_postgres(url: str) -> None:
    conninfo = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(conninfo, connect_timeout=30) as connection:
        row = connection.execute("SELECT rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
        assert row is not None
        assert row[0], f"{url}: this role may not create databases"


def _wait(ready: object, errors: type[Exception], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            ready()  # type: ignore[operator]
        except errors:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
        else:
            return

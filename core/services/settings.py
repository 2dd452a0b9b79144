"""Settings of the service: environment variables `EDGEFRONT_…`, nested by two underscores.

`EDGEFRONT_DATABASE__URL=postgresql+psycopg://…`, `EDGEFRONT_BROKER__URL=redis://…`. The same class serves the API,
the workers and the embedded service; only the values differ.
"""

from __future__ import annotations

import json
import os
import re
import socket
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, urlsplit

from platformdirs import user_data_dir
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from edgefront.core.common.addresses import LOOPBACK, is_local
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.logs import LogFormat
from edgefront.core.common.validation import existing, invalid_input

PREFIX = "EDGEFRONT_"
FILE = "_FILE"
"""What ends the name of a variable that names a file with the value of the setting."""


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid")


_CERTIFICATE_CHECKS = ("required", "optional", "none")
_BROKER_OPTIONS = {
    "redis": set[str](),
    "rediss": {f"ssl_{name}" for name in ("cert_reqs", "ca_certs", "certfile", "keyfile", "check_hostname")},
    "redis+socket": {"virtual_host"},
}
"""URL scheme → query options that a broker URL of this scheme may have."""


class DatabaseSettings(_Group):
    url: str | None = Field(default=None, repr=False)
    """SQLAlchemy URL of the database. If absent, SQLite in the data folder is used."""
    pool_size: int = Field(default=8, ge=1, le=64)


class BrokerSettings(_Group):
    url: str = Field(default="memory://", repr=False)
    """URL of the Redis server of API and workers: `redis://…`, `rediss://…` (TLS) or `redis+socket:///…`. With
    `memory://`, messages stay within the process; `edgefront up` uses this, because its worker runs in the process of
    its API.
    """

    @field_validator("url")
    @classmethod
    def _usable(cls, url: str) -> str:
        """Checks the URL. Turns on verification of the broker's certificate in a TLS URL that lacks this option."""
        scheme, _, rest = url.partition("://")
        if scheme == "memory":
            return url
        try:
            parts = urlsplit(url)
            given = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
            is_usable = parts.port != 0 and not parts.fragment and set(given) <= _BROKER_OPTIONS[scheme]
            is_usable = is_usable and given.get("ssl_cert_reqs", "none") in _CERTIFICATE_CHECKS
            database = given.get("virtual_host", "") if scheme == "redis+socket" else parts.path
        except (KeyError, ValueError):
            is_usable, database = False, ""
        location = parts.path if scheme == "redis+socket" and is_usable else rest
        if not is_usable or not location or not re.fullmatch(r"/?\d*", database):
            raise InvalidInput(  # without the URL, which holds a password
                "this is not the URL of a broker, such as redis://HOST:6379/0, rediss://… for TLS, or "
                "redis+socket:///PATH. A user name or password must write /, ?, # and @ as %2F, %3F, %23 and %40",
                allowed="redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], the same with rediss:// for TLS (and "
                "?ssl_cert_reqs=none for a certificate of no known authority), redis+socket:///PATH, or memory://",
            )
        if scheme == "rediss" and "ssl_cert_reqs" not in given:
            return f"{url}{'&' if parts.query else '?'}ssl_cert_reqs=required"
        return url


class LeaseSettings(_Group):
    ttl_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds after the latest heartbeat at which a lease expires."""
    heartbeat_s: float = Field(default=15.0, gt=0, le=600)
    max_wait_s: float = Field(default=30.0, ge=0, le=60)
    sweep_s: float = Field(default=5.0, gt=0, le=600)
    """Seconds between two sweeps, which return expired leases and resume stalled targets."""


class HttpSettings(_Group):
    host: str = LOOPBACK
    port: int = Field(default=8090, ge=0, le=65535)
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?$")
    """Address at which devices reach the service, such as `https://edgefront.example`; shown for starting an agent.
    Detected if absent. A path in the address is the path below which a proxy serves the service.
    """
    share_port: bool = False
    """Whether API processes on one machine share the port. The kernel distributes connections among the processes."""
    insecure: bool = False
    """Whether to serve plain HTTP beyond loopback: only safe behind a proxy that ends TLS, or in a trusted network."""
    certificate: Path | None = None
    """TLS certificate chain (PEM). With it and `certificate_key`, the service itself serves HTTPS."""
    certificate_key: Path | None = None
    trusted_proxies: str = ""
    """Addresses or networks of proxies, comma-separated. Their X-Forwarded-For and X-Forwarded-Proto are trusted."""

    @field_validator("trusted_proxies")
    @classmethod
    def _addresses(cls, proxies: str) -> str:
        for proxy in cls.model_construct(trusted_proxies=proxies).proxies:
            try:
                ip_network(proxy, strict=False)
            except ValueError as error:
                raise InvalidInput(f"{error}", allowed="addresses or networks, separated by commas") from None
        return proxies

    user_header: str | None = Field(default=None, pattern=r"^[A-Za-z0-9-]{1,100}$")
    """Header in which a trusted proxy names the person who has signed in, such as `X-Forwarded-Email`. That person has
    the role user, and owns what has this name.
    """
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    connections: int = Field(default=4096, ge=8, le=1_000_000)
    """Maximum number of connections of one process. Requests on further connections get 503."""

    @property
    def proxies(self) -> tuple[str, ...]:
        """Addresses and networks of trusted proxies."""
        return tuple(filter(None, map(str.strip, self.trusted_proxies.split(","))))

    @property
    def root_path(self) -> str:
        """Path below which a proxy serves the service, without a slash at the end; empty without such a path."""
        return urlsplit(self.url or "").path.rstrip("/")


class OwnerSettings(_Group):
    stored_bytes: int = Field(default=100 << 30, ge=1)
    """Maximum total size of the files of one owner's trainings."""


class RetentionSettings(_Group):
    jobs_days: float | None = Field(default=None, gt=0)
    """Days after its end for which a job is kept. Kept until deleted if absent."""
    trainings_days: float | None = Field(default=None, gt=0)
    """Days after its end for which a training is kept, with its checkpoints and result."""
    trainings_bytes: int | None = Field(default=None, ge=1)
    """Maximum total size of the files of all trainings. Above it, the trainings that ended first are deleted."""


class DataSettings(_Group):
    max_unpacked_bytes: int = Field(default=64 << 30, ge=1)
    """Maximum size of an unpacked archive of a data set. Larger archives are refused."""
    max_unpacked_files: int = Field(default=100_000, ge=1)
    max_import_bytes: int = Field(default=32 << 30, ge=1)
    """Maximum size of an imported model."""
    max_model_bytes: int = Field(default=32 << 30, ge=1)
    """Maximum total size of the candidates' model files that are stored for download. The oldest files are removed, and
    built again on request. A single model above this size is refused.
    """


class TrainingSettings(_Group):
    data: Path | None = None
    """Folder of prepared data sets; `data` in the data folder if absent. Trainings read no data outside this folder."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of a training whose request does not name a device."""
    slots: int = Field(default=1, ge=0, le=256)
    """Maximum number of trainings without a GPU that a worker runs at once, beside one training on each GPU."""
    gpus: int | None = Field(default=None, ge=0, le=64)
    """Number of GPUs that a worker uses; if absent, all GPUs that the system reports."""
    threads: int | None = Field(default=None, ge=1, le=4096)
    """Number of CPU threads of one training process. If absent: with a GPU torch's default, else half of the cores
    divided by the number of slots, because small models get slower when threads compete with other processes.
    """
    worker: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the worker under which it owns its trainings; the host's name if absent. Workers that share the slots of
    a host must have the same name; workers with their own GPUs must have different names.
    """
    ttl_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds after the latest heartbeat at which a training's lease expires, and another worker may resume it."""
    poll_s: float = Field(default=2.0, gt=0, le=60)
    """Seconds between two polls, which store a training's state and read requests to pause or cancel the training."""
    grace_s: float = Field(default=120.0, ge=0, le=3600)
    """Seconds that a stopped training has to write a checkpoint before its process is killed."""
    end_with_worker: bool = False
    """Whether trainings stop when their worker stops. Needed in containers, where no process outlives the worker."""
    command: tuple[str, ...] | None = None
    """Command that trains, without the training's folder. `python -m edgefront.core.training.run` if absent."""


class Settings(BaseSettings):
    """All settings of the service. Raises `InvalidInput` for a variable with a wrong value or an unknown name."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__", extra="ignore")

    home: Path = Field(default_factory=lambda: Path(user_data_dir("edgefront")))
    """Data folder, which contains the SQLite file, the artifacts and the keys of the embedded service."""
    artifacts: Path | None = None
    """Folder of artifacts, shared by the API and all workers; `artifacts` in the data folder if absent."""
    log: LogFormat = "text"
    """Form of the log lines of the API, the workers and the supervisors of trainings."""
    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    leases: LeaseSettings = LeaseSettings()
    http: HttpSettings = HttpSettings()
    data: DataSettings = DataSettings()
    owners: OwnerSettings = OwnerSettings()
    retention: RetentionSettings = RetentionSettings()
    training: TrainingSettings = TrainingSettings()

    def __init__(self, **given: Any) -> None:  # Any: pydantic checks each value by its field
        _read_files()
        try:
            super().__init__(**given)
        except ValidationError as error:
            refused = invalid_input(error, InvalidInput, model=type(self))
            names = 2 if refused.path[0] in _GROUPS else 1
            raise refused.at(_variable(*refused.path[:names]), *refused.path[names:]) from None
        except SettingsError as error:
            variable = _not_json(_variable(str(error).split('"')[1]))
            raise InvalidInput(f"{variable} is not JSON", field=variable, allowed="JSON") from None
        _check_names()
        self._check_values()

    def _check_values(self) -> None:
        """Raises `InvalidInput` for values that contradict each other."""
        if self.http.user_header and not self.http.trusted_proxies:
            raise InvalidInput(
                f"{_variable('http', 'user_header')} needs {_variable('http', 'trusted_proxies')}: else anybody could "
                "name themselves as anybody",
                field=_variable("http", "user_header"),
                value=self.http.user_header,
                allowed="with addresses of proxies in http.trusted_proxies",
            )
        for group, ttl_s, beat, beat_s in (
            ("leases", self.leases.ttl_s, "heartbeat_s", self.leases.heartbeat_s),
            ("training", self.training.ttl_s, "poll_s", self.training.poll_s),
        ):
            if ttl_s <= beat_s:
                raise InvalidInput(
                    f"{_variable(group, 'ttl_s')} is {ttl_s:g}: a lease must outlast {_variable(group, beat)}, "
                    f"{beat_s:g} s",
                    field=_variable(group, "ttl_s"),
                    value=ttl_s,
                    allowed=f"above {beat_s:g}",
                )

    @property
    def database_url(self) -> str:
        return self.database.url or f"sqlite:///{self.home / 'edgefront.db'}"

    @field_validator("artifacts", mode="before")
    @classmethod
    def _folder(cls, artifacts: Any) -> Any:
        if isinstance(artifacts, str) and "://" in artifacts:
            raise InvalidInput(
                "artifacts must be a folder, not a URL", allowed="a folder that the API and the workers share"
            )
        return artifacts

    @property
    def artifact_folder(self) -> Path:
        return self.artifacts or self.home / "artifacts"

    def check_artifacts(self) -> None:
        """Creates the folder of artifacts. Raises `InvalidInput` if files cannot be written there."""
        folder = self.artifact_folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            reason = "" if os.access(folder, os.W_OK) else "permission denied"
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            name = _variable("artifacts")
            raise InvalidInput(
                f"{name}: {folder} cannot be written: {reason}",
                field=name,
                value=str(folder),
                allowed="a folder that the API and the workers share and may write",
            )

    @property
    def embedded(self) -> bool:
        """Whether the worker runs in the API process."""
        return self.broker.url.startswith("memory://")

    @property
    def data_folder(self) -> Path:
        """Folder of prepared data sets."""
        return self.training.data or self.home / "data"

    def check_bind(self) -> None:
        """Raises `InvalidInput` if plain HTTP would be reachable from other machines without explicit permission."""
        http = self.http
        if http.share_port and (self.embedded or http.port == 0 or not hasattr(socket, "SO_REUSEPORT")):
            raise InvalidInput(
                "http.share_port is for several API processes on one machine. It needs a separate broker, a fixed "
                "port, and a system on which processes can share a port",
                field="http.share_port",
                value=True,
                allowed="false, or true with EDGEFRONT_BROKER__URL=redis://… and EDGEFRONT_HTTP__PORT set",
            )
        if (http.certificate is None) != (http.certificate_key is None):
            raise InvalidInput(
                "http.certificate and http.certificate_key belong together: set both or neither",
                field="http.certificate",
                value=str(http.certificate),
                allowed="the paths of two PEM files",
            )
        if http.certificate is not None or http.insecure or is_local(http.host):
            return
        raise InvalidInput(
            f"http.host {http.host} can be reached from other machines, and plain HTTP would show them every key. Give "
            "http.certificate and http.certificate_key, or put a proxy that ends TLS in front and set "
            "EDGEFRONT_HTTP__INSECURE=true",
            field="http.host",
            value=http.host,
            allowed="a loopback address, TLS, or http.insecure",
        )

    def environment(self) -> dict[str, str]:
        """Returns this process's environment variables with these settings added, for a child process."""
        own = {_variable(name) for name in type(self).model_fields}
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.upper().split("__")[0] not in own  # EDGEFRONT_HTTP__PORT would override the JSON
        }
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                text = value.model_dump_json(exclude_none=True) if isinstance(value, BaseModel) else str(value)
                environment[_variable(name)] = text
        return environment


def _names() -> list[str]:
    """Returns the names of the variables of all groups and settings."""
    nested = [_variable(name, setting) for name, group in _GROUPS.items() for setting in group.model_fields]
    return [*map(_variable, Settings.model_fields), *nested]


def _read_files() -> None:
    """Sets each variable `NAME` for which there is only `NAME_FILE`, a file with its value, as secrets are given."""
    for name in _names():
        path = os.environ.pop(name + FILE, None)
        if path and name not in os.environ:
            try:
                os.environ[name] = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                message = f"{name}{FILE}: {path} cannot be read: {error.strerror or error}"
                raise InvalidInput(message, field=name + FILE, value=path, allowed="a file with the value") from None


def _check_names() -> None:
    """Raises `InvalidInput` for a variable `EDGEFRONT_…` that nothing reads, with the nearest names that are read."""
    names = [*_names(), *(PREFIX + name for name in _READ_ELSEWHERE)]
    for name in os.environ:
        is_ours = name.upper().startswith(PREFIX) and not _READ_BY_OTHERS.match(f"{name.upper()}={os.environ[name]}")
        if is_ours and name.upper() not in names:
            raise InvalidInput(f"{name} is not a setting; {existing(name, names)}", field=name)


_READ_ELSEWHERE = (
    *("URL", "KEY", "CATALOGUE", "MEASURE_LOCK"),  # client, command line, agents
    # docker-compose.yml
    *("WORKER_MEMORY", "WORKER_CPUS", "POSTGRES_PASSWORD", "PIP_CONFIG", "PORT", "DOMAIN"),
    *("AGENT_TARGET", "TRAINER_QUEUES"),
)
_READ_BY_OTHERS = re.compile(rf"{PREFIX}(PROXY_|TEST_|.*SERVICE_(HOST|PORT)|.*PORT_\d+_|.*PORT=\w+://)")
"""Variables of the proxy and of tests, and variables of Kubernetes for services named `edgefront…`."""

_GROUPS: dict[str, type[_Group]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, _Group)
}


def _variable(*path: str) -> str:
    """Returns the name of the environment variable of a settings group or a setting."""
    return PREFIX + "__".join(path).upper()


def _not_json(group: str) -> str:
    """Returns the name of the invalid environment variable: the first of the settings group that is not JSON."""
    for name in sorted(os.environ, key=len):  # the group's variable before those of its settings
        if name.upper() == group or name.upper().startswith(f"{group}__"):
            try:
                json.loads(os.environ[name])
            except ValueError:
                return name
    return group

"""Settings of the service: environment variables `EDGEFRONT_…`, nested by two underscores.

`EDGEFRONT_DATABASE__URL=postgresql+psycopg://…`, `EDGEFRONT_BROKER__URL=redis://…`. The same class serves the API,
the workers and the embedded service; only the values differ.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from platformdirs import user_data_dir
from pydantic import BaseModel, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from edgefront.core.addresses import LOOPBACK


class DatabaseSettings(BaseModel):
    url: str | None = None
    """SQLAlchemy URL; SQLite in the data folder if absent."""
    pool_size: int = Field(default=8, ge=1, le=64)


class BrokerSettings(BaseModel):
    url: str = "memory://"
    """Celery broker: `redis://…`, or `memory://` with the worker in the API process."""


class LeaseSettings(BaseModel):
    ttl_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds after its last heartbeat at which a lease expires."""
    heartbeat_s: float = Field(default=15.0, gt=0, le=600)
    max_wait_s: float = Field(default=30.0, ge=0, le=60)
    sweep_s: float = Field(default=5.0, gt=0, le=600)
    """Seconds between two sweeps, which return expired leases and resume stalled targets."""


class AccessSettings(BaseModel):
    credential_days: float = Field(default=30.0, gt=0, le=3650)
    """Days after which a device is asked to replace its credential. It does so by itself."""


class HttpSettings(BaseModel):
    host: str = LOOPBACK
    port: int = Field(default=8090, ge=0, le=65535)
    url: str | None = Field(default=None, pattern=r"^https?://[^\s/?#]+/?$")
    """Address at which devices reach the service, as in `https://edgefront.example`: what pages and commands show for
    starting an agent. Found by itself if absent."""
    share_port: bool = False
    """Several API processes on one machine listen on the same port, and the kernel distributes connections among them.
    One process uses about one core; rate limits and request counts are per process."""
    insecure: bool = False
    """Serve plain HTTP beyond loopback: only behind a proxy that terminates TLS, or in a network that you trust."""
    certificate: Path | None = None
    """TLS certificate chain (PEM); with `certificate_key` the service itself serves HTTPS."""
    certificate_key: Path | None = None
    trusted_proxies: str = ""
    """Addresses or networks of proxies, comma-separated, whose X-Forwarded-For and X-Forwarded-Proto are trusted."""
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    requests_per_minute: int = Field(default=6000, ge=1)
    """Rate limit of one key."""
    slow_requests: int = Field(default=8, ge=1, le=1000)
    """Requests of one owner that may take seconds (plans, predictions, exports, building models) at once."""
    receive_s: float = Field(default=10.0, gt=0, le=600)
    """Seconds within which a request must arrive, and one more for each 16 KiB of it that have arrived."""
    send_s: float = Field(default=60.0, gt=0, le=600)
    """Seconds within which a client must read the next 16 KiB of its answer. Streams in which nothing happens stay."""
    connections: int = Field(default=4096, ge=8, le=1_000_000)
    """Connections of one process. Beyond, those are closed that wait longest for their clients; where none does, only
    the health check is answered."""


class OwnerSettings(BaseModel):
    waiting_launches: int = Field(default=200_000, ge=1)
    """Launches of one owner that may wait for devices. A job that would ask for more at once is refused."""
    running_jobs: int = Field(default=100, ge=1)
    """Running and paused jobs of one owner."""
    trainings: int = Field(default=200, ge=1)
    """Trainings of one owner that wait, run or are paused."""
    stored_bytes: int | None = Field(default=None, ge=1)
    """Bytes of the files of one owner's trainings; further trainings are refused beyond. Unbounded if absent."""
    weights: dict[str, float] = Field(default={})
    """Owner → weight, 1 for those not named: of two with weights 2 and 1 the first gets two of three turns of a
    device. Counts for jobs submitted from then on."""

    @field_validator("weights")
    @classmethod
    def _positive(cls, weights: dict[str, float]) -> dict[str, float]:
        if any(not 0.01 <= weight <= 100 for weight in weights.values()):
            raise ValueError("a weight is a number from 0.01 to 100")
        return weights


class DataSettings(BaseModel):
    max_unpacked_bytes: int = Field(default=64 << 30, ge=1)
    """Maximum size of an unpacked archive of a data set. One that holds more is refused."""
    max_unpacked_files: int = Field(default=100_000, ge=1)
    max_model_bytes: int = Field(default=32 << 30, ge=1)
    """Bytes of candidates' model files that are kept for download. Beyond, the oldest are removed (and built again when
    they are asked for), and a larger model is refused."""


class TrainingSettings(BaseModel):
    data: Path | None = None
    """Folder of prepared data sets; `data` in the data folder if absent. Trainings read no data outside it."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of a training whose request names none."""
    slots: int = Field(default=1, ge=0, le=256)
    """Trainings without GPU that a worker runs at once. It runs one training on each of its GPUs."""
    gpus: int | None = Field(default=None, ge=0, le=64)
    """Number of GPUs of a worker; if absent, those that the system shows."""
    threads: int | None = Field(default=None, ge=1, le=4096)
    """CPU threads of one process of a training. If absent, without GPU: half of the cores, divided among the slots
    (small models get slower when their threads compete with other processes); with GPU: torch's default."""
    worker: str | None = Field(default=None, min_length=1, max_length=200)
    """Name of the worker, which owns the trainings that it runs; the host's name if absent. Two workers that share a
    host's slots share a name; two that have GPUs of their own have different names."""
    ttl_s: float = Field(default=60.0, gt=0, le=3600)
    """Seconds after its last heartbeat at which the lease on a training expires; another worker then resumes it."""
    poll_s: float = Field(default=2.0, gt=0, le=60)
    """Seconds between two polls of a running training: its state is copied into the database, and requests to pause or
    cancel are read."""
    grace_s: float = Field(default=120.0, ge=0, le=3600)
    """Seconds that a training gets to write its checkpoint when it is asked to stop, before it is killed."""
    end_with_worker: bool = False
    """Stop the trainings when their worker stops: for containers, where no process outlives the worker."""
    command: tuple[str, ...] | None = None
    """Command that trains; the training's folder is appended. `python -m edgefront.core.run` if absent."""


class ScoringSettings(BaseModel):
    device: Literal["cpu", "cuda"] = "cpu"
    """Device on which a worker computes scores of proxies."""
    timeout_s: float = Field(default=900.0, gt=0, le=86_400)
    """Seconds after which an attempt to compute a score fails."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="EDGEFRONT_", env_nested_delimiter="__", extra="ignore")

    home: Path = Field(default_factory=lambda: Path(user_data_dir("edgefront")))
    """Data folder: SQLite file, artifacts, keys of the embedded service."""
    artifacts: str | None = Field(default=None, repr=False)
    """Where artifacts are kept: a folder (`artifacts` in the data folder if absent), or the URL of a store that fsspec
    supports (`s3://bucket/prefix`) for the files of trainings; `artifacts` in the data folder is then the working
    copy."""
    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    leases: LeaseSettings = LeaseSettings()
    access: AccessSettings = AccessSettings()
    http: HttpSettings = HttpSettings()
    data: DataSettings = DataSettings()
    owners: OwnerSettings = OwnerSettings()
    training: TrainingSettings = TrainingSettings()
    scoring: ScoringSettings = ScoringSettings()

    @property
    def database_url(self) -> str:
        return self.database.url or f"sqlite:///{self.home / 'edgefront.db'}"

    @property
    def artifact_folder(self) -> Path:
        """The folder of artifacts on this machine."""
        return Path(self.artifacts) if self.artifacts and self.artifact_url is None else self.home / "artifacts"

    @property
    def artifact_url(self) -> str | None:
        """The artifact store's URL, which may contain credentials; None if artifacts are kept in a folder."""
        return self.artifacts if self.artifacts and "://" in self.artifacts else None

    @property
    def embedded(self) -> bool:
        """The worker runs in the API process."""
        return self.broker.url.startswith("memory://")

    @property
    def data_folder(self) -> Path:
        """The folder of prepared data sets."""
        return self.training.data or self.home / "data"

    def environment(self) -> dict[str, str]:
        """This process's environment with these settings as variables, from which a child process reads them."""
        prefix = "EDGEFRONT_"
        own = {f"{prefix}{name.upper()}" for name in type(self).model_fields}
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.upper().split("__")[0] not in own  # EDGEFRONT_HTTP__PORT would override the JSON
        }
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is not None:
                text = value.model_dump_json(exclude_none=True) if isinstance(value, BaseModel) else str(value)
                kept[f"{prefix}{name.upper()}"] = text
        return kept

"""Settings of the service: environment variables `EDGEFRONT_…`, nested by two underscores.

`EDGEFRONT_DATABASE__URL=postgresql+psycopg://…`, `EDGEFRONT_BROKER__URL=redis://…`. The same class serves the API,
the workers and the embedded service; only the values differ.
"""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_data_dir
from pydantic import BaseModel, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class DatabaseSettings(BaseModel):
    url: str | None = None
    """SQLAlchemy URL; SQLite in the data folder if absent."""
    pool_size: int = Field(default=8, ge=1, le=64)


class BrokerSettings(BaseModel):
    url: str = "memory://"
    """Celery broker: `redis://…`, or `memory://` with the worker in the API process."""


class LeaseSettings(BaseModel):
    ttl_s: float = Field(default=60.0, gt=0, le=3600)
    """A lease expires so long after its last heartbeat."""
    heartbeat_s: float = Field(default=15.0, gt=0, le=600)
    max_wait_s: float = Field(default=30.0, ge=0, le=60)
    sweep_s: float = Field(default=5.0, gt=0, le=600)
    """How often expired leases and stalled targets are looked for."""


class HttpSettings(BaseModel):
    host: str = "127.0.0.1"
    port: int = Field(default=8090, ge=0, le=65535)
    share_port: bool = False
    """Several API processes on one machine listen on the same port, and the kernel spreads connections over them.
    One process uses about one core; rates and request counts are each process's own."""
    insecure: bool = False
    """Serve plain HTTP beyond loopback: only behind a proxy that ends TLS, or in a network you trust."""
    certificate: Path | None = None
    """TLS certificate chain (PEM); with `certificate_key` the service speaks HTTPS itself."""
    certificate_key: Path | None = None
    trusted_proxies: str = ""
    """Addresses or networks of proxies, with commas, whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    max_body_bytes: int = Field(default=4 << 20, ge=1024)
    requests_per_minute: int = Field(default=6000, ge=1)
    """For each key."""


class Settings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="EDGEFRONT_", env_nested_delimiter="__", extra="ignore")

    home: Path = Field(default_factory=lambda: Path(user_data_dir("edgefront")))
    """Data folder: SQLite file, artifacts, keys of the embedded service."""
    artifacts: Path | None = None
    database: DatabaseSettings = DatabaseSettings()
    broker: BrokerSettings = BrokerSettings()
    leases: LeaseSettings = LeaseSettings()
    http: HttpSettings = HttpSettings()

    @property
    def database_url(self) -> str:
        return self.database.url or f"sqlite:///{self.home / 'edgefront.db'}"

    @property
    def artifact_folder(self) -> Path:
        return self.artifacts or self.home / "artifacts"

    @property
    def embedded(self) -> bool:
        """The worker runs in the API process."""
        return self.broker.url.startswith("memory://")

"""An agent's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgefront.core.wire.agent import MAX_BATCH


@dataclass(frozen=True)
class AgentConfig:
    """Settings of one agent. Nothing here is secret: tokens and credentials are files."""

    server: str
    data_dir: Path
    """Folder of the credential, the spool, the weight cache and the tests of the runtimes; for one agent at a time."""
    token_file: Path | None = None
    """File with an enrolment token, or `-` for standard input; read only while there is no credential."""
    name: str | None = None
    """Name of the device; its host name if absent."""
    device_class: str | None = None
    cores: tuple[int, ...] | None = None
    """Cores that measure; all that the process may use if absent."""
    memory_limit_bytes: int | None = None
    """Maximum memory of a launch."""
    insecure: bool = False
    """Allow plain HTTP beyond this machine."""
    batch: int = 8
    """Maximum number of launches in one lease."""
    wait_s: float = 25.0
    """Seconds that the server may hold a lease request while there is no work."""

    probe_again: bool = False
    """Test the runtimes even if an earlier start has."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch <= MAX_BATCH:
            raise ValueError(f"batch lies between 1 and {MAX_BATCH}, not {self.batch}")

    @property
    def spool(self) -> Path:
        return self.data_dir / "spool"

    @property
    def weights(self) -> Path:
        return self.data_dir / "weights"

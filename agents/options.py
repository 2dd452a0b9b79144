"""The options of the agent's command line, `edgefront agent`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from platformdirs import user_data_dir

from edgefront.core.common.units import MB

MAX_BATCH = 32
"""Maximum number of launches in one lease, equal to `core.schemas.agent.MAX_BATCH`, whose module the command line need
not load to show its help.
"""


@dataclass(frozen=True)
class AgentOptions:
    """Options of an agent, `edgefront agent`."""

    server: Annotated[str, typer.Option(help="URL of the service.", envvar="EDGEFRONT_URL")]
    token_file: Annotated[
        Path | None, typer.Option(help="File with an enrolment token, or - for standard input; for the first start.")
    ] = None
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the credential, unsent results and the weight cache.")
    ] = None
    name: Annotated[str | None, typer.Option(help="Name of this device. Default: its host name.")] = None
    device_class: Annotated[
        str | None,
        typer.Option(
            help="Device class; devices of one class are interchangeable. Default: derived from the processor."
        ),
    ] = None
    cores: Annotated[
        str | None, typer.Option(help="Cores that measure, as in 2,4-6. Default: all of them.", metavar="LIST")
    ] = None
    memory_limit_mb: Annotated[
        int | None,
        typer.Option(help="Models that need more MB (10^6 B) are infeasible. Default: the system's memory.", min=1),
    ] = None
    batch: Annotated[int, typer.Option(help="Maximum number of launches in one lease.", min=1, max=MAX_BATCH)] = 8
    insecure: Annotated[bool, typer.Option("--insecure", help="Allow plain HTTP beyond this machine.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", help="Also log debug messages.")] = False

    @property
    def folder(self) -> Path:
        """Folder of credential, unsent results and weight cache. Only one agent may use the folder at a time."""
        return (self.data_dir or Path(user_data_dir("edgefront")) / "agent").absolute()

    @property
    def measuring_cores(self) -> tuple[int, ...] | None:
        """The measuring cores; None for all cores. Raises `InvalidInput` if the option is not a list of cores."""
        from edgefront.agents.device.cores import parse_cores

        return None if self.cores is None else parse_cores(self.cores)

    @property
    def memory_limit_bytes(self) -> int | None:
        """Memory limit of one run of a model, bytes; None for the system's available memory."""
        return None if self.memory_limit_mb is None else self.memory_limit_mb * MB

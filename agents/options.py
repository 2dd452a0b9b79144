"""The options of the agent's command line, declared once: for `edgefront agent` and `python -m edgefront.agents`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from platformdirs import user_data_dir

from edgefront.core.units import MB

MAX_BATCH = 32
"""Launches in one lease at most: `core.wire.agent.MAX_BATCH`, which a command line need not load to show its help."""


@dataclass(frozen=True)
class Option:
    """What an option says in the help, and what its values are."""

    help: str
    min: int | None = None
    max: int | None = None
    metavar: str | None = None
    envvar: str | None = None
    """Environment variable that `edgefront agent` reads it from, too."""


@dataclass(frozen=True)
class AgentOptions:
    """Options of an agent."""

    server: Annotated[str, Option("URL of the service.", envvar="EDGEFRONT_URL")]
    token_file: Annotated[
        Path | None, Option("File with an enrolment token, or - for standard input; for the first start.")
    ] = None
    data_dir: Annotated[Path | None, Option("Folder of the credential, unsent results and the weight cache.")] = None
    name: Annotated[str | None, Option("Name of this device. Default: its host name.")] = None
    device_class: Annotated[
        str | None,
        Option("Device class; devices of one class are interchangeable. Default: derived from the processor."),
    ] = None
    cores: Annotated[str | None, Option("Cores that measure, as in 2,4-6. Default: all of them.", metavar="LIST")] = (
        None
    )
    memory_limit_mb: Annotated[
        int | None, Option("Models that need more MB (10^6 B) are infeasible. Default: the system's memory.", min=1)
    ] = None
    batch: Annotated[int, Option("Maximum number of launches in one lease.", min=1, max=MAX_BATCH)] = 8
    insecure: Annotated[bool, Option("Allow plain HTTP beyond this machine.")] = False
    verbose: Annotated[bool, Option("Also log debug messages.")] = False

    @property
    def folder(self) -> Path:
        """Folder of the credential, the spool and the weight cache; for one agent at a time."""
        return (self.data_dir or Path(user_data_dir("edgefront")) / "agent").absolute()

    @property
    def measuring_cores(self) -> tuple[int, ...] | None:
        """None: all that the process may use. `InvalidInput` for what is no list of cores."""
        from edgefront.agents.device.cores import parse_cores

        return None if self.cores is None else parse_cores(self.cores)

    @property
    def memory_limit_bytes(self) -> int | None:
        """Maximum memory of a launch."""
        return None if self.memory_limit_mb is None else self.memory_limit_mb * MB


def flag(name: str) -> str:
    """An option as it is written: `--data-dir`."""
    return f"--{name.replace('_', '-')}"


def parse(arguments: Sequence[str] | None = None) -> tuple[AgentOptions, bool]:
    """The options of a command line (this process's by default), and whether it logs JSON lines."""
    parser = argparse.ArgumentParser(prog="python -m edgefront.agents", description="The measuring agent of a device.")
    hints = get_type_hints(AgentOptions, include_extras=True)
    for item in fields(AgentOptions):
        kind, option = get_args(hints[item.name])
        if kind is bool:
            parser.add_argument(flag(item.name), action="store_true", help=option.help)
        else:
            parser.add_argument(
                flag(item.name),
                type=_reader(kind, option),
                required=item.default is MISSING,
                default=None if item.default is MISSING else item.default,
                metavar=option.metavar,
                help=option.help,
            )
    parser.add_argument("--json", action="store_true", help="Log JSON lines.")
    given = vars(parser.parse_args(arguments))
    json_logs = given.pop("json")
    return AgentOptions(**given), json_logs


def _reader(kind: Any, option: Option) -> Callable[[str], str | Path | int]:
    """What argparse reads a value of this type with; a number within the option's bounds."""
    value_kind = (get_args(kind) or (kind,))[0]  # of `int | None`: int
    if value_kind is Path:
        return Path
    if value_kind is str:
        return str

    def number(text: str) -> int:
        value = int(text)
        if (option.min is not None and value < option.min) or (option.max is not None and value > option.max):
            least = f"at least {option.min}" if option.max is None else f"{option.min} to {option.max}"
            raise argparse.ArgumentTypeError(f"{value} is out of range: {least}")
        return value

    return number

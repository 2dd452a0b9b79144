"""`edgefront up`, `agent` and `demo`: run the embedded service, an agent, or a demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from edgefront.agents.options import AgentOptions
from edgefront.cli.commands.options import Cores
from edgefront.cli.session import Session
from edgefront.client.extras import need
from edgefront.core.common.processes.child import end_with_input

Home = Annotated[
    Path | None,
    typer.Option(
        envvar="EDGEFRONT_HOME", help="Data folder of the service. Default: the user's data folder.", show_envvar=True
    ),
]

Port = Annotated[
    int | None,
    typer.Option(
        min=0,
        max=65535,
        help="Port; 0 for any free one. Default: EDGEFRONT_HTTP__PORT, else 8090 or the next free one.",
    ),
]


def up(
    session: Session,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on. Default: EDGEFRONT_HTTP__HOST, else 127.0.0.1.")
    ] = None,
    port: Port = None,
    home: Home = None,
    agent: Annotated[
        bool, typer.Option("--agent/--no-agent", help="Also run an agent that measures on this machine.")
    ] = True,
    cores: Cores = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the whole log.")] = False,
) -> None:
    """Run the embedded service in one data folder: API, worker, one agent and SQLite. Ctrl-C stops it."""
    from edgefront.client.local import default_home

    need("the embedded service", "server")
    if agent:
        need("its agent", "agent", install="server,agent", otherwise=", or run it with --no-agent")
    from edgefront.cli.workflows.up import run

    run(session, home or default_home(), host=host, port=port, agent=agent, cores=cores, verbose=verbose)


BackupFolder = Annotated[Path, typer.Argument(help="Folder of the backup.")]


def backup(session: Session, folder: BackupFolder, home: Home = None) -> None:
    """Copy the data of the embedded service into a new folder, also while it runs: database, models, data, keys."""
    _copy_data(session, folder, home, restores=False)


def restore(session: Session, folder: BackupFolder, home: Home = None) -> None:
    """Copy a backup into an empty data folder, before `edgefront up` starts there."""
    _copy_data(session, folder, home, restores=True)


def _copy_data(session: Session, folder: Path, home: Path | None, *, restores: bool) -> None:
    from edgefront.client.local import default_home

    need("the embedded service", "server")
    from edgefront.core.services.settings import Settings
    from edgefront.embedded import backup

    settings = Settings(home=home or default_home())
    copied = (backup.restore if restores else backup.back_up)(settings, folder)
    source, target = (folder, settings.home) if restores else (settings.home, folder)
    session.put(
        {"from": str(source), "to": str(target), "bytes": copied},
        lambda: session.say(f"{source} was copied to {target}: {copied / 1e6:,.1f} MB"),
    )


def agent(
    session: Session,
    options: AgentOptions,
    end_with_parent: Annotated[bool, typer.Option("--end-with-parent", hidden=True)] = False,
) -> None:
    """Run the measuring agent on this device. SIGTERM or Ctrl-C drains it: it finishes or returns its launches.

    Additional exit codes: 7 the device was revoked, 8 the protocol versions of agent and server are incompatible,
    9 another agent uses the data folder. With --json it logs JSON lines.
    """
    need("the agent", "agent")
    from edgefront.agents.main import main

    if end_with_parent:
        end_with_input(grace_s=5.0)  # time to store the agent's results
    raise typer.Exit(main(options, json_logs=session.json))


def demo(
    session: Session,
    once: Annotated[bool, typer.Option("--once", help="Exit when done, also in a terminal.")] = False,
    minutes: Annotated[float, typer.Option(min=0.1, help="Maximum minutes of the search.")] = 3.0,
    candidates: Annotated[int, typer.Option(min=2, help="Number of candidates for each target.")] = 30,
    output: Annotated[Path, typer.Option(help="Folder for the plot, the models and the service's data.")] = Path(
        "demo-output"
    ),
    port: Port = None,
) -> None:
    """Demonstrate a search on this machine: search, measure, frontier, download, run. Needs the extra `demo`."""
    need("the demo", "server", "agent", "torch", "demo", install="demo")
    from edgefront.cli.workflows.demo import run

    run(session, output, once=once, minutes=minutes, candidates=candidates, port=port)

"""`edgefront model …`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from edgefront.commands.base import Session, command, group

app = group("Models: download those of a search, list the named ones.")


@command(app, "download")
def download(
    session: Session,
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="Id of a candidate, as `frontier` shows it.")],
    kind: Annotated[
        Literal["onnx", "safetensors", "architecture"], typer.Option("--format", help="What file.")
    ] = "onnx",
    output: Annotated[Path, typer.Option("--output", "-o", help="A file, or a folder.")] = Path("."),
) -> None:
    """Download a model (untrained weights, made from the candidate's seed). Goes on where a broken download ended."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    hidden = session.json or not session.err.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=session.err, disable=hidden, transient=True) as bar:
        task = bar.add_task(kind, total=None)
        path = session.client.models.download(
            candidate, kind, output, progress=lambda done, total: bar.update(task, completed=done, total=total)
        )
    result = {"candidate": candidate, "format": kind, "path": str(path), "bytes": path.stat().st_size}
    session.put(result, lambda: session.out.print(str(path), markup=False, soft_wrap=True))


@command(app, "list", server=False)
def list_models(session: Session) -> None:
    """List the catalogue's named models. Needs no server."""
    from core.cost.costs import costs
    from core.spaces.catalogue import named_models
    from edgefront.output import millions, table

    found = [(model, costs(model.architecture)) for model in named_models().values()]
    result = [
        {
            "name": model.name,
            "source": model.source,
            "digest": cost.digest,
            "decoder_parameters": cost.decoder_parameters,
            "total_parameters": cost.total_parameters,
        }
        for model, cost in found
    ]

    def show() -> None:
        shown = table("name", "decoder", "total", "source", right=("decoder", "total"))
        for model, cost in found:
            shown.add_row(model.name, millions(cost.decoder_parameters), millions(cost.total_parameters), model.source)
        session.out.print(shown)

    session.put(result, show)

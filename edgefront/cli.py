"""The `edgefront` command."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from edgefront import failures
from edgefront.commands import (
    access,
    catalogue,
    compare,
    data,
    devices,
    evaluate,
    find,
    finetune,
    frontier,
    generate,
    inherit,
    jobs,
    measure,
    models,
    predict,
    proxy,
    quality,
    report,
    service,
    trainings,
)
from edgefront.commands.base import Json, Key, Url, Wide, root_options

_EPILOG = (
    "Exit codes: 0 done · 1 failed · 2 wrong usage · 3 not found · 4 no access · 5 server unavailable, try again · "
    "6 invalid input, or not possible in this state · 10 nothing measured is within the limits · "
    "11 measured again, figures do not agree · 130 interrupted."
)

app = typer.Typer(
    name="edgefront",
    help="Finds the language model that fits a device.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
service.add_to(app)
find.add_to(app)
app.add_typer(jobs.app, name="job")
frontier.add_to(app)
compare.add_to(app)
app.add_typer(report.app, name="report")
app.add_typer(models.app, name="model")
app.add_typer(inherit.app, name="inherit")
app.add_typer(trainings.app, name="train")
app.add_typer(catalogue.spaces, name="space")
app.add_typer(data.app, name="data")
app.add_typer(proxy.app, name="proxy")
app.add_typer(quality.app, name="quality")
catalogue.add_to(app)
measure.add_to(app)
predict.add_to(app)
generate.add_to(app)
evaluate.add_to(app)
finetune.add_to(app)
app.add_typer(devices.app, name="device")
app.add_typer(access.tokens, name="token")
app.add_typer(access.keys, name="key")


def _version(asked: bool) -> None:
    if asked:
        from edgefront import __version__

        typer.echo(f"edgefront {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    url: Url = None,
    key: Key = None,
    json: Json = False,
    wide: Wide = False,
    version: Annotated[  # noqa: ARG001
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    root_options.url, root_options.key, root_options.json, root_options.wide = url, key, json, wide


@cache
def command() -> Callable[..., Any]:
    """All commands with their options, cached because typer builds them for every `app()`."""
    return typer.main.get_command(app)


def main() -> None:
    """Runs the command line and exits with one of the documented exit codes; `edgefront.__main__` does so after
    Ctrl-C.
    """
    from edgefront import exits
    from edgefront.show.output import write_anywhere

    write_anywhere()
    wants_json = "--json" in sys.argv[1:]
    try:
        # With --json, wrong usage is reported here as JSON: typer itself prints text.
        code = command()(standalone_mode=not wants_json) or exits.OK
    except typer.Abort:
        code = exits.ERROR
    except Exception as error:
        code = failures.report(error, as_json=wants_json)
    sys.exit(code)

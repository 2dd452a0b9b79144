"""Shared by all commands: the options --url, --key and --json, the client, and the output of results."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.client.client import Client
    from edgefront.core.schemas.service import IdentifiedKind

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="EDGEFRONT_URL",
        help="URL of the server. Default: the service that runs on this machine.",
        show_envvar=True,
        rich_help_panel="Connection",
    ),
]
Key = Annotated[
    str | None,
    typer.Option(
        "--key",
        envvar="EDGEFRONT_KEY",
        help="API key. Prefer the variable EDGEFRONT_KEY: other users can see command lines.",
        show_envvar=True,
        rich_help_panel="Connection",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts; errors too.")]
Wide = Annotated[bool, typer.Option("--wide", help="Print whole identifiers and all columns, however wide.")]

# A person waits for the command, so it gives up sooner than a program. Watching survives a server restart.
_PATIENCE_S = 3.0
_WATCHING_S = 60.0
_WHOLE_ID = re.compile(r"^[a-z]{3}_[0-9a-z]{26}$")


@dataclass
class Session:
    """One run of the command."""

    url: str | None = None
    key: str | None = None
    json: bool = False
    wide: bool = False
    held: ExitStack = field(default_factory=ExitStack)
    """What is open until the command ends."""

    @cached_property
    def client(self) -> Client:
        return self._connect(_PATIENCE_S)

    @cached_property
    def watching_client(self) -> Client:
        """A client that tolerates a longer outage of the server."""
        return self._connect(_WATCHING_S)

    def _connect(self, patience_s: float) -> Client:
        from edgefront.client.client import Client

        return self.held.enter_context(Client(self.url, self.key, patience_s=patience_s))

    @cached_property
    def out(self) -> Console:
        from edgefront.cli.show.output import console

        return console(wide=self.wide)

    @cached_property
    def screen(self) -> Console:
        """Standard output as wide as its terminal, for what is drawn again and again."""
        from edgefront.cli.show.output import console

        return console()

    @cached_property
    def err(self) -> Console:
        from edgefront.cli.show.output import console

        return console(stderr=True)

    def identifier(self, kind: IdentifiedKind, text: str) -> str:
        """The whole identifier; asks the server unless it is given whole."""
        return text if _WHOLE_ID.match(text) else self.client.identifier(kind, text)

    def say(self, text: str | None) -> None:
        """A line of the result for people, as it is."""
        self.out.print(text, markup=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """A line for people, on standard error; nothing with --json."""
        if not self.json:
            self.err.print(text, style="dim", markup=False, soft_wrap=True)

    @contextmanager
    def progress(self, *, in_bytes: bool = False) -> Iterator[Callable[[str, int, int | None], None]]:
        """Shows on a terminal how far things are. Gives a function to call with what is being done, how much of it is
        done, and how much there is.
        """
        from rich.progress import BarColumn, DownloadColumn, Progress, TaskProgressColumn, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        counted = DownloadColumn() if in_bytes else TaskProgressColumn()
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), counted, Remaining())
        hidden = self.json or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=hidden, transient=True) as bar:
            tasks: dict[str, Any] = {}

            def report(what: str, done: int, total: int | None) -> None:
                if what not in tasks:
                    tasks[what] = bar.add_task(what, total=total)
                bar.update(tasks[what], completed=done, total=total)

            yield report

    def put(self, value: Any, show: Callable[[], None]) -> None:
        """Prints the result: as JSON, or by `show` for people."""
        if self.json:
            from edgefront.cli.show.output import print_json

            print_json(value)
        else:
            show()


@dataclass(frozen=True)
class Identifies:
    """Marks a parameter that takes identifiers of this kind, also short ones and `last`."""

    kind: IdentifiedKind


root_options = Session()
"""Options before the command: `edgefront --url … job list`."""


def command(app: typer.Typer, name: str, *, server: bool = True) -> Callable[..., Any]:
    """Registers a function as a command. Its first parameter is the `Session`; the options of that are added here.

    A parameter whose type is a dataclass stands for one option for each field, annotated as a parameter is.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(function, eval_str=True)
        shared = {"json": Json, "wide": Wide} | ({"url": Url, "key": Key} if server else {})
        added = [
            inspect.Parameter(
                option, inspect.Parameter.KEYWORD_ONLY, default=False if kind in (Json, Wide) else None, annotation=kind
            )
            for option, kind in shared.items()
        ]
        declared = list(own.parameters.values())[1:]
        groups: dict[str, Any] = {item.name: item.annotation for item in declared if is_dataclass(item.annotation)}
        single = [option for item in declared for option in (_fields_of(item) if item.name in groups else [item])]
        kept = [item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in single]
        identified = {
            item.name: mark.kind
            for item in single
            for mark in get_args(item.annotation)
            if isinstance(mark, Identifies)
        }

        def run(**given: Any) -> None:
            session = Session(
                url=given.pop("url", None) or root_options.url,
                key=given.pop("key", None) or root_options.key,
                json=given.pop("json") or root_options.json,
                wide=given.pop("wide") or root_options.wide,
            )
            root_options.json = session.json  # so that errors are printed alike
            _check_text(given)
            try:
                for name, kind in identified.items():
                    if isinstance(value := given[name], list | tuple):
                        given[name] = [session.identifier(kind, text) for text in value]
                    elif value is not None:
                        given[name] = session.identifier(kind, value)
                for name, options in groups.items():
                    given[name] = options(**{option.name: given.pop(option.name) for option in fields(options)})
                function(session, **given)
            finally:
                session.held.close()

        run.__name__ = function.__name__
        run.__doc__ = function.__doc__
        run.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {item.name: item.annotation for item in [*kept, *added]}
        app.command(name)(run)
        return function

    return register


def _fields_of(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """The single options of a parameter that takes a dataclass of them."""
    hints = get_type_hints(parameter.annotation, include_extras=True)
    return [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if option.default is MISSING else option.default,
            annotation=hints[option.name],
        )
        for option in fields(parameter.annotation)
    ]


def _check_text(given: Mapping[str, Any]) -> None:
    """Refuses bytes that are not UTF-8, which no server, file format or message can hold; file names may have them."""
    for name, value in given.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and any("\ud800" <= character <= "\udfff" for character in text):
                raise typer.BadParameter(f"{name.replace('_', '-')}: this is not UTF-8 text")


def steering(app: typer.Typer, resource: str, kind: Any, verbs: Mapping[str, str], name: str = "id") -> None:
    """Registers commands that change the state of one thing, which is named by an argument of this `kind`: method of
    the client's `resource` → what it does. Its view is shown by its `name`.
    """
    for verb, about in verbs.items():

        def steer(session: Session, thing: Any, *, verb: str) -> None:
            view = getattr(getattr(session.client, resource), verb)(thing)
            if view is None:
                session.put({f"{verb}d": thing}, lambda: session.note(f"{verb}d {thing}"))
                return
            session.put(view, lambda: session.say(f"{getattr(view, name)} {view.state}"))
            if note := getattr(view, "note", ""):
                session.note(note)

        bound = partial(steer, verb=verb)
        parameters = [inspect.Parameter(each, inspect.Parameter.POSITIONAL_OR_KEYWORD) for each in ("session", "thing")]
        signature = inspect.Signature([parameters[0], parameters[1].replace(annotation=kind)])
        vars(bound).update(__signature__=signature, __name__=verb, __doc__=about)
        command(app, verb)(bound)


def group(about: str) -> typer.Typer:
    """A group of commands that shows its help when called without one."""
    return typer.Typer(help=about, no_args_is_help=True)

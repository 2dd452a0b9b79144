"""`edgefront data …`: training data. Needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.session import Session, command, group
from edgefront.client.show.output import NONE
from edgefront.client.show.table import Table

if TYPE_CHECKING:
    from edgefront.core.data.prepared.prepared import Prepared

app = group("Training data: list data sets, and tokenise text. Needs no server.")

Home = Annotated[
    Path | None,
    typer.Option(
        "--home",
        help="Folder of the prepared data. Default: EDGEFRONT_TRAINING__DATA, else data in the service's folder.",
    ),
]


@command(app, "list", server=False)
def list_data(session: Session, home: Home = None) -> None:
    """List the named data sets, and those that are prepared on this machine."""
    from edgefront.core.data.prepared.prepared import Manifest, prepared_in
    from edgefront.core.data.sources.data_set import data_sets

    sources = list(data_sets().values())
    prepared = list(prepared_in(_data_folder(home)))
    result = {
        "data_sets": [
            {"name": source.name, "title": source.title, "level": source.level, "origin": source.origin}
            for source in sources
        ],
        "prepared": [
            _summary(folder, manifest)
            if isinstance(manifest, Manifest)
            else {"folder": str(folder), "damaged": manifest.detail}
            for folder, manifest in prepared
        ],
    }

    def show() -> None:
        table = Table("name", "level", "what", "from", title="Data sets", wrap=("what", "from"), drop_first=("from",))
        for source in sources:
            table.add_row(source.name, source.level, source.title, source.origin)
        session.out.print(table)
        table = Table(
            *("name", "digest", "level", "vocabulary", "train tokens"),
            title="Prepared",
            right=("vocabulary", "train tokens"),
        )
        for folder, manifest in prepared:
            digest = folder.name[:12]
            if isinstance(manifest, Manifest):
                size = _count(manifest, "train") if "train" in manifest.splits else 0
                table.add_row(manifest.name, digest, manifest.level, f"{manifest.vocab_size:,}", f"{size:,}")
            else:
                table.add_row("damaged", digest, NONE, NONE, NONE)
        session.out.print(table)

    session.put(result, show)


@command(app, "show", server=False)
def show_data(
    session: Session,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", help="Name of a prepared data set, the first digits of its digest, or its folder."
        ),
    ],
    home: Home = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and compare the checksums.")] = False,
) -> None:
    """Show the contents of a prepared data set."""
    from edgefront.core.data.prepared.prepared import find_prepared, open_prepared

    prepared = find_prepared(_data_folder(home), name)
    if verify:
        with session.progress(in_bytes=True) as update:
            prepared = open_prepared(prepared.folder, verify=True, progress=update)
        session.note("all checksums are correct")
    _put(session, prepared)


@command(app, "prepare", server=False)
def prepare_data(
    session: Session,
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="A name (`data list`), or a file or folder of UTF-8 text or JSON lines."),
    ],
    origin: Annotated[
        Path | None, typer.Option("--from", help="Folder with the published files of a named data set.")
    ] = None,
    fetch: Annotated[
        bool, typer.Option("--download", help="Download the files, into the folder downloads beside the prepared data.")
    ] = False,
    url: Annotated[str | None, typer.Option("--from-url", help="Download the archive from this URL instead.")] = None,
    target: Annotated[
        Path | None, typer.Option("--target", help="Translation of DATA: a file with one line for each of its lines.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            "--level", help="Kind of tokens: bytes, characters, words or bpe. Default: the data set's, else bpe."
        ),
    ] = None,
    vocab_size: Annotated[
        int | None,
        typer.Option(
            "--vocab-size", help="Size of the vocabulary, for words and bpe. Default: all words; 8192 for bpe."
        ),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(
            "--vocabulary",
            help="Vocabulary to use: a file with one word per line; for bpe, a Hugging Face tokenizer.json.",
        ),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", help="Unit that the task `sentences` shuffles: line or document (file, JSON object)."),
    ] = None,
    field: Annotated[str, typer.Option("--field", help="For JSON lines: the field with the text.")] = "text",
    valid_percent: Annotated[
        int, typer.Option(help="Share of the validation split, for a text without splits of its own.")
    ] = 5,
    test_percent: Annotated[
        int, typer.Option(help="Share of the test split, for a text without splits of its own.")
    ] = 5,
    home: Home = None,
) -> None:
    """Tokenise text for training. Existing prepared data is reused; an interruption leaves no partial data."""
    from edgefront.core.data.prepared.planning import Preparation
    from edgefront.core.data.prepared.preparation import prepare
    from edgefront.core.data.sources.data_set import data_set
    from edgefront.core.data.sources.download import Bounds, download
    from edgefront.core.services.settings import Settings

    settings = Preparation.parse(
        {
            "level": level,
            "vocab_size": vocab_size,
            "vocabulary": None if vocabulary is None else str(vocabulary),
            "unit": unit,
            "field": field,
            "valid_percent": valid_percent,
            "test_percent": test_percent,
        }
    )
    with session.progress(in_bytes=True) as update:
        if fetch or url:
            limits = Settings().data
            bounds = Bounds(bytes=limits.max_unpacked_bytes, files=limits.max_unpacked_files)
            folder = origin or _data_folder(home) / "downloads" / data
            origin = download(data_set(data), folder, url=url, progress=update, bounds=bounds)
        prepared = prepare(data, _data_folder(home), origin=origin, target=target, settings=settings, progress=update)
    _put(session, prepared)


def _data_folder(home: Path | None) -> Path:
    from edgefront.core.services.settings import Settings

    return (home or Settings().data_folder).absolute()


def _count(manifest: Any, split: str) -> int:
    import numpy as np

    stored = manifest.splits[split]
    return int(stored.tokens.bytes // np.dtype(stored.dtype).itemsize)


def _summary(folder: Path, manifest: Any) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "digest": manifest.digest,
        "folder": str(folder),
        "level": manifest.level,
        "vocab_size": manifest.vocab_size,
        "source_vocab_size": manifest.source_vocab_size,
        "settings": manifest.settings,
        "splits": {
            name: {
                "tokens": _count(manifest, name),
                "units": stored.starts.bytes // 8 - 1,
                "characters": stored.characters,
                "words": stored.words,
                "bytes": stored.bytes,
            }
            for name, stored in manifest.splits.items()
        },
        "originals": [original.model_dump(mode="json") for original in manifest.originals],
    }


def _put(session: Session, prepared: Prepared) -> None:
    """Prints a prepared data set."""
    summary = _summary(prepared.folder, prepared.manifest)

    def show() -> None:
        columns = ("tokens", "units", "characters", "words", "bytes")
        title = f"{prepared.name}  {prepared.level}, {prepared.vocab_size:,} tokens"
        table = Table("split", *columns, title=title, right=columns, drop_first=("words", "characters"))
        for name, split in summary["splits"].items():
            table.add_row(name, *(f"{split[column]:,}" for column in columns))
        session.out.print(table)
        session.say(str(prepared.folder))

    session.put(summary, show)

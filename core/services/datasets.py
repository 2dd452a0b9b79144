"""Data sets that trainings may use: data sets prepared in the service's data folder, and built-in data sets."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.data.prepared.prepared import Manifest, prepared_in, read_manifest
from edgefront.core.data.sources.data_set import data_sets
from edgefront.core.schemas.trainings import DatasetView

MAX_SHOWN = 20
_SHORTEST_DIGEST = 6


def list_datasets(data_folder: Path) -> list[DatasetView]:
    """Returns the prepared data sets of the folder and the built-in ones, by name; data sets of one name newest first.

    Damaged data sets are left out; `edgefront data list` shows the errors.
    """
    sources = data_sets()
    views = []
    for _, manifest in prepared_in(data_folder):
        if isinstance(manifest, Manifest):
            source = sources.get(manifest.name)
            views.append(
                DatasetView(
                    name=manifest.name,
                    title="" if source is None else source.title,
                    digest=manifest.digest,
                    level=manifest.level,
                    vocab_size=manifest.vocab_size,
                    parallel=manifest.source_vocab_size is not None,
                )
            )
    names = {view.name for view in views}
    views += [
        DatasetView(
            name=data.name,
            title=data.title,
            digest=None,
            level=data.level,
            vocab_size=data.vocab_size,
            parallel=bool(data.sources),
        )
        for data in sources.values()
        if data.built_in and data.name not in names
    ]
    return sorted(views, key=lambda view: view.name)


def check_dataset(
    name: str, data_folder: Path, task: str = "streams", level: str | None = None, *, allow_remote: bool = True
) -> str | None:
    """Returns the digest of the data set for a training of this task; None if the data set is not prepared yet.

    `level`, if given, is the required kind of tokens; it selects one of several data sets with this name. Built-in data
    sets are prepared at their first use. With `allow_remote` the data may be on the workers' machines only: without a
    data folder here, any name is accepted.

    Raises `InvalidInput` if the data set is missing, unsuitable for the task, or outside the data folder.
    """
    if allow_remote and not is_path(name) and not data_folder.is_dir():
        return None
    try:
        folder = find_dataset(name, data_folder, level=level)
    except NotFound:
        source = data_sets().get(name)
        if source is not None and source.built_in:
            return None
        at, how = ("", "") if level is None else (f" at level {level}", f" {name} --level {level}")
        raise InvalidInput(
            f"dataset: no data set {name!r} is prepared here{at}; there are: {_available(data_folder)}. Prepare it on "
            f"the server with `edgefront data prepare{how}`, or name another",
            field="dataset",
            value=name,
            allowed=_available(data_folder),
        ) from None
    manifest = read_manifest(folder)
    if (task == "pairs") != (manifest.source_vocab_size is not None):
        what = "parallel text" if task == "pairs" else "text of one language"
        raise InvalidInput(
            f"dataset: the recipe trains on {what}, but {name} is another kind of data",
            field="dataset",
            value=name,
            allowed=what,
        )
    return manifest.digest


def find_dataset(name: str, data_folder: Path, digest: str | None = None, level: str | None = None) -> Path:
    """Finds the folder of a prepared data set by name, by the first digits of its digest, or by its path.

    `digest` and `level`, if given, select one of several data sets with this name. A name with a slash is a path, which
    must lie within the data folder after links are resolved.

    Raises:
        NotFound: no prepared data set matches.
        InvalidInput: several data sets have the name, or the data set is damaged or outside the data folder.
    """
    if is_path(name):
        folder = _within(name, data_folder)
        try:
            manifests = {folder: read_manifest(folder)}
        except InvalidInput as error:
            raise _as_dataset(error, name) from None
    else:
        manifests = {}
        for folder, manifest in prepared_in(data_folder):
            if isinstance(manifest, Manifest):
                if manifest.name == name or _begins(manifest.digest, name):
                    manifests[folder] = manifest
            elif _begins(folder.name, name):
                raise _as_dataset(manifest, name)
    matching = [
        folder
        for folder, manifest in manifests.items()
        if digest in (None, manifest.digest) and level in (None, manifest.level)
    ]
    if not matching:
        at = "" if level is None else f" at level {level}"
        raise NotFound(f"no data set {name!r} is prepared in {data_folder}{at}")
    if len({manifests[folder].digest for folder in matching}) > 1:
        listed = ", ".join(f"{manifests[folder].digest[:12]} ({manifests[folder].level})" for folder in matching)
        raise InvalidInput(
            f"dataset: several prepared data sets are called {name!r}: {listed}; name one by its digest",
            field="dataset",
            value=name,
            allowed="the first digits of a digest",
        )
    return matching[0]


def _available(data_folder: Path) -> str:
    """Returns the names of the available data sets as text for a message."""
    built_in = {source.name for source in data_sets().values() if source.built_in}
    prepared = {manifest.name for _, manifest in prepared_in(data_folder) if isinstance(manifest, Manifest)}
    names = sorted(built_in | prepared)
    more = f" and {len(names) - MAX_SHOWN} more" if len(names) > MAX_SHOWN else ""
    return ", ".join(names[:MAX_SHOWN]) + more


def is_path(name: str) -> bool:
    """Whether the name of a data set is a path."""
    return "/" in name or "\\" in name or name.startswith(".")


def _begins(digest: str, name: str) -> bool:
    return len(name) >= _SHORTEST_DIGEST and digest.startswith(name)


def _within(name: str, data_folder: Path) -> Path:
    root = data_folder.resolve()
    folder = (root / name).resolve()
    if folder == root or not folder.is_relative_to(root):
        raise InvalidInput(
            f"dataset: {name!r} is outside the service's data folder",
            field="dataset",
            value=name,
            allowed=f"the name of a data set, or a folder within the data folder; there are: {_available(data_folder)}",
        )
    return folder


def _as_dataset(error: InvalidInput, name: str) -> InvalidInput:
    return InvalidInput(f"dataset: {error.detail}", field="dataset", value=name, allowed=error.allowed)

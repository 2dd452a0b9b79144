"""Files for download: a candidate's model as ONNX (one file a mode), GGUF, safetensors or the folder
of transformers, or its architecture as JSON.

Weights are untrained, from the candidate's seed, and the file name says so. The files are a cache: a missing one is
built again with the same bytes, so they are not uploaded to an artifact store.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import delete, func, select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.common.errors import TooLarge, Unavailable
from edgefront.core.common.files import sha256
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.common.units import GIB
from edgefront.core.model_files.formats import OF_DTYPE
from edgefront.core.model_files.model_file import ModelFormat, check_format, file_name, write_model
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of
from edgefront.core.store import sql
from edgefront.core.store.database import Database
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Artifact

_MEDIA_TYPES = {".onnx": "application/onnx", ".json": "application/json", ".tar": "application/x-tar"}
_BINARY = "application/octet-stream"
# Number formats in the names of cached files: a new layout of one would have a new name.
_KEPT_AS = {**OF_DTYPE, "int8": "s7", "int4": "u4"}
_SHARE_AT_LEAST: dict[NumberFormat, float] = {
    "float32": 1.0,
    "float16": 0.5,
    "bfloat16": 0.5,
    "int8": 0.25,
    "q8_0": 0.25,
    "q6_k": 0.1875,
    "q5_k_m": 0.15625,
    "int4": 0.125,
    "q4_0": 0.125,
    "q4_k_m": 0.125,
    "iq4_nl": 0.125,
}
"""Least share of the bytes of float32 that a file has: quantised formats keep some matrices as they are."""
_ABANDONED_S = 24 * 3600.0
_LEFT_FREE = GIB
"""Bytes of the disk that stay free for others who write there."""
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""One builder per file at a time in this process. Two processes may both build it, with the same bytes."""


@dataclass(frozen=True)
class ArtifactFile:
    """A file that is ready to be sent. `sha256` (of the bytes) is its ETag."""

    path: Path
    name: str
    media_type: str
    size: int
    sha256: str


def artifact_for(
    database: Database,
    principal: Principal,
    candidate_id: str,
    format_: ModelFormat,
    folder: Path,
    number_format: NumberFormat = "float32",
    most: int | None = None,
) -> ArtifactFile:
    """The file, built once per (architecture, seed, format, number format) and again if it is missing from the disk.
    Of those that were built before, the oldest are removed so that all together have at most `most` bytes (None: any).

    Takes the database, not a session: building can take seconds and holds no transaction. Concurrent requests are
    safe; a partially written file is never visible.

    Raises:
        NotFound: no such candidate, or not yours.
        InvalidInput: unknown format or number format, or one that this model does not support.
        TooLarge: the model alone has more bytes, or ONNX cannot hold it.
        Unavailable: the disk is full or the folder cannot be written.
    """
    with database.read() as session:
        candidate, _ = candidate_of(session, principal, candidate_id)
        digest, seed, description = candidate.digest, candidate.seed, candidate.architecture
    architecture = Architecture.parse(description)
    check_format(architecture, format_, number_format)
    path = folder / f"{digest[:2]}/{digest}/{file_name(digest, seed, format_, number_format)}"
    kept_as = format_ if number_format == "float32" else f"{format_}-{_KEPT_AS.get(number_format, number_format)}"
    file = _ready(database, digest, seed, kept_as, path)
    if file is not None:
        return file
    with _LOCKS[hash(path) % len(_LOCKS)]:
        # A caller that waited for the lock finds the file that the previous one has built.
        file = _ready(database, digest, seed, kept_as, path)
        if file is not None:
            return file
        if format_ != "architecture":
            counted = costs(architecture, CostOptions(sequence_length=1))
            _check_room(folder, counted.weight_bytes, number_format, most)
        hashed, size = _build(architecture, seed, format_, path, number_format)
        relative = str(path.relative_to(folder))
        with database.write() as session:
            values = {"path": relative, "size": size, "sha256": hashed, "created_at": database.now(session)}
            record = sql.upsert(session, Artifact).values(digest=digest, seed=seed, format=kept_as, **values)
            session.execute(record.on_conflict_do_update(index_elements=["digest", "seed", "format"], set_=values))
        if most is not None:
            _make_room(database, folder, most, but=relative)
    return ArtifactFile(path, path.name, _MEDIA_TYPES.get(path.suffix, _BINARY), size, hashed)


def _check_room(folder: Path, float32_bytes: int, number_format: NumberFormat, most: int | None) -> None:
    """Raises unless a file with so many bytes of weights may be written, and the disk has room for it."""
    size = int(float32_bytes * _SHARE_AT_LEAST[number_format])
    if most is not None and size > most:
        raise TooLarge(
            f"the model has {size / GIB:.1f} GiB, above the {most / GIB:.1f} GiB of models that this service keeps for "
            "download (data.max_model_bytes): take its architecture, and build it where it is needed"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _unavailable(error) from error
    if size > free - _LEFT_FREE:
        raise Unavailable(f"the server's disk has no room for a model of {size / GIB:.1f} GiB: an admin can free some")


def _make_room(database: Database, folder: Path, most: int, but: str) -> None:
    """Removes the oldest files, except one, until all have at most so many bytes."""
    with database.read() as session:
        excess = int(session.scalar(select(func.sum(Artifact.size))) or 0) - most
        oldest: list[tuple[str, str]] = []
        others = select(Artifact).where(Artifact.path != but).order_by(Artifact.created_at, Artifact.id)
        for row in session.scalars(others) if excess > 0 else ():
            if excess <= 0:
                break
            oldest.append((row.id, row.path))
            excess -= row.size
    removed = []
    for id_, path in oldest:  # before their records: of a file without a record nobody would know
        with contextlib.suppress(OSError):
            (folder / path).unlink(missing_ok=True)
            removed.append(id_)
    if removed:
        with database.write() as session:
            session.execute(delete(Artifact).where(any_of(Artifact.id, removed)))


def _ready(database: Database, digest: str, seed: int, kept_as: str, path: Path) -> ArtifactFile | None:
    """The file if it is recorded, and on the disk with the recorded size."""
    own = (Artifact.digest == digest, Artifact.seed == seed, Artifact.format == kept_as)
    with database.read() as session:
        noted = session.execute(select(Artifact.size, Artifact.sha256).where(*own)).first()
    with contextlib.suppress(OSError):
        if noted is not None and path.stat().st_size == noted.size:
            return ArtifactFile(path, path.name, _MEDIA_TYPES.get(path.suffix, _BINARY), *noted)
    return None


def _build(
    architecture: Architecture, seed: int, format_: ModelFormat, path: Path, number_format: NumberFormat
) -> tuple[str, int]:
    """Writes the file, which has its name once it is complete; returns SHA-256 and size."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in path.parent.glob(".*.part"):  # files of builders that were killed (`whole_file`)
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > _ABANDONED_S:
                    part.unlink()
        write_model(architecture, format_, seed, path, number_format)
        return sha256(path), path.stat().st_size
    except Unavailable as error:  # its message names the server's folder
        raise Unavailable(_FULL) from error
    except OSError as error:
        raise _unavailable(error) from error


_FULL = "the server's disk is full: the model cannot be built until an admin frees some space"


def _unavailable(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(_FULL)
    return Unavailable(f"the server cannot write the model: {error.strerror or error}")

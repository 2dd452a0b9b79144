"""Model files of candidates for download: ONNX (one file per mode), GGUF, safetensors, a transformers folder, or the
architecture as JSON.

The weights are untrained: they are drawn with the candidate's seed, which the file name contains. The files are a
cache, and a missing file is built again with the same bytes.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import threading
import time
from pathlib import Path

from sqlalchemy import delete, func, select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.errors import TooLarge, Unavailable
from edgefront.core.common.files import sha256
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.common.units import GIB, MB
from edgefront.core.model_files.formats import OF_DTYPE
from edgefront.core.model_files.model_file import ModelFormat, as_measured, check_format, file_name, write_model
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, target_of
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.services.trainings.downloads import BINARY, Download
from edgefront.core.store import sql
from edgefront.core.store.database import Database
from edgefront.core.store.sql import any_of
from edgefront.core.store.tables import Artifact

_MEDIA_TYPES = {".onnx": "application/onnx", ".json": "application/json", ".tar": "application/x-tar"}

# Names of number formats in the cache's records. A format whose file layout changes gets a new name.
_CACHE_NAMES = {**OF_DTYPE, "int8": "s7", "int4": "u4"}
_MINIMUM_SIZES: dict[NumberFormat, float] = {
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
"""Number format → minimum file size relative to float32. Quantised formats keep some matrices in higher precision."""
_ABANDONED_S = 24 * 3600.0
_LEFT_FREE = GIB
"""Free disk space, in bytes, that must remain for other writers after a file is built."""
_LOCKS = tuple(threading.Lock() for _ in range(64))
"""Locks by hash of a path: only one thread of a process builds a file. Two processes may build equal files."""


def artifact_for(
    database: Database,
    principal: Principal,
    candidate_id: str,
    format_: ModelFormat,
    folder: Path,
    number_format: NumberFormat | None = None,
    max_bytes: int | None = None,
    logits: Logits | None = None,
) -> Download:
    """Returns the candidate's model file. Number format and logits are by default what was measured, where the format
    has it. A file is built once per (architecture, seed, format, number format, logits), and again if it is missing
    from the disk. The oldest files are removed until all together have at most `max_bytes` (None: no limit).

    Building may take seconds and happens outside any transaction. Concurrent requests are safe, and a partly written
    file is never visible.

    Raises:
        NotFound: the candidate does not exist or belongs to another owner.
        InvalidInput: the model does not support the format, number format or logits.
        TooLarge: the model exceeds `max_bytes`, or the size limit of ONNX.
        Unavailable: the disk is full, or the folder cannot be written.
    """
    with database.read() as session:
        candidate, job = candidate_of(session, principal, candidate_id)
        digest, seed, description = candidate.digest, candidate.seed, candidate.architecture
        measured = PROTOCOL.read(target_of(session, job, candidate.target_id).protocol)
    measured_numbers, measured_logits = as_measured(format_, measured.number_format, measured.logits)
    number_format, logits = number_format or measured_numbers, logits or measured_logits
    architecture = Architecture.parse(description)
    check_format(architecture, format_, number_format, logits)
    path = folder / f"{digest[:2]}/{digest}/{file_name(digest, seed, format_, number_format, logits)}"
    numbers = None if number_format == "float32" else _CACHE_NAMES.get(number_format, number_format)
    cached_as = "-".join(filter(None, (format_, numbers, logits)))
    file = _cached(database, digest, seed, cached_as, path)
    if file is not None:
        return file
    with _LOCKS[hash(path) % len(_LOCKS)]:
        file = _cached(database, digest, seed, cached_as, path)  # another thread may have built it
        if file is not None:
            return file
        if format_ != "architecture":
            float32_bytes = costs(architecture, CostOptions(sequence_length=1)).weight_bytes
            _check_space(folder, int(float32_bytes * _MINIMUM_SIZES[number_format]), max_bytes)
        hashed, size = _build(architecture, seed, format_, path, number_format, logits)
        relative = str(path.relative_to(folder))
        with database.write() as session:
            values = {"path": relative, "size": size, "sha256": hashed, "created_at": database.now(session)}
            record = sql.upsert(session, Artifact).values(digest=digest, seed=seed, format=cached_as, **values)
            session.execute(record.on_conflict_do_update(index_elements=["digest", "seed", "format"], set_=values))
        if max_bytes is not None:
            _evict(database, folder, max_bytes, exclude=relative)
    return _download(path, size, hashed)


def _download(path: Path, size: int, sha256_: str) -> Download:
    return Download(path, path.name, size, sha256_, _MEDIA_TYPES.get(path.suffix, BINARY))


def _check_space(folder: Path, size: int, max_bytes: int | None) -> None:
    """Raises `TooLarge` or `Unavailable` unless a file of at least `size` bytes fits into the cache and on the disk."""
    if max_bytes is not None and size > max_bytes:
        raise TooLarge(
            f"the model has {size / MB:,.0f} MB, but this service stores at most {max_bytes / MB:,.0f} MB of models "
            "(data.max_model_bytes). Download the architecture instead, and build the model where it is needed"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise _unavailable(error) from error
    if size > free - _LEFT_FREE:
        raise Unavailable(f"the server's disk lacks space for a model of {size / MB:,.0f} MB; an admin must free some")


def _evict(database: Database, folder: Path, max_bytes: int, exclude: str) -> None:
    """Removes the oldest files, except `exclude`, until the rest has at most `max_bytes`."""
    with database.read() as session:
        excess = int(session.scalar(select(func.sum(Artifact.size))) or 0) - max_bytes
        oldest: list[tuple[str, str]] = []
        others = select(Artifact).where(Artifact.path != exclude).order_by(Artifact.created_at, Artifact.id)
        for row in session.scalars(others) if excess > 0 else ():
            if excess <= 0:
                break
            oldest.append((row.id, row.path))
            excess -= row.size
    removed = []
    for id_, path in oldest:  # files first, because nothing would ever remove a file without a record
        with contextlib.suppress(OSError):
            (folder / path).unlink(missing_ok=True)
            removed.append(id_)
    if removed:
        with database.write() as session:
            session.execute(delete(Artifact).where(any_of(Artifact.id, removed)))


def _cached(database: Database, digest: str, seed: int, cached_as: str, path: Path) -> Download | None:
    """Returns the cached file; None if there is no record of the file, or if its size differs from the record."""
    own = (Artifact.digest == digest, Artifact.seed == seed, Artifact.format == cached_as)
    with database.read() as session:
        record = session.execute(select(Artifact.size, Artifact.sha256).where(*own)).first()
    with contextlib.suppress(OSError):
        if record is not None and path.stat().st_size == record.size:
            return _download(path, *record)
    return None


def _build(
    architecture: Architecture,
    seed: int,
    format_: ModelFormat,
    path: Path,
    number_format: NumberFormat,
    logits: Logits | None,
) -> tuple[str, int]:
    """Writes the file, which appears under `path` once it is complete. Returns its SHA-256 and its size in bytes."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for part in path.parent.glob(".*.part"):  # left by killed processes (`whole_file`)
            with contextlib.suppress(OSError):
                if time.time() - part.stat().st_mtime > _ABANDONED_S:
                    part.unlink()
        write_model(architecture, format_, seed, path, number_format, logits=logits)
        return sha256(path), path.stat().st_size
    except Unavailable as error:  # replaced, because the message names a folder of the server
        raise Unavailable(_FULL) from error
    except OSError as error:
        raise _unavailable(error) from error


_FULL = "the server's disk is full: the model cannot be built until an admin frees some space"


def _unavailable(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Unavailable(_FULL)
    return Unavailable(f"the server cannot write the model: {error.strerror or error}")

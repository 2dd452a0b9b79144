"""File formats of a model: which formats a model supports, file names, and writing files.

Large libraries are imported only for writing.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.architectures.gguf import gguf_form
from edgefront.core.architectures.huggingface import CONFIG, to_config
from edgefront.core.common.errors import Conflict, InvalidInput
from edgefront.core.common.files import refusing_full_disk, whole_file
from edgefront.core.common.number_formats import QUANTISED, GgufFormat, NumberFormat, Quantisation
from edgefront.core.common.validation import one_of
from edgefront.core.model_files.state import Dtype, GraphOptions, Mode, check_in_place, check_pass

if TYPE_CHECKING:
    from edgefront.core.model_files.parameter_values import ParameterValues

ModelFormat = Literal[
    "onnx",
    "onnx-prefill",
    "onnx-decode",
    "onnx-generate",
    "onnx-segment",
    "gguf",
    "transformers",
    "safetensors",
    "architecture",
]

MODES: dict[ModelFormat, Mode] = {
    "onnx": "forward",
    "onnx-prefill": "prefill",
    "onnx-decode": "decode",
    "onnx-generate": "decode",
    "onnx-segment": "segment",
}
"""Mode of each ONNX format's graph (see `core.model_files.build`).

`onnx-generate` also reads the prompt, and writes keys and values in place.
"""

_OF_ONNX: tuple[NumberFormat, ...] = ("float32", "float16", "bfloat16", "int8", "int4")
NUMBERS: dict[ModelFormat, tuple[NumberFormat, ...]] = {
    **dict.fromkeys(MODES, _OF_ONNX),
    "gguf": get_args(GgufFormat),
}
"""Number formats of each file format; file formats not listed have only float32."""

LOGITS: dict[ModelFormat, tuple[Logits, ...]] = {
    **dict.fromkeys(MODES, ("last",)),
    "onnx": get_args(Logits),
    "onnx-segment": get_args(Logits),
}
"""Positions whose logits the graph of an ONNX format can compute, the default first."""


def as_measured(
    format_: ModelFormat, number_format: NumberFormat, logits: Logits
) -> tuple[NumberFormat, Logits | None]:
    """Number format and logits of a file of this format after a measurement with these, where the format has them;
    otherwise its defaults (no logits: a format without a choice).
    """
    allowed = LOGITS.get(format_, (None,))
    own = number_format if number_format in NUMBERS.get(format_, ()) else "float32"
    return own, logits if logits in allowed else allowed[0]


def formats_of(architecture: Architecture) -> tuple[ModelFormat, ...]:
    """File formats in which this model can be written."""
    return tuple(format_ for format_ in get_args(ModelFormat) if _fault(architecture, format_) is None)


def check_format(
    architecture: Architecture,
    format_: ModelFormat,
    number_format: NumberFormat = "float32",
    logits: Logits | None = None,
) -> None:
    """Raises `InvalidInput` unless this model can be written in this file format and number format.

    The error names `format` if the model cannot be written in the file format (for example an encoder in a generation
    format), `numbers` if the file format does not support the number format, and `logits` if its graph cannot compute
    those.
    """
    one_of("format", format_, get_args(ModelFormat))
    one_of("numbers", number_format, get_args(NumberFormat))
    number_formats = NUMBERS.get(format_, ("float32",))
    if number_format not in number_formats:
        reason = {
            "safetensors": "it contains float32, which can be converted after loading",
            "transformers": "it contains float32, which can be converted after loading",
            "architecture": "it contains no weights",
        }.get(format_, f"it has {', '.join(number_formats)}")
        raise InvalidInput(
            f"numbers {number_format} is not for {format_}: {reason}",
            field="numbers",
            value=number_format,
            allowed=", ".join(number_formats) if len(number_formats) > 1 else "float32, or another format",
        )
    if logits is not None and logits not in (allowed := LOGITS.get(format_, ())):
        raise InvalidInput(
            f"logits {logits} is not for {format_}, "
            + ("whose runtime decides" if not allowed else f"which computes those of the {allowed[0]} position"),
            field="logits",
            value=logits,
            allowed=", ".join(allowed) or "no value",
        )
    fault = _fault(architecture, format_, number_format)
    if fault is not None:
        nearest = f" (it has {fault.allowed})" if format_ in ("gguf", "transformers") else ""
        raise InvalidInput(
            f"format {format_} is not for this model: {fault.detail}{nearest}",
            field="format",
            value=format_,
            allowed=", ".join(formats_of(architecture)),
        )


def file_name(
    digest: str,
    seed: int | None,
    format_: ModelFormat,
    number_format: NumberFormat = "float32",
    logits: Logits | None = None,
) -> str:
    """Builds a file name from the digest, the seed of untrained weights (None: trained), the graph's mode unless
    forward, the positions of its logits unless the default, and the number format unless float32.
    """
    short = digest[:12]
    if format_ == "architecture":
        return f"edgefront-{short}-architecture.json"
    kind, _, mode = format_.partition("-")
    positions = "" if logits is None or logits == LOGITS[format_][0] else logits
    parts = (mode, positions, "" if number_format == "float32" else number_format)
    what = "".join(f"-{part}" for part in parts if part)
    weights = "trained" if seed is None else f"untrained-seed{seed}"
    if format_ == "transformers":
        return f"edgefront-{short}-{weights}-transformers.tar"
    return f"edgefront-{short}-{weights}{what}.{kind}"


def write_model(
    architecture: Architecture,
    format_: ModelFormat,
    weights: int | ParameterValues,
    path: Path,
    number_format: NumberFormat = "float32",
    files: Mapping[str, bytes] | None = None,
    logits: Logits | None = None,
) -> None:
    """Writes one file with the untrained weights of a seed or given weights (`core.model_files.parameter_values`).

    A file of the format "architecture" contains only the description in canonical form. `files` are the tokenizer and
    card of a trained model: the transformers archive includes the files, and a GGUF file takes its vocabulary from the
    tokenizer. `logits`: the positions that an ONNX graph scores, by default the first of `LOGITS`.

    Raises `InvalidInput` for a format, number format or logits that the model does not support, or a tokenizer that
    GGUF cannot express, `TooLarge` for an ONNX file above 2 GiB, `Unavailable` if the disk is full.
    """
    check_format(architecture, format_, number_format, logits)
    if format_ == "architecture":
        with whole_file(path) as file:
            file.write((json.dumps(architecture.canonical, indent=2, sort_keys=True) + "\n").encode())
        return
    from edgefront.core.model_files.export import write_onnx, write_safetensors

    if format_ == "gguf":
        from edgefront.core.model_files.gguf import write_gguf

        write_gguf(architecture, weights, path, cast(GgufFormat, number_format), files)
    elif format_ == "transformers":
        from edgefront.core.model_files.huggingface import write_transformers

        write_transformers(architecture, weights, path, files)
    elif format_ == "safetensors":
        write_safetensors(architecture, weights, path)
    else:
        in_place = format_ == "onnx-generate"
        options = GraphOptions(mode=MODES[format_], logits=logits or LOGITS[format_][0], in_place=in_place)
        if number_format in QUANTISED:
            options = replace(options, quantisation=cast(Quantisation, number_format))
        else:
            options = replace(options, dtype=cast(Dtype, number_format))
        write_onnx(architecture, weights, path, options)


@contextmanager
def as_folder(path: Path, format_: ModelFormat, *, force: bool) -> Iterator[Path]:
    """Yields the path to which to write a model's file. Unpacks a transformers archive to the folder `path` afterwards.

    An archive stays packed if `path` ends in `.tar` or is a folder without a model, which then receives the archive.
    Raises `Conflict` if `path` is a model's folder or a file, unless `force`, which replaces the files.
    """
    holds_others = path.is_dir() and not (path / CONFIG).exists()
    if format_ != "transformers" or path.suffix == ".tar" or holds_others:
        yield path
        return
    if path.exists() and not force:
        raise Conflict(f"{path} exists. Replace it with --force, or name another folder")
    archive, draft = (path.with_name(f".{path.name}.{ending}") for ending in ("tar", "part"))
    try:
        yield archive
        with refusing_full_disk(path), tarfile.open(archive) as packed:
            packed.extractall(draft, filter="data")
        if path.is_file():
            path.unlink()
        path.mkdir(exist_ok=True)
        for file in sorted(draft.glob("*/*")):
            file.replace(path / file.name)
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(draft, ignore_errors=True)


def bytes_at(path: Path) -> int:
    """Number of bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.iterdir()))


def _fault(
    architecture: Architecture, format_: ModelFormat, number_format: NumberFormat = "float32"
) -> InvalidInput | None:
    try:
        if format_ == "gguf":
            gguf_form(architecture, number_format)
        elif format_ == "transformers":
            to_config(architecture)
        check_pass(architecture, MODES.get(format_, "forward"))
        if format_ == "onnx-generate":
            check_in_place(architecture)
    except InvalidInput as error:
        return error
    return None

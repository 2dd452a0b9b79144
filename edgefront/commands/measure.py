"""`edgefront measure`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.completion import complete_model
from edgefront.commands.options import (
    DTYPE,
    MEMORY_LENGTH,
    MODE,
    SEQUENCE_LENGTH,
    WEIGHTS,
)
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.number_formats import BLOCK_SIZE, Quantisation

if TYPE_CHECKING:
    from edgefront.workflows.measure import Measured


_PANELS = {
    "Runtime": "runtime provider threads",
    "Pass": "mode sequence_length memory_length batch dtype weights block_size logits",
    "Launches": "warmup repeats launches time_limit seed",
}


def add_to(app: typer.Typer) -> None:
    command(app, "measure", server=False, panels=_PANELS)(measure)


def measure(
    session: Session,
    model: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="An architecture as JSON, a named model, or any ONNX file.",
            autocompletion=complete_model,
        ),
    ],
    runtime: Annotated[Runtime, typer.Option(help="Runtime that executes the model.")] = "onnxruntime",
    provider: Annotated[str, typer.Option(help="Execution provider or device: cpu, cuda, xnnpack, gpu …")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Number of threads of the runtime.")] = 1,
    mode: Annotated[Literal["forward", "prefill", "decode"], typer.Option(help=MODE)] = "forward",
    sequence_length: Annotated[int | None, typer.Option(min=1, help=SEQUENCE_LENGTH)] = None,
    memory_length: Annotated[int | None, typer.Option(min=0, help=MEMORY_LENGTH)] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences per pass.")] = 1,
    dtype: Annotated[Literal["float32", "bfloat16", "float16"], typer.Option(help=DTYPE)] = "float32",
    weights: Annotated[Quantisation, typer.Option(help=WEIGHTS)] = "full",
    block_size: Annotated[int, typer.Option(help="With weights int4: weights that share a scale.")] = BLOCK_SIZE,
    logits: Annotated[
        Literal["none", "last", "all"], typer.Option(help="Positions whose logits are computed.")
    ] = "last",
    warmup: Annotated[int, typer.Option(min=0, help="Untimed passes before the timed ones.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes of each launch.")] = 5,
    launches: Annotated[
        int, typer.Option(min=1, help="Launches (fresh processes); the interval is computed over them.")
    ] = 3,
    time_limit: Annotated[float, typer.Option(min=0.1, help="Time limit of one launch in seconds.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the random weights and tokens.")] = 0,
) -> None:
    """Measure a model on this machine: median latency, its interval, and peak memory. Needs no server."""
    from pydantic import ValidationError

    from edgefront.core.errors import ProtocolError
    from edgefront.core.measurement.passes import protocol_costs
    from edgefront.core.measurement.protocol import MeasurementProtocol
    from edgefront.core.spaces.architecture import Architecture
    from edgefront.core.validation import invalid_input
    from edgefront.workflows.measure import find_model, run

    lengths = {"sequence_length": sequence_length, "memory_length": memory_length}
    choices: dict[str, Any] = {
        "runtime": runtime,
        "provider": provider,
        "threads": threads,
        "mode": mode,
        "batch": batch,
        "dtype": dtype,
        "weights": weights,
        "block_size": block_size,
        "logits": logits,
        "warmup": warmup,
        "repeats": repeats,
        "time_limit_s": time_limit,
    }
    try:
        protocol = MeasurementProtocol(
            **choices, **{name: value for name, value in lengths.items() if value is not None}
        )
    except ValidationError as error:
        raise invalid_input(error, ProtocolError) from None
    subject = find_model(model)
    if isinstance(subject, Architecture):
        protocol_costs(subject, protocol)  # refuses passes that the model does not support
    with session.err.status(f"measuring {model} …"):
        measured = run(subject, protocol, launches=launches, seed=seed)
    session.put(measured.report(), lambda: _show(session, Path(model).name, measured))


def _show(session: Session, name: str, measured: Measured) -> None:
    from edgefront.show.output import mebibytes, milliseconds, table

    report: dict[str, Any] = measured.report()
    memory = report["memory"]
    shown = table(f"of one {measured.protocol.one_pass}", "value", title=name, right=("value",))
    shown.add_row("latency, median (ms)", milliseconds(report["latency_ms"], report["latency_half_width_ms"]))
    if report["latency_p90_ms"] is not None:
        shown.add_row("latency, p90 (ms)", milliseconds(report["latency_p90_ms"]))
    shown.add_row("peak memory (MiB)", mebibytes(memory["peak_bytes"]))
    shown.add_row("  during the passes", mebibytes(memory["forward_peak_bytes"]))
    shown.add_row("  weights mapped from a file", mebibytes(memory["mapped_weight_bytes"]))
    shown.add_row("peak during the build (MiB)", mebibytes(memory["build_peak_bytes"]))
    session.out.print(shown)
    protocol = measured.protocol
    passes = sum(len(launch.latency.samples_ms) for launch in measured.launches if launch.latency)
    session.note(
        f"{protocol.runtime} {protocol.provider}, {protocol.threads} thread(s), batch {protocol.batch}, logits "
        f"{protocol.logits}, {protocol.dtype}, weights {protocol.weights}; {passes} passes in "
        f"{len(measured.launches)} launch(es), memory by the {memory['method']} method"
        + ("" if len(measured.launches) > 1 else "; an interval needs two launches or more")
    )

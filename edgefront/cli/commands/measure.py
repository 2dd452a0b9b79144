"""`edgefront measure`: measures a model on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgefront.cli.commands.options import MODEL_HELP, PassOptions
from edgefront.cli.session import Session
from edgefront.client.show.output import NONE, megabytes, millions, milliseconds
from edgefront.client.show.table import Table
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, MeasurementError, ProtocolError
from edgefront.core.common.number_formats import BLOCK_SIZE
from edgefront.core.common.validation import invalid_input
from edgefront.core.measurement.runtimes import Runtime

if TYPE_CHECKING:
    from edgefront.cli.workflows.measure import Measured


def measure(
    session: Session,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help=f"{MODEL_HELP} Or any ONNX file. A GGUF file runs in llama.cpp as it is, with other runtimes by its "
            "description.",
        ),
    ],
    runtime: Annotated[
        Runtime | None,
        typer.Option(help="Runtime that executes the model. Default: onnxruntime; llamacpp for a GGUF file."),
    ] = None,
    provider: Annotated[str, typer.Option(help="Execution provider or device: cpu, cuda, xnnpack, gpu …")] = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="Number of threads of the runtime.")] = 1,
    measured_pass: PassOptions = PassOptions(),
    batch: Annotated[int, typer.Option(min=1, help="Sequences per pass.")] = 1,
    block_size: Annotated[int, typer.Option(help="With weights int4: weights that share a scale.")] = BLOCK_SIZE,
    logits: Annotated[
        Literal["none", "last", "all"] | None,
        typer.Option(help="Positions whose logits are computed. Default: last; an ONNX file's graph decides."),
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            metavar="TOKENS[,TOKENS…]", help="Tokens before the prompt: 0,1024,4096 measures each. Default: 0."
        ),
    ] = None,
    warmup: Annotated[int, typer.Option(min=2, help="Untimed passes before the timed ones.")] = 2,
    repeats: Annotated[int, typer.Option(min=1, help="Timed passes of each launch.")] = 5,
    launches: Annotated[
        int, typer.Option(min=1, help="Launches (fresh processes); the interval is computed over them.")
    ] = 3,
    time_limit: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            max=3600,
            help="Time limit of one launch in seconds. Default: at least 60, more for many tokens and large models.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=(1 << 63) - 1, help="Seed of the random weights and tokens.")] = 0,
    record: Annotated[
        bool, typer.Option("--record", help="Add the result to the model card: MODEL is the folder of a trained model.")
    ] = False,
) -> None:
    """Measure a model on this machine: median latency, its interval, and peak memory. Needs no server.

    With --prompt, --new or --context it generates text and measures, for each context, the time to the first token and
    of each further token, tokens per second, peak memory and, where the machine reports it, the energy per token. If a
    context fails, the results before it are shown, and the command ends with an error that names it.
    """
    from pydantic import ValidationError

    from edgefront.cli.workflows.measure import find_model, run, time_limit_s
    from edgefront.client.requests import parse_contexts
    from edgefront.core.measurement.passes import protocol_costs
    from edgefront.core.measurement.protocol import MeasurementProtocol
    from edgefront.core.training.evaluation.given_model import is_gguf

    fields = measured_pass.protocol_fields(context=context)
    contexts = parse_contexts(context) if fields.get("mode") == "generate" else []
    if runtime is None:
        runtime = "llamacpp" if is_gguf(model) else "onnxruntime"
    options: dict[str, Any] = {
        "runtime": runtime,
        "provider": provider,
        "threads": threads,
        "batch": batch,
        "block_size": block_size,
        "logits": logits or "last",
        "warmup": warmup,
        "repeats": repeats,
    }
    try:
        protocols = [
            MeasurementProtocol.model_validate({**options, **fields, **past})
            for past in ([{"memory_length": length} for length in contexts] or [{}])
        ]
    except ValidationError as error:
        raise invalid_input(error, ProtocolError) from None
    if record:
        from edgefront.core.training.evaluation.package import add_measurements, read_package

        read_package(model)  # fails before anything is measured
    subject = find_model(model, runtime)
    if runtime != "llamacpp" and is_gguf(model):
        session.note(f"{runtime} cannot run a GGUF file: its description is measured, with random weights")
    if logits is not None and isinstance(subject, Path) and runtime != "llamacpp":
        raise InvalidInput(
            f"logits {logits} needs a description: an ONNX file computes what its graph says",
            field="logits",
            value=logits,
            allowed="omit, or the description of the model",
        )
    if isinstance(subject, Architecture):
        for protocol in protocols:
            protocol_costs(subject, protocol)  # raises for passes that the model does not support
    protocols = [
        protocol.model_copy(update={"time_limit_s": time_limit or time_limit_s(subject, protocol)})
        for protocol in protocols
    ]
    measured: list[Measured] = []
    failed: MeasurementError | None = None
    with session.err.status(f"measuring {model} …"):
        try:
            for result in run(subject, protocols, launches=launches, seed=seed, note=session.note):
                measured.append(result)
        except MeasurementError as error:
            failed = error
    if failed is not None and not measured:
        raise failed
    if record:
        add_measurements(model, [result.for_card() for result in measured])
    if not contexts:
        session.put(measured[0].report(), lambda: _show(session, Path(model).name, measured[0]))
        return

    def show() -> None:
        protocol = measured[0].protocol
        title = f"{Path(model).name}: {protocol.new_tokens} tokens from a prompt of {protocol.sequence_length}"
        times = ("first token (ms)", "further token (ms)", "whole (ms)")
        columns = ("context", *times, "tokens/s", "peak (MB)", "mJ/token")
        table = Table(
            *columns, title=title, right=columns, drop_first=("mJ/token", *times[2:], "peak (MB)", "tokens/s")
        )
        for each in measured:
            report = each.report()
            generation, energy = report["generation"], report["generation"]["energy_token_mj"]
            table.add_row(
                str(each.protocol.memory_length),
                *(
                    milliseconds(generation[f"{name}_ms"], generation[f"{name}_half_width_ms"])
                    for name in ("first_token", "token", "total")
                ),
                f"{generation['tokens_per_s']:.1f}",
                megabytes(report["memory"]["peak_bytes"]),
                NONE if energy is None else f"{energy:.3g}",
            )
        session.out.print(table)
        session.note(str(measured[-1].generation()["energy"]))
        _note(session, measured[-1], measured)

    session.put({"contexts": [result.report() for result in measured]}, show)
    if failed is not None:
        raise failed


def _show(session: Session, name: str, measured: Measured) -> None:
    report: dict[str, Any] = measured.report()
    memory = report["memory"]
    table = Table(f"of one {measured.protocol.one_pass}", "value", title=name, right=("value",))
    table.add_row("latency, median (ms)", milliseconds(report["latency_ms"], report["latency_half_width_ms"]))
    if report["latency_p90_ms"] is not None:
        table.add_row("latency, p90 (ms)", milliseconds(report["latency_p90_ms"]))
    table.add_row("peak memory (MB)", megabytes(memory["peak_bytes"]))
    table.add_row("  during the passes", megabytes(memory["forward_peak_bytes"]))
    table.add_row("  weights mapped from a file", megabytes(memory["mapped_weight_bytes"]))
    table.add_row("peak during the build (MB)", megabytes(memory["build_peak_bytes"]))
    session.out.print(table)
    _note(session, measured)


def _note(session: Session, measured: Measured, contexts: Sequence[Measured] = ()) -> None:
    """Prints notes on a measurement's setup, and on the conditions of all `contexts` (default: of this measurement)."""
    report = measured.report()
    memory, protocol = report["memory"], measured.protocol
    kind = "generations" if protocol.mode == "generate" else "passes"
    passes = sum(len(launch.latency.samples_ms) for launch in measured.launches if launch.latency)
    file = report.get("gguf")
    if file is not None:
        parts = ", ".join(f"{millions(count)} {name}" for name, count in file["weights"].items())
        session.note(
            f"{file['architecture']} of {millions(file['parameters'])} weights, as they are in the file: {parts}"
        )
    numbers = "" if file is not None else f", {protocol.dtype}, weights {protocol.weights}"
    computed = report.get("computes", f"logits {protocol.logits}{numbers}")
    session.note(
        f"{protocol.runtime} {protocol.provider}, {protocol.threads} thread(s), batch {protocol.batch}, {computed}"
        + (f", key/value cache {protocol.kv_cache}" if protocol.kv_cache else "")
        + f"; {passes} {kind} in {len(measured.launches)} launch(es), memory by the {memory['method']} method"
    )
    for each in contexts or (measured,):
        if (conditions := each.bad_conditions()) is not None:
            session.note(f"! {conditions}")

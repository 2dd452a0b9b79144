"""`edgefront predict`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.commands.base import Session
from edgefront.commands.options import WAYS, LawName, ProtocolFields, TrainingBudgetOptions

if TYPE_CHECKING:
    from edgefront.core.spaces.architecture import Architecture
    from edgefront.core.wire.predictions import PartView, PredictionsView, PredictionView


def predict(
    session: Session,
    architectures: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help=f"Models: {WAYS}.",
        ),
    ],
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE[:RUNTIME[:THREADS]]",
            help="Device, runtime and threads; class=NAME for a device class. Default: the only active device.",
        ),
    ] = None,
    protocol: ProtocolFields = None,
    law: LawName = None,
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
) -> None:
    """Predict latency, memory and quality of models on a device, and where the milliseconds go. Nothing is run.

    The predictions are learnt from everything that was measured on the device by the same protocol.
    """
    from edgefront.commands.devices import only_device
    from edgefront.core.evaluation.given_model import architecture_of
    from edgefront.requests import jobs as submission

    budget = training.given
    models = [architecture_of(given) for given in architectures]
    place = submission.target(device or only_device(session), option="device")
    fields = place.pop("protocol") | submission.settings(protocol or [], option="protocol")
    answer = session.client.predict(models, **place, protocol=fields, law=law, **budget)

    def show() -> None:
        for given, model, prediction in zip(architectures, models, answer.predictions, strict=True):
            _show(session, given, model, prediction)
        _notes(session, answer)

    session.put(answer, show)


def _show(session: Session, title: str, model: Architecture, prediction: PredictionView) -> None:
    from edgefront.core.units import MB
    from edgefront.show.output import NONE, megabytes, millions, milliseconds, share, table
    from edgefront.show.quality import median_quality, of_label, quality_header, quality_interval, quality_label

    predicted = prediction.predicted
    shown = table("predicted", "value", "95 % interval", title=title, right=("value", "95 % interval"))
    latency = (predicted.latency_ms, predicted.latency_low_ms, predicted.latency_high_ms)
    memory = (predicted.memory_bytes, predicted.memory_low_bytes, predicted.memory_high_bytes)
    far = ", extrapolated" if prediction.beyond_measured else ""
    shown.add_row("latency (ms)", milliseconds(latency[0]), _interval(latency) + far)
    shown.add_row("peak memory (MB)", megabytes(memory[0]), _interval(memory, MB) + far)
    shown.add_row(
        quality_header([predicted]).removeprefix("predicted "),
        median_quality(predicted),
        NONE
        if predicted.perplexity is None
        else quality_interval(predicted) + (", extrapolated" if predicted.extrapolated else ""),
    )
    shown.add_row("decoder parameters", millions(prediction.decoder_parameters), "exact")
    if prediction.measured is not None:
        seen = prediction.measured
        shown.add_row("measured: latency (ms)", milliseconds(seen.latency_ms, seen.latency_half_width_ms), "")
        shown.add_row("measured: memory (MB)", megabytes(seen.memory_bytes), "")
    session.out.print(shown)
    if label := of_label(quality_label([predicted])):
        session.say(label)
    parts = table(
        *("block", "kind", "ms", "share", "most of it"),
        right=("block", "ms", "share"),
        prose=("kind", "most of it"),
        less=("most of it",),
    )
    total = sum(part.ms for part in prediction.parts)
    for part in prediction.parts:
        parts.add_row(
            NONE if part.block is None else str(part.block),
            _kind(model, part),
            milliseconds(part.ms),
            share(part.ms / total),
            _most(part),
        )
    session.out.print(parts)


def _notes(session: Session, answer: PredictionsView) -> None:
    protocol = answer.protocol
    session.note(
        f"{answer.device}: {protocol.one_pass}, {protocol.runtime} {protocol.provider}, {protocol.threads} thread(s), "
        f"batch {protocol.batch}, logits {protocol.logits}, {protocol.number_format}; learnt from {answer.learnt_from} "
        f"of {answer.measurements} measurements, which it misses by {answer.latency_error:.1%} (latency) and "
        f"{answer.memory_error:.1%} (memory) if each is predicted from the others"
    )
    if answer.perplexity_of:
        session.note(f"predicted perplexity: {answer.perplexity_of}")
    if any(prediction.beyond_measured for prediction in answer.predictions):
        session.note("extrapolated: it does much more, or much less, than anything that was measured there")
    if answer.note:
        session.note(answer.note)


def _interval(values: tuple[float | None, float | None, float | None], unit: int = 1) -> str:
    from edgefront.show.output import NONE

    middle, low, high = values
    if middle is None or low is None or high is None:
        return NONE
    digits = 1 if middle / unit >= 10 else 2
    return f"{low / unit:.{digits}f} to {high / unit:.{digits}f}"


def _kind(model: Architecture, part: PartView) -> str:
    """The block in words: `attention, 8 heads`."""
    if part.block is None:
        return "embedding, output and each pass"
    source = model.source.blocks if model.source is not None else ()
    block: Any = (*source, *model.blocks)[part.block]
    facts = {"n_head": "heads", "d_inner": "inner", "d_attn": "d_attn", "d_proj": "d_proj"}
    sizes = [f"{value} {word}" for name, word in facts.items() if (value := getattr(block, name, None))]
    return ", ".join([part.kind.replace("_", "-"), *sizes])


def _most(part: PartView) -> str:
    """The two largest of what it is counted by."""
    largest = sorted(part.by_feature.items(), key=lambda item: (-item[1], item[0]))[:2]
    return ", ".join(f"{name.replace('_', ' ')} {ms:.2f}" for name, ms in largest)

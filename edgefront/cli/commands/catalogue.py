"""`edgefront space …`, `describe` and `predict`. Only `predict` needs a server."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.options import MODEL_FORMS, LawName, ModelArgument, ProtocolFields, TrainingBudgetOptions
from edgefront.cli.commands.quality import TrainedOn, at_budget, predicted, sentence, trained_in_words
from edgefront.cli.session import Session, command, group
from edgefront.client.show.output import NONE, megabytes, millions, milliseconds, share
from edgefront.client.show.table import Table
from edgefront.core.common.units import MB

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.schemas.predictions import PartView, PredictionView


spaces = group("Search spaces.")

_COST_ROWS = (
    "digest",
    "decoder_parameters",
    "position_parameters",
    "embedding_parameters",
    "total_parameters",
    "flops",
    "weight_bytes",
    "state_bytes",
)


def describe(
    session: Session,
    architecture: ModelArgument,
    sequence_length: Annotated[
        int | None, typer.Option(min=1, help="Tokens of the pass whose FLOPs are counted. Default: 192; in decode 1.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Sequences per pass.")] = 1,
    mode: Annotated[
        str,
        typer.Option(
            help="forward: all tokens at once; prefill: the same, returning the state; decode: one token after it.",
        ),
    ] = "forward",
    memory_length: Annotated[
        int | None,
        typer.Option(min=0, help="Tokens before the pass, in a segment memory or a state. Default: 0; in decode 192."),
    ] = None,
    logits: Annotated[str, typer.Option(help="Positions whose logits are computed: all, last or none.")] = "all",
    dtype: Annotated[str, typer.Option(help="Number format of the weights, for their size in bytes.")] = "float32",
    weights: Annotated[
        str,
        typer.Option(
            help="full, int8 or int4 for the linear layers of the blocks, or a format of GGUF files: q8_0, q4_k_m …"
        ),
    ] = "full",
    tokens: TrainedOn = None,
) -> None:
    """Count a model's parameters, FLOPs, weights and state without running it, and predict its quality. Also shows the
    facts and scores of a published model. Needs no server."""
    from edgefront.client.show.published import show_facts
    from edgefront.core.architectures.cost.costs import CostOptions, costs
    from edgefront.core.architectures.models.published import published_view
    from edgefront.core.training.evaluation.given_model import architecture_of, published_as

    facts = published_as(architecture)
    published = None if facts is None else published_view(facts)
    if published is not None and published.not_expressible is not None:
        session.put({"published": published}, lambda: show_facts(published, session.out))
        return
    model = architecture_of(architecture)
    quality = _predicted_quality(model, tokens)
    model_costs = costs(
        model,
        CostOptions(
            sequence_length=sequence_length,
            batch=batch,
            dtype=dtype,
            logits=logits,
            mode=mode,
            memory_length=memory_length,
            weights=weights,
        ),
    )
    result = {**dict(model_costs), "quality": quality} | ({} if published is None else {"published": published})

    def show() -> None:
        from edgefront.client.show.frontier_table import label_line

        table = Table("cost", "value", right=("value",))
        for name in _COST_ROWS:
            value = result[name]
            table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        session.out.print(table)
        past = f" after {model_costs.memory_length}" if model_costs.memory_length else ""
        number_format = dtype if weights == "full" else weights
        session.note(
            f"{mode}, sequence length {model_costs.sequence_length}{past}, batch {batch}, logits {logits}, "
            f"{number_format}"
        )
        if published is not None:
            show_facts(published, session.out)
        if quality is not None:
            session.say(f"predicted {sentence(quality)}")
            session.say(label_line(quality["label"]))
            session.note(f"by the scaling law {quality['law']}; {trained_in_words(quality)}")

    session.put(result, show)


def _predicted_quality(model: Architecture, tokens: str | None) -> dict[str, Any] | None:
    """Predicts quality by the scaling law of the model's family; None without a scaling law or without numpy.

    Raises `InvalidInput` if `tokens` is given and no scaling law for the model supports this training budget.
    """
    if find_spec("numpy") is None:
        return None
    from edgefront.core.quality.shipped import law_for
    from edgefront.core.training.proxies.score import law_about

    law = law_for(model) if tokens is None else at_budget(law_about(model), tokens)
    return None if law is None else predicted(law, model)


@command(spaces, "list", server=False)
def list_spaces(session: Session) -> None:
    """List the search spaces. Needs no server."""
    from edgefront.core.architectures import catalogue

    spaces = list(catalogue.spaces().values())

    table = Table.of(
        spaces,
        {
            "name": lambda space: space.name,
            "architectures": lambda space: f"{float(space.size()):.2g}",
            "title": lambda space: space.title,
            "source": lambda space: space.source,
        },
        right=("architectures",),
        wrap=("title", "source"),
        drop_first=("source",),
    )
    session.put([space.to_json() for space in spaces], table)


@command(spaces, "show", server=False)
def show_space(
    session: Session,
    space: Annotated[str, typer.Argument(help="Name of the space.")],
    narrow: Annotated[
        list[str] | None, typer.Option(metavar="GENE=VALUES", help="Narrow the space first: n_layer=2..6.")
    ] = None,
) -> None:
    """Show a search space and its genes. Needs no server."""
    from edgefront.client.requests import parse_narrowing
    from edgefront.core.architectures import catalogue
    from edgefront.core.architectures.space import LOADS_IN

    narrowed = catalogue.space(space).narrow(parse_narrowing(narrow or []))

    def show() -> None:
        table = Table("gene", "values", "per layer", title=f"{narrowed.name}: {narrowed.title}", wrap=("values",))
        for name, gene in narrowed.genes().items():
            if "values" in gene:
                values = ", ".join(str(value) for value in gene["values"])
            else:
                step = gene.get("step", 1)
                values = f"{gene['min']}..{gene['max']}" + (f" in steps of {step}" if step != 1 else "")
            table.add_row(name, values, "yes" if gene.get("per_layer") else "")
        session.out.print(table)
        session.out.print(f"{float(narrowed.size()):.3g} architectures · {narrowed.source}", markup=False)
        loaders = ", ".join(f"{LOADS_IN}={loader}" for loader in narrowed.loaders())
        if loaders:
            session.say(f"can be narrowed to what loads: {loaders}")
        if narrowed.caveat:
            session.say(f"proxy: {narrowed.caveat}")

    session.put(narrowed.to_json(), show)


def predict(
    session: Session,
    architectures: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help=f"Models: {MODEL_FORMS}.",
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
    """Predict latency, memory and quality of models on a device, and the latency of each block. Nothing is run.

    Latency and memory are learnt from all measurements of the device under the same protocol.
    """
    from edgefront.cli.commands.devices import only_device
    from edgefront.client import requests
    from edgefront.core.training.evaluation.given_model import architecture_of

    budget = training.values
    models = [architecture_of(name) for name in architectures]
    target = requests.parse_target(device or only_device(session), option="device")
    target["protocol"] |= requests.parse_protocol(protocol or [])
    answer = session.client.predict(models, **target, law=law, **budget)

    def show() -> None:
        for name, model, prediction in zip(architectures, models, answer.predictions, strict=True):
            _show(session, name, model, prediction)
        session.note(
            f"{answer.device}: {answer.protocol.setup}; learnt from {answer.learnt_from} of {answer.measurements} "
            f"measurements; predicting each from the others is off by {answer.latency_error:.1%} (latency) and "
            f"{answer.memory_error:.1%} (memory)"
        )
        if answer.perplexity_of:
            session.note(f"predicted perplexity: {answer.perplexity_of}")
        if any(prediction.beyond_measured for prediction in answer.predictions):
            session.note("extrapolated: much larger or smaller than every model that was measured there")
        if answer.note:
            session.note(answer.note)

    session.put(answer, show)


def _show(session: Session, title: str, model: Architecture, prediction: PredictionView) -> None:
    from edgefront.client.show.frontier_table import (
        label_line,
        median_quality,
        quality_header,
        quality_interval,
        quality_label,
    )

    predicted = prediction.predicted
    table = Table("predicted", "value", "95 % interval", title=title, right=("value", "95 % interval"))
    far = ", extrapolated" if prediction.beyond_measured else ""
    latency = _interval(predicted.latency_ms, predicted.latency_low_ms, predicted.latency_high_ms)
    memory = _interval(predicted.memory_bytes, predicted.memory_low_bytes, predicted.memory_high_bytes, MB)
    table.add_row("latency (ms)", milliseconds(predicted.latency_ms), latency + far)
    table.add_row("peak memory (MB)", megabytes(predicted.memory_bytes), memory + far)
    table.add_row(
        quality_header([predicted]).removeprefix("predicted "),
        median_quality(predicted),
        NONE
        if predicted.perplexity is None
        else quality_interval(predicted) + (", extrapolated" if predicted.extrapolated else ""),
    )
    table.add_row("decoder parameters", millions(prediction.decoder_parameters), "exact")
    if (measured := prediction.measured) is not None:
        table.add_row("measured: latency (ms)", milliseconds(measured.latency_ms, measured.latency_half_width_ms), "")
        table.add_row("measured: memory (MB)", megabytes(measured.memory_bytes), "")
    session.out.print(table)
    if label := label_line(quality_label([predicted])):
        session.say(label)
    total = sum(part.ms for part in prediction.parts)
    parts = Table.of(
        prediction.parts,
        {
            "block": lambda part: NONE if part.block is None else str(part.block),
            "kind": lambda part: _kind(model, part),
            "ms": lambda part: milliseconds(part.ms),
            "share": lambda part: share(part.ms / total),
            "most of it": _largest,
        },
        right=("block", "ms", "share"),
        wrap=("kind", "most of it"),
        drop_first=("most of it",),
    )
    session.out.print(parts)


def _largest(part: PartView) -> str:
    largest = sorted(part.by_feature.items(), key=lambda item: (-item[1], item[0]))[:2]
    return ", ".join(f"{name.replace('_', ' ')} {ms:.2f}" for name, ms in largest)


def _interval(middle: float | None, low: float | None, high: float | None, unit: int = 1) -> str:
    if middle is None or low is None or high is None:
        return NONE
    digits = 1 if middle / unit >= 10 else 2
    return f"{low / unit:.{digits}f} to {high / unit:.{digits}f}"


def _kind(model: Architecture, part: PartView) -> str:
    """Returns the kind and sizes of a block as text, such as `attention, 8 heads`."""
    if part.block is None:
        return "embedding, output and each pass"
    encoder = model.source.blocks if model.source is not None else ()
    block: Any = (*encoder, *model.blocks)[part.block]
    units = {"n_head": "heads", "d_inner": "inner", "d_attn": "d_attn", "d_proj": "d_proj"}
    sizes = [f"{value} {unit}" for name, unit in units.items() if (value := getattr(block, name, None))]
    return ", ".join([part.kind.replace("_", "-"), *sizes])

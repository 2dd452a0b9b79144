"""`edgefront space …`, `describe` and `predict`; only the last needs a server"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.base import Session, command, group
from edgefront.cli.commands.options import WAYS, Described, LawName, ProtocolFields, TrainingBudgetOptions
from edgefront.cli.commands.quality import TrainedOn, at_budget, predicted, sentence, token_count, trained_in_words

if TYPE_CHECKING:
    from edgefront.core.architectures.architecture import Architecture
    from edgefront.core.architectures.published import PublishedView
    from edgefront.core.schemas.predictions import PartView, PredictionsView, PredictionView


spaces = group("Search spaces.")

_DESCRIBED = (
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
    architecture: Described,
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
    """Count an architecture's parameters, FLOPs, weights and state without running it, and predict its quality; of a
    published model also its facts and scores. Needs no server."""
    from edgefront.core.architectures.cost.costs import CostOptions, costs
    from edgefront.core.training.evaluation.given_model import architecture_of

    asked = token_count(tokens)
    published = _published(architecture)
    if published is not None and published.not_expressible is not None:
        session.put({"published": published}, lambda: _show_published(session, published))
        return
    model = architecture_of(architecture)
    quality = _predicted(model, asked)
    counted = costs(
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
    result = {**counted.to_json(), "quality": quality} | ({} if published is None else {"published": published})

    def show() -> None:
        from edgefront.cli.show.output import table
        from edgefront.cli.show.tables import of_label

        shown = table("cost", "value", right=("value",))
        for name in _DESCRIBED:
            value = result[name]
            shown.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        session.out.print(shown)
        after = f" after {counted.memory_length}" if counted.memory_length else ""
        kind = dtype if weights == "full" else weights
        session.note(
            f"{mode}, sequence length {counted.sequence_length}{after}, batch {batch}, logits {logits}, {kind}"
        )
        if published is not None:
            _show_published(session, published)
        if quality is not None:
            session.say(f"predicted {sentence(quality)}")
            session.say(of_label(quality["label"]))
            session.note(f"by the law {quality['law']}; {trained_in_words(quality)}")

    session.put(result, show)


def _published(given: str) -> PublishedView | None:
    """The facts about a published model; None for another."""
    from edgefront.core.training.evaluation.given_model import published_as

    if (facts := published_as(given)) is None:
        return None
    from edgefront.core.architectures.models.published import published_view

    return published_view(facts)


def _show_published(session: Session, model: PublishedView) -> None:
    from edgefront.cli.show.published import facts
    from edgefront.core.architectures.published import score_tables

    facts(model, score_tables(), session.out)


def _predicted(model: Architecture, tokens: int | None) -> dict[str, Any] | None:
    """The quality that a law predicts; None where no law is about such models, or without numpy, which it needs.

    `InvalidInput` where tokens are given that no law about such models knows.
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

    def show() -> None:
        from edgefront.cli.show.output import table

        shown = table(
            *("name", "architectures", "title", "source"),
            right=("architectures",),
            prose=("title", "source"),
            less=("source",),
        )
        for space in spaces:
            shown.add_row(space.name, f"{float(space.size()):.2g}", space.title, space.source)
        session.out.print(shown)

    session.put([space.to_json() for space in spaces], show)


@command(spaces, "show", server=False)
def show_space(
    session: Session,
    space: Annotated[str, typer.Argument(help="Name of the space.")],
    narrow: Annotated[
        list[str] | None, typer.Option(metavar="GENE=VALUES", help="Narrow the space first: n_layer=2..6.")
    ] = None,
) -> None:
    """Show a search space and its genes, narrowed if you like. Needs no server."""
    from edgefront.client.requests.jobs import narrowing
    from edgefront.core.architectures import catalogue
    from edgefront.core.architectures.space import LOADS_IN

    narrowed = catalogue.space(space).narrow(narrowing(narrow or []))

    def show() -> None:
        from edgefront.cli.show.output import table

        shown = table("gene", "values", "per layer", title=f"{narrowed.name}: {narrowed.title}", prose=("values",))
        for gene, described in narrowed.genes().items():
            if "values" in described:
                values = ", ".join(str(value) for value in described["values"])
            else:
                step = described.get("step", 1)
                values = f"{described['min']}..{described['max']}" + (f" in steps of {step}" if step != 1 else "")
            shown.add_row(gene, values, "yes" if described.get("per_layer") else "")
        session.out.print(shown)
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
    from edgefront.cli.commands.devices import only_device
    from edgefront.client.requests import jobs as submission
    from edgefront.core.training.evaluation.given_model import architecture_of

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
    from edgefront.cli.show.output import NONE, megabytes, millions, milliseconds, share, table
    from edgefront.cli.show.tables import median_quality, of_label, quality_header, quality_interval, quality_label
    from edgefront.core.common.units import MB

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
    session.note(
        f"{answer.device}: {answer.protocol.setup}; learnt from {answer.learnt_from} "
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
    from edgefront.cli.show.output import NONE

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

"""The space around a given model: architectures of other depths and widths, or with fewer blocks.

The space has genes of the spaces of layers (`llama`, `lfm`). All properties without a gene are the model's: positions,
norms, activation, embedding, biases, gates, width of heads. All layers of the model must agree in these properties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.base_space import Frame
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.catalogue import LFM, LLAMA
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.architectures.faults import Fault, listed, of_kind, uneven
from edgefront.core.architectures.formatting import layers_of
from edgefront.core.architectures.gene import MIN_ATTENTION, TIED, UNTIED, VOCABULARY_GENES, Gene, Value, steps
from edgefront.core.architectures.layers import LayeredSpace
from edgefront.core.common.errors import ArchitectureError, SpaceError

BASES = (LLAMA, LFM)
AUTO = "auto"
"""Name for automatic choice: the first space that contains the model, or else the space with the fewest faults."""
NEAR = (0.5, 1.5)
"""Minimum and maximum width, as factors of the model's width; depth grows by at most a quarter."""
MAX_LAYERS = 256
_MAX_FAULTS = 20


def space_around(model: Mapping[str, Any] | Architecture, name: str, *, parts: bool = False) -> LayeredSpace:
    """Builds the space `name` (or a fitting one for `auto`) around a model. `parts` limits the space to submodels.

    Raises `ArchitectureError` that names `model` if the model is invalid, and `SpaceError` if the space cannot contain
    the model: `errors` has one mapping for each wrong field, with field, value, allowed and detail.
    """
    try:
        architecture = Architecture.parse(model)
    except ArchitectureError as error:
        raise error.under("model") from None
    return _around(_nearest(architecture).name if name == AUTO else name, architecture.canonical_json, parts)


@lru_cache(maxsize=64)
def _around(name: str, text: str, parts: bool) -> LayeredSpace:
    model = Architecture.parse(text)
    base = next((base for base in BASES if base.name == name), None)
    names = " or ".join(base.name for base in BASES)
    if base is None:
        raise SpaceError(
            f"name {name} cannot be searched around a model; {names} can", field="name", value=name, allowed=names
        )
    faults = list(_faults(base, model))
    space = None if faults else _space(base, model, parts)
    if space is None:
        faults = faults or [Fault("blocks", len(model.blocks), "the space's genes cannot express these layers")]
        nearest = _nearest(model)
        other = "" if nearest is base or list(_faults(nearest, model)) else f"; the space {nearest.name} has it"
        raise SpaceError(
            f"model: no architecture of {name} is this one: {'; '.join(map(str, faults[:_MAX_FAULTS]))}{other}",
            field="model",
            value=model.digest,
            allowed=f"decoders of attention{' or short_conv' * (base is LFM)} and feed_forward in layers{other}",
            errors=listed(faults, "model."),
        )
    return space


def _nearest(model: Architecture) -> LayeredSpace:
    return min(BASES, key=lambda base: len(list(_faults(base, model))))


# Faults ---------------------------------------------------------------------------------------------------------------


def _faults(base: LayeredSpace, model: Architecture) -> Iterator[Fault]:
    if model.source is not None:
        yield Fault("source", "an architecture", "the space has only models without an encoder")
    if not model.causal:
        yield Fault("causal", False, "the space has only causal models")
    if model.output.kind != "tokens":
        yield Fault("output.kind", model.output.kind, "its models score tokens")
    if (layers := len(layers_of(block.kind for block in model.blocks))) > MAX_LAYERS:
        yield Fault("blocks", len(model.blocks), f"the model has {layers} layers; the space has at most {MAX_LAYERS}")
    if isinstance(model.positions, RelativePositions):
        yield Fault("positions.kind", "relative", "its attention has no projection of distances")
    has_mixers = base.deciding == "mixer"
    kinds = (Attention, FeedForward, ShortConv) if has_mixers else (Attention, FeedForward)
    allowed = " or ".join(kind.model_fields["kind"].default for kind in kinds)
    for index, block in enumerate(model.blocks):
        if not isinstance(block, kinds):
            yield Fault(f"blocks.{index}.kind", block.kind, f"its blocks are {allowed}")
    if has_mixers:
        unpaired = [at for at, block in enumerate(model.blocks) if isinstance(block, FeedForward) == (at % 2 == 0)]
        for index in unpaired[:1]:
            reason = "its layers are a mixer and then a feed_forward"
            yield Fault(f"blocks.{index}.kind", model.blocks[index].kind, reason)
        if not unpaired and len(model.blocks) % 2:
            yield Fault("blocks", len(model.blocks), "its layers have two blocks each")
    for index, attention in of_kind(model, Attention):
        if attention.attends != "self":
            yield Fault(f"blocks.{index}.attends", attention.attends, "its attention attends only to its own sequence")
        width = attention.n_head * model.d_head(attention)
        if has_mixers and width != model.d_model:
            reason = f"n_head · d_head must be d_model {model.d_model}, not {width}"
            yield Fault(f"blocks.{index}.d_head", model.d_head(attention), reason)
    for index, fed in of_kind(model, FeedForward):
        if fed.parallel is not None:
            yield Fault(f"blocks.{index}.parallel", fed.parallel, "its blocks are sequential")
    attentions, who = of_kind(model, Attention), "the space has"
    for name in ("rope", "qk_norm", "theta", "scale", *(["n_head"] if has_mixers else ["window"])):
        yield from uneven(attentions, who, **{name: attrgetter(name)})
    yield from uneven(attentions, who, bias=model.attention_bias)
    if not has_mixers:
        yield from uneven(attentions, who, d_head=model.d_head)
    yield from uneven(of_kind(model, FeedForward), who, gated=attrgetter("gated"), bias=attrgetter("bias"))
    yield from uneven(of_kind(model, ShortConv), who, kernel=attrgetter("kernel"), bias=attrgetter("bias"))


# The space ------------------------------------------------------------------------------------------------------------


def _space(base: LayeredSpace, model: Architecture, parts: bool) -> LayeredSpace | None:
    """Builds the space around a model that has passed all checks; None if no genome describes the model."""
    attention, feed_forward, convolution = (
        next((block for _, block in of_kind(model, kind)), None) for kind in (Attention, FeedForward, ShortConv)
    )
    if attention is not None:
        unstated = {"n_kv_head": None, "d_head": None, "bias": model.attention_bias(attention)}
        attention = attention.model_copy(update=unstated)
    made = replace(
        base,
        title=f"{base.title}, {'parts of' if parts else 'around'} a model",
        gene_list=tuple(_genes(base, model, parts)),
        frame=Frame.of(model),
        attention=base.attention if attention is None else attention,
        feed_forward=base.feed_forward if feed_forward is None else feed_forward,
        short_conv=base.short_conv if convolution is None else convolution,
        model=model,
    )
    try:
        left = {gene.name: gene.values for gene in made.narrow({}).gene_list}
    except SpaceError:
        return None
    # Values that occur in no architecture are removed; options are kept.
    space = replace(made, gene_list=tuple(replace(gene, values=left[gene.name]) for gene in made.gene_list))
    origin = space.genome_of(model)
    return None if origin is None else replace(space, origin=origin)


def _genes(base: LayeredSpace, model: Architecture, parts: bool) -> Iterator[Gene]:
    """Yields the genes of `base` with the model's values and nearby values; with `parts` without higher values."""
    attentions = [block for _, block in of_kind(model, Attention)]
    genome = {
        "n_layer": [len(layers_of(block.kind for block in model.blocks))],
        "d_model": [model.d_model],
        "d_head": sorted({model.d_head(block) for block in attentions}),
        "n_head": sorted({block.n_head for block in attentions}),
        "n_kv_head": sorted({block.kv_heads for block in attentions}),
        "window": sorted({block.window or 0 for block in attentions}),
        "d_inner": sorted({block.d_inner for _, block in of_kind(model, FeedForward)}),
    }
    for gene in base.gene_list:
        if gene.name in VOCABULARY_GENES:
            plain = not model.embedding.cutoffs and model.embedding.d_embed in (None, model.d_model)
            if gene.name == "output" and plain:
                own_output = TIED if model.output.tied else UNTIED
                # A tied output in place of an untied one is not a submodel.
                options = (own_output,) if parts else (TIED, UNTIED)
                yield Gene("output", (own_output,), options=options)
            continue
        if gene.name == "layers" or gene.name == "mixer":
            yield gene
        elif gene.name == MIN_ATTENTION:
            count, (of,) = len(attentions), genome["n_layer"]
            kept = [int(option) for option in gene.options if base.floor(of, int(option)) <= count]
            value = min(int(gene.values[0]), max(kept))
            yield Gene(gene.name, (value,), options=gene.options)
        elif gene.name == "n_layer":
            own = genome["n_layer"][0]
            near = steps(max(1, (own + 1) // 2), own if parts else own + own // 4, 1)
            yield Gene(gene.name, near, options=_joined(gene.options, near))
        elif gene.name == "d_head":
            own = genome["d_head"] or list(gene.values)
            yield Gene(gene.name, tuple(own), options=_joined(gene.options, own))
        else:
            yield _around_values(gene, genome[gene.name], model, parts)


def _around_values(gene: Gene, own: Sequence[int], model: Architecture, parts: bool) -> Gene:
    if not own:
        return gene
    # A different window, or a different factor of the embedding, does not give a submodel.
    if parts and (gene.name == "window" or (gene.name == "d_model" and model.scaled_embedding)):
        return Gene(gene.name, tuple(own), options=_joined(gene.options, own), per_layer=gene.per_layer)
    low, high = min(value for value in own if value or len(own) == 1) * NEAR[0], max(own) * NEAR[1]
    high = max(own) if parts else high
    every: list[Value] = [option for option in gene.options if isinstance(option, int) and low <= option <= high]
    zero = [0] if 0 in gene.values else []
    return Gene(gene.name, _joined(every, [*own, *zero]), options=_joined(gene.options, own), per_layer=gene.per_layer)


def _joined(some: Sequence[Value], others: Sequence[Value]) -> tuple[Value, ...]:
    return tuple(sorted({int(value) for value in (*some, *others)}))

"""Maps an architecture to one of llama.cpp's architectures, or reports the fields that the GGUF format cannot express.

Each llama.cpp architecture (`GgufKind`) is a family of models, whose variations are in `KIND_RULES`. A layer of
llama.cpp is a token mixer (attention or short_conv) and a feed_forward; a description has two separate blocks for them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from edgefront.core.architectures.architecture import Activation, Architecture, NormKind, NormPlace
from edgefront.core.architectures.block import Attention, Biases, FeedForward, Identity, Parallel, QkNorm, ShortConv
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.faults import Fault, listed, of_kind, uneven
from edgefront.core.architectures.formatting import Layer, layers_of
from edgefront.core.architectures.gguf_mixtures import MIXTURES
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GGUF_BLOCK, GGUF_QUANTISED

GgufKind = Literal[
    "gpt2",
    "qwen2",
    "qwen3",
    "gptneox",
    "stablelm",
    "phi2",
    "lfm2",
    "llama",
    "smollm3",
    "olmo2",
    "granite",
    "gemma3",
    "deci",
]
_MAX_IN_MESSAGE = 3
"""Maximum number of faults in the sentence of an error."""
_GEMMA3_27B_LAYERS = 62
LOCAL_LAYERS = 6
"""In Gemma 3 all layers except every sixth are local: they have a window and the rotary base `LOCAL_BASE`."""
LOCAL_BASE = 10_000


@dataclass(frozen=True)
class GgufForm:
    """An architecture in llama.cpp's terms: name of the model family, and for each layer the indices of its blocks."""

    kind: GgufKind
    layers: tuple[Layer, ...]


@dataclass(frozen=True)
class KindRules:
    """Which descriptions one of llama.cpp's architectures can express."""

    positions: Literal["learned", "rotary"] = "rotary"
    norm: NormPlace = "pre"
    norm_kind: NormKind = "rms"
    activations: tuple[Activation, ...] = ("silu",)
    gated: bool = True
    biases: tuple[Biases, ...] = ("none",)
    feed_forward_biases: tuple[bool, ...] = (False,)
    grouped: bool = True
    """Whether n_kv_head may be below n_head."""
    qk_norm: QkNorm = False
    square: bool = False
    """Whether n_head · d_head must be d_model."""
    scaling: bool = False
    """Whether rotary positions may be scaled."""
    partial: bool = False
    """Whether rotary positions may rotate fewer than all features of a head."""
    parallel: tuple[Parallel | None, ...] = (None,)
    """Permitted values of `parallel`; all feed_forward blocks must have the same value."""
    local: bool = False
    """Whether layers alternate as in Gemma 3 (`LOCAL_LAYERS`): local layers with one window, and global layers."""
    scaled: bool = False
    """Whether the embedding is multiplied by √d_model."""
    without_positions: int | None = None
    """Interval of layers without rotation: every n-th layer; None if all layers rotate."""
    multipliers: bool = False
    """Whether embedding, attention scores, residual updates and logits may have multipliers."""
    output_bias: bool = False
    tied: tuple[bool, ...] = (True, False)
    free: frozenset[str] = frozenset()
    """Names of the widths that may differ between layers."""
    parts: bool = False
    """Whether layers may lack the mixer or the feed_forward."""
    convolutions: bool = False


_GPT2 = KindRules(
    positions="learned",
    norm_kind="layer",
    activations=("gelu_tanh",),
    gated=False,
    biases=("all",),
    feed_forward_biases=(True,),
    grouped=False,
    square=True,
)
KIND_RULES: Mapping[GgufKind, KindRules] = {
    "gpt2": _GPT2,
    "qwen2": KindRules(biases=("qkv",), square=True),
    "qwen3": KindRules(qk_norm=True),
    # llama.cpp computes every GELU with tanh, and its converter accepts models of both kinds.
    "gptneox": replace(
        _GPT2,
        positions="rotary",
        activations=("gelu", "gelu_tanh"),
        partial=True,
        parallel=(None, "own_norm"),
        tied=(False,),
    ),
    "stablelm": KindRules(
        norm_kind="layer",
        biases=("none", "qkv"),
        square=True,
        partial=True,
        parallel=(None, "shared_norm"),
        tied=(False,),
    ),
    "phi2": replace(
        _GPT2,
        positions="rotary",
        grouped=True,
        partial=True,
        parallel=("shared_norm",),
        output_bias=True,
        tied=(False,),
    ),
    "lfm2": KindRules(qk_norm=True, square=True, convolutions=True, free=frozenset({"n_kv_head"})),
    "llama": KindRules(biases=("none", "qkv", "all"), feed_forward_biases=(False, True), scaling=True),
    "smollm3": KindRules(without_positions=4),
    "olmo2": KindRules(norm="branch", qk_norm="whole", square=True, tied=(False,)),
    "granite": KindRules(multipliers=True),
    "gemma3": KindRules(norm="both", activations=("gelu_tanh",), qk_norm=True, local=True, scaled=True),
    "deci": KindRules(scaling=True, free=frozenset({"n_head", "n_kv_head", "d_inner"}), parts=True),
}
"""Rules by kind, in the order in which kinds are tried."""


def gguf_form(architecture: Architecture, numbers: str = "float32") -> GgufForm:
    """Maps the architecture to a llama.cpp architecture and layers.

    `numbers` is the format of the weights; quantised formats need rows of whole blocks. Raises `InvalidInput` that
    names the fields that GGUF cannot express, each with the reason.
    """
    kind, faults = _nearest(architecture, numbers)
    if faults:
        raise InvalidInput(
            _sentence(faults),
            field="architecture",
            value=architecture.digest,
            allowed=EXPRESSIBLE,
            errors=listed(faults),
        )
    return GgufForm(kind, tuple(layers_of(block.kind for block in architecture.blocks)))


def gguf_fault(architecture: Architecture, numbers: str = "float32") -> str | None:
    """Message about the fields that GGUF cannot express, with reasons; None if GGUF can express the architecture."""
    _, faults = _nearest(architecture, numbers)
    return _sentence(faults) if faults else None


EXPRESSIBLE = (
    "GPT-2, Llama, SmolLM3, Qwen2, Qwen3, OLMo 2, Granite, Gemma 3, GPT-NeoX, StableLM, Phi with the same "
    "layer throughout; Llama with widths by layer and parts left out, without biases; LFM2, which mixes in short_conv. "
    "In a search: a space narrowed to loads_in=llamacpp"
)
"""Description of what GGUF can express, as text for errors."""


def _sentence(faults: list[Fault]) -> str:
    more = f" (and {len(faults) - _MAX_IN_MESSAGE} more)" if len(faults) > _MAX_IN_MESSAGE else ""
    return f"GGUF cannot express {'; '.join(map(str, faults[:_MAX_IN_MESSAGE]))}{more}"


def _nearest(architecture: Architecture, numbers: str) -> tuple[GgufKind, list[Fault]]:
    """Returns a pair: the first kind that can express this model, else the kind with the fewest faults (of block kinds,
    then of all); and the faults of the returned kind.
    """
    by_kind: list[tuple[int, int, GgufKind, list[Fault]]] = []
    for kind, rules in KIND_RULES.items():
        faults = list(_faults(architecture, kind, rules))
        if not faults:
            return kind, list(_unquantised(architecture, numbers))
        by_kind.append((sum(fault.field.endswith(".kind") for fault in faults), len(faults), kind, faults))
    *_, kind, faults = min(by_kind, key=lambda item: item[:2])
    return kind, [*faults, *_unquantised(architecture, numbers)]


def _faults(architecture: Architecture, kind: GgufKind, rules: KindRules) -> Iterator[Fault]:
    yield from _frame_faults(architecture, kind, rules)
    mixers = (Attention, ShortConv) if rules.convolutions else (Attention,)
    for index, block in enumerate(architecture.blocks):
        if not isinstance(block, (*mixers, FeedForward, Identity)):
            yield Fault(f"blocks.{index}.kind", block.kind, _expected_blocks(kind, rules))
    if not rules.parts:
        for layer in layers_of(block.kind for block in architecture.blocks):
            if layer.mixer is None or layer.feed_forward is None:
                alone = layer.feed_forward if layer.mixer is None else layer.mixer
                assert alone is not None
                if isinstance(architecture.blocks[alone], (*mixers, FeedForward)):
                    yield Fault(f"blocks.{alone}.kind", architecture.blocks[alone].kind, _expected_blocks(kind, rules))
    yield from _attention_faults(architecture, kind, rules)
    if rules.convolutions:
        convolutions = of_kind(architecture, ShortConv)
        if not convolutions:
            yield Fault("blocks", len(architecture.blocks), f"{kind} needs a short_conv among them")
        for index, block in convolutions:
            if block.bias:
                yield Fault(f"blocks.{index}.bias", block.bias, f"{kind} needs False")
        yield from uneven(convolutions, f"{kind} needs", kernel=lambda block: block.kernel)
    for index, block in of_kind(architecture, FeedForward):
        if block.gated != rules.gated:
            yield Fault(f"blocks.{index}.gated", block.gated, f"{kind} needs {rules.gated}")
        if block.bias not in rules.feed_forward_biases:
            yield Fault(f"blocks.{index}.bias", block.bias, f"{kind} needs {rules.feed_forward_biases[0]}")
        if block.parallel not in rules.parallel:
            allowed = " or ".join(str(parallel or "none") for parallel in rules.parallel)
            yield Fault(f"blocks.{index}.parallel", block.parallel, f"{kind} needs {allowed}")
    yield from uneven(of_kind(architecture, FeedForward), f"{kind} needs", parallel=lambda block: block.parallel)
    if "d_inner" not in rules.free:
        yield from uneven(of_kind(architecture, FeedForward), f"{kind} needs", d_inner=lambda block: block.d_inner)


def _expected_blocks(kind: GgufKind, rules: KindRules) -> str:
    if rules.parts:
        return f"{kind} needs attention and feed_forward"
    return f"{kind} needs attention{' or short_conv' * rules.convolutions} and feed_forward alternately"


def _frame_faults(architecture: Architecture, kind: GgufKind, rules: KindRules) -> Iterator[Fault]:
    """Yields the faults of all sections of the description except the blocks."""
    positions, embedding, output = architecture.positions, architecture.embedding, architecture.output
    if positions.kind != rules.positions:
        yield Fault(
            "positions.kind", positions.kind, f"{kind} needs {rules.positions} positions, without segment memory"
        )
    elif isinstance(positions, RotaryPositions):
        if positions.percent != 100 and not rules.partial:
            yield Fault("positions.percent", positions.percent, f"{kind} rotates whole heads")
        if positions.scaling is not None and not rules.scaling:
            yield Fault("positions.scaling.factor", positions.scaling.factor, f"{kind} has no scaled positions")
    for field, value, expected in (
        ("causal", architecture.causal, True),
        ("source", "an architecture" if architecture.source else None, None),
        ("norm", architecture.norm, rules.norm),
        ("norm_kind", architecture.norm_kind, rules.norm_kind),
        ("final_norm", architecture.has_final_norm, True),
        ("embedding.d_embed", architecture.d_embed, architecture.d_model),
        ("embedding.cutoffs", list(embedding.cutoffs), []),
        ("embedding.scaled", architecture.scaled_embedding, rules.scaled),
        ("embedding.segments", embedding.segments, 0),
        ("embedding.norm", embedding.norm, False),
        ("output.kind", output.kind, "tokens"),
        ("output.bias", architecture.output_bias, rules.output_bias),
    ):
        if value != expected:
            yield Fault(field, value, f"{kind} needs {'none' if expected in (None, []) else expected}")
    for field, multiplier in (
        ("embedding.multiplier", embedding.multiplier),
        ("residual_multiplier", architecture.residual_multiplier),
        ("output.logits_scaling", output.logits_scaling),
    ):
        if multiplier != 1 and not rules.multipliers:
            yield Fault(field, multiplier, f"{kind} has no multipliers")
    if output.kind == "tokens" and output.tied not in rules.tied:
        yield Fault("output.tied", output.tied, f"{kind} needs a separate output")
    if architecture.activation not in rules.activations:
        yield Fault("activation", architecture.activation, f"{kind} needs {' or '.join(rules.activations)}")


def _attention_faults(architecture: Architecture, kind: GgufKind, rules: KindRules) -> Iterator[Fault]:
    attentions = of_kind(architecture, Attention)
    if not attentions:
        yield Fault("blocks", len(architecture.blocks), f"{kind} needs an attention among them")
    for index, block in attentions:
        bias, width = architecture.attention_bias(block), block.n_head * architecture.d_head(block)
        for field, value, holds, has in (
            ("attends", block.attends, block.attends == "self", "self"),
            ("bias", bias, bias in rules.biases, " or ".join(rules.biases)),
            ("qk_norm", block.qk_norm, block.qk_norm == rules.qk_norm, rules.qk_norm),
            ("n_kv_head", block.kv_heads, rules.grouped or block.kv_heads == block.n_head, "as many as n_head"),
            (
                "scale",
                block.scale,
                rules.multipliers or architecture.attention_scale(block) == 1 / math.sqrt(architecture.d_head(block)),
                "1/√d_head",
            ),
            ("window", block.window, rules.convolutions or rules.local or block.window is None, "none"),
            ("theta", block.theta, rules.local or block.theta is None, "one base in all layers"),
            (
                "d_head",
                architecture.d_head(block),
                not rules.square or width == architecture.d_model,
                f"d_model {architecture.d_model} / n_head",
            ),
        ):
            if not holds:
                yield Fault(f"blocks.{index}.{field}", value, f"{kind} needs {has}")
    for layer, (index, block) in enumerate(attentions, 1):
        rope = rules.without_positions is None or layer % rules.without_positions > 0
        if architecture.positions.kind == "rotary" and block.rope != rope:
            yield Fault(f"blocks.{index}.rope", block.rope, f"{kind} needs {rope} in layer {layer}")
    yield from uneven(attentions, f"{kind} needs", d_head=architecture.d_head)
    if rules.local:
        yield from _local_faults(architecture, kind)
    else:
        yield from uneven(attentions, f"{kind} needs", window=lambda block: block.window)
    if rules.multipliers:
        yield from uneven(attentions, f"{kind} needs", scale=architecture.attention_scale)
    if "n_head" not in rules.free:
        yield from uneven(attentions, f"{kind} needs", n_head=lambda block: block.n_head)
    if "n_kv_head" not in rules.free:
        yield from uneven(attentions, f"{kind} needs", n_kv_head=lambda block: block.kv_heads)


def _local_faults(architecture: Architecture, kind: GgufKind) -> Iterator[Fault]:
    """Yields faults of windows and rotary bases by layer, and of 62 layers, for which llama.cpp uses another scale."""
    attentions = of_kind(architecture, Attention)
    if len(attentions) == _GEMMA3_27B_LAYERS:
        yield Fault("blocks", len(architecture.blocks), f"{kind} of {_GEMMA3_27B_LAYERS} layers has another scale")
    first = next((block.window for _, block in attentions if block.window is not None), None)
    if first is None:
        yield Fault("blocks.0.window", None, f"{kind} needs a window in all layers except every sixth")
        return
    for layer, (index, block) in enumerate(attentions, 1):
        is_local = layer % LOCAL_LAYERS > 0
        window = first if is_local else None
        if block.window != window:
            yield Fault(f"blocks.{index}.window", block.window, f"{kind} needs {window} in layer {layer}")
        rotary, positions = architecture.rotary(block), architecture.positions
        if is_local and rotary is not None and rotary.theta != LOCAL_BASE:
            yield Fault(f"blocks.{index}.theta", rotary.theta, f"{kind} needs {LOCAL_BASE} in layer {layer}")
        elif not is_local and rotary not in (None, positions):
            yield Fault(f"blocks.{index}.theta", block.theta, f"{kind} needs positions.theta in layer {layer}")


def _unquantised(architecture: Architecture, numbers: str) -> Iterator[Fault]:
    """Yields a fault for each width that is not a multiple of the block size, in formats without a fallback."""
    if numbers not in GGUF_QUANTISED - MIXTURES:
        return
    rows: list[tuple[str, int]] = [("d_model", architecture.d_model)]
    rows += [(f"blocks.{index}.d_inner", block.d_inner) for index, block in of_kind(architecture, FeedForward)]
    for index, block in of_kind(architecture, Attention):
        rows.append((f"blocks.{index}.n_head · d_head", block.n_head * architecture.d_head(block)))
    for field, width in rows:
        if width % GGUF_BLOCK:
            yield Fault(
                field, width, f"{numbers} has blocks of {GGUF_BLOCK} weights, so that this width must be a multiple"
            )

"""Attention or convolution block of each layer, by model type of transformers: windows, positions, kinds of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgefront.core.architectures.block import MAX_WIDTH
from edgefront.core.architectures.huggingface.fields import Fields
from edgefront.core.architectures.numbers import as_number

Block = dict[str, Any]
Layout = Callable[[Fields, int, Block], list[Block]]
"""Function from the number of layers and the common fields of attention to the mixer of each layer."""

FULL, SLIDING = "full_attention", "sliding_attention"


def same(_fields: Fields, layers: int, attention: Block) -> list[Block]:
    return [attention] * layers


def _window(fields: Fields) -> int | None:
    """Size of the sliding window: 4096 if missing, None if null."""
    return fields.count("sliding_window", 4096) if fields.config.get("sliding_window", 0) is not None else None


def mistral(fields: Fields, layers: int, attention: Block) -> list[Block]:
    return [{**attention, "window": _window(fields)}] * layers


def qwen(fields: Fields, layers: int, attention: Block) -> list[Block]:
    # All files have the window and its first layer, even if they do not use the window.
    fields.ignore("sliding_window", "max_window_layers")
    window = _window(fields) if fields.flag("use_sliding_window", False) else None
    first = layers
    if window is not None and fields.value("layer_types") is None:
        first = fields.count("max_window_layers", 28) if fields.value("max_window_layers") != 0 else 0
    types = fields.layer_types((FULL, SLIDING), layers, [FULL if n < first else SLIDING for n in range(layers)])
    if window is None and SLIDING in types:
        fields.fault(
            "use_sliding_window",
            False,
            "must be true, because layer_types has sliding_attention",
            "true, with sliding_window",
        )
    return [{**attention, "window": window} if kind == SLIDING else attention for kind in types]


def smollm3(fields: Fields, layers: int, attention: Block) -> list[Block]:
    rotated, window = _rotated_layers(fields, layers), None
    if fields.flag("use_sliding_window", False):
        window = fields.count("sliding_window") if fields.value("sliding_window") is not None else None
    fields.ignore("sliding_window")
    derived = [FULL if window is None or rope else SLIDING for rope in rotated]
    types = fields.layer_types((FULL, SLIDING), layers, derived)
    return [
        {**attention, "rope": rope, "window": window if kind == SLIDING else None}
        for rope, kind in zip(rotated, types, strict=True)
    ]


def _rotated_layers(fields: Fields, layers: int) -> list[bool]:
    """Whether each layer has rotary positions: all except every fourth, unless the file lists the layers."""
    step = fields.count("no_rope_layer_interval", 4)
    given: Any = fields.get("no_rope_layers", (list,), "a list", None)
    derived = [bool((layer + 1) % step) for layer in range(layers)]
    if given is None:
        return derived
    if len(given) != layers or any(rope not in (0, 1) for rope in given):
        fields.fault("no_rope_layers", given, f"must have {layers} entries, 0 or 1", f"{layers} entries, 0 or 1")
        return derived
    return [rope == 1 for rope in given]


def gemma3(fields: Fields, layers: int, attention: Block) -> list[Block]:
    """Attention block of each layer of Gemma 3; `attention` is the block with the rotary base of local layers."""
    step = fields.count("sliding_window_pattern", 6)
    derived = [SLIDING if (layer + 1) % step else FULL for layer in range(layers)]
    types, window = fields.layer_types((FULL, SLIDING), layers, derived), _window(fields)
    scaled_as = fields.count("query_pre_attn_scalar", 256)
    if scaled_as != attention["d_head"]:
        attention = {**attention, "scale": as_number(scaled_as**-0.5)}
    local = {**attention, "window": window}
    return [local if kind == SLIDING else {**attention, "theta": None} for kind in types]


def lfm2(fields: Fields, layers: int, attention: Block) -> list[Block]:
    kernel, bias = fields.count("conv_L_cache", 3), fields.flag("conv_bias", False)
    parts = {FULL: attention, "conv": {"kind": "short_conv", "kernel": kernel, "bias": bias}}
    every = list(range(layers))
    attending: Any = fields.get("full_attn_idxs", (list,), "a list", every)
    for index in attending:
        if type(index) is not int or not 0 <= index < layers:
            fields.fault(
                "full_attn_idxs", attending, f"must be within the {layers} layers", f"layers 0 to {layers - 1}"
            )
            attending = every
            break
    derived = [FULL if layer in attending else "conv" for layer in range(layers)]
    types = fields.layer_types((FULL, "conv"), layers, derived)
    if types != derived and fields.value("full_attn_idxs") is not None:
        fields.fault("full_attn_idxs", attending, "must agree with layer_types", "one of the two")
    return [parts[kind] for kind in types]


def lfm2_inner(fields: Fields) -> int:
    """Width d_inner of LFM2's feed-forward: 2/3 of the given width, times a factor, rounded up as in LFM2's code."""
    inner = fields.count(fields.either("block_ff_dim", "intermediate_size"))
    fields.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = 2 * inner // 3
    if fields.config.get("block_ffn_dim_multiplier", 1) is None:
        return inner
    factor = fields.positive("block_ffn_dim_multiplier", 1.0)
    multiple = fields.count("block_multiple_of", 256)
    wide = factor * inner
    if not 1 <= wide <= MAX_WIDTH:
        fields.fault("block_ffn_dim_multiplier", factor, "must leave an inner width of at least 1", "a positive number")
        return 1
    return -(-int(wide) // multiple) * multiple

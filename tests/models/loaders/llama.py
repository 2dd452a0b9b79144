"""Llama, Qwen2, Qwen3 and LFM2 as Hugging Face transformers keeps them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward, ShortConv
from loaders.foreign import ForeignState, Weights, check_output, token_output


def from_llama(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of a `LlamaForCausalLM`, `Qwen2ForCausalLM` or `Qwen3ForCausalLM`, or of their `…Model`.

    Queries, keys and values become one linear layer, gate and up another one.
    """
    check_output(architecture, "Llama", "tokens", "none")
    names = ForeignState(state, "model.")
    weights = {"embedding.tables.0": names["embed_tokens.weight"], "final_norm.weight": names["norm.weight"]}
    for layer, (mixer, fed) in enumerate(_pairs(architecture, "Llama", Attention)):
        source = f"layers.{layer}"
        attention = [f"{source}.self_attn.{letter}_proj" for letter in "qkv"]
        weights |= _joined(names, f"{mixer}.qkv", attention)
        weights |= _joined(names, f"{mixer}.out", [f"{source}.self_attn.o_proj"])
        for part in ("q_norm", "k_norm"):
            if f"{source}.self_attn.{part}.weight" in names:
                weights[f"{mixer}.{part}.weight"] = names[f"{source}.self_attn.{part}.weight"]
        weights |= _fed(names, fed, [f"{source}.mlp.{part}_proj" for part in ("gate", "up", "down")])
        weights[f"{mixer}.norm.weight"] = names[f"{source}.input_layernorm.weight"]
        weights[f"{fed}.norm.weight"] = names[f"{source}.post_attention_layernorm.weight"]
    return _finished(names, architecture, weights)


def from_lfm2(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of an `Lfm2ForCausalLM` or `Lfm2Model`; a convolution's weight there is (d_model, 1,
    kernel).
    """
    check_output(architecture, "LFM2", "tokens", "none")
    names = ForeignState(state, "model.")
    weights = {"embedding.tables.0": names["embed_tokens.weight"], "final_norm.weight": names["embedding_norm.weight"]}
    for layer, (mixer, fed) in enumerate(_pairs(architecture, "LFM2", Attention, ShortConv)):
        source = f"layers.{layer}"
        if isinstance(architecture.blocks[2 * layer], Attention):
            weights |= _joined(names, f"{mixer}.qkv", [f"{source}.self_attn.{letter}_proj" for letter in "qkv"])
            weights |= _joined(names, f"{mixer}.out", [f"{source}.self_attn.out_proj"])
            for part in ("q", "k"):
                weights[f"{mixer}.{part}_norm.weight"] = names[f"{source}.self_attn.{part}_layernorm.weight"]
        else:
            weights |= _joined(names, f"{mixer}.up", [f"{source}.conv.in_proj"])
            weights |= _joined(names, f"{mixer}.out", [f"{source}.conv.out_proj"])
            weights[f"{mixer}.conv.weight"] = names[f"{source}.conv.conv.weight"].squeeze(1).T.contiguous()
            if f"{source}.conv.conv.bias" in names:
                weights[f"{mixer}.conv.bias"] = names[f"{source}.conv.conv.bias"]
        weights |= _fed(names, fed, [f"{source}.feed_forward.w{number}" for number in (1, 3, 2)])
        weights[f"{mixer}.norm.weight"] = names[f"{source}.operator_norm.weight"]
        weights[f"{fed}.norm.weight"] = names[f"{source}.ffn_norm.weight"]
    return _finished(names, architecture, weights)


def _finished(names: ForeignState, architecture: Architecture, weights: Weights) -> Weights:
    """With the output; nothing else may be left over."""
    if architecture.output.kind == "tokens":
        weights = weights | token_output(names, architecture, "lm_head.weight", "embed_tokens.weight")
    names.finish(r"lm_head\.weight")
    return weights


def _fed(names: ForeignState, ours: str, theirs: Sequence[str]) -> Weights:
    """A gated feed-forward block of the linear layers gate, up and down."""
    return _joined(names, f"{ours}.up", theirs[:2]) | _joined(names, f"{ours}.down", theirs[2:])


def _joined(names: ForeignState, ours: str, theirs: Sequence[str]) -> Weights:
    """Weights, and biases where there are any, of several linear layers of one input as one."""
    parts = ("weight", "bias") if f"{theirs[0]}.bias" in names else ("weight",)
    return {f"{ours}.{part}": torch.cat([names[f"{their}.{part}"] for their in theirs]) for part in parts}


def _pairs(architecture: Architecture, library: str, *mixers: type) -> list[tuple[str, str]]:
    """Prefixes of the two blocks of each layer: one of these kinds, and a feed-forward block."""
    blocks = architecture.blocks
    count = len(blocks) // 2
    fits = len(blocks) == 2 * count and all(
        isinstance(blocks[2 * layer], mixers) and isinstance(blocks[2 * layer + 1], FeedForward)
        for layer in range(count)
    )
    if not fits:
        raise InvalidInput(
            f"layers of {library} are one of {', '.join(kind.__name__ for kind in mixers)} and a feed-forward block",
            field="blocks",
            value=[block.kind for block in blocks],
            allowed="pairs of blocks, a feed-forward block second",
        )
    return [(f"blocks.{2 * layer}", f"blocks.{2 * layer + 1}") for layer in range(count)]

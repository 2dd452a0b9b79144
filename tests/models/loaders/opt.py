"""OPT as Hugging Face transformers keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from edgefront.core.spaces.architecture import Architecture
from loaders.foreign import ForeignState, Weights, check_output, layers, token_output


def from_opt(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of an `OPTForCausalLM` or `OPTModel`; queries, keys and values become one map.

    Pre-norm, or post-norm without a final norm (the 350M model). Where word_embed_proj_dim ≠ hidden_size its two
    projections are our embedding's and our head's.
    """
    check_output(architecture, "OPT", "tokens", "none")
    names = ForeignState({name.removeprefix("model."): value for name, value in state.items()}, "decoder.")
    weights = {"embedding.tables.0": names["embed_tokens.weight"], "positions.weight": names["embed_positions.weight"]}
    for layer, attention, feed_forward in layers(architecture, "OPT"):
        source = f"layers.{layer}"
        weights |= names.joined(f"{attention}.qkv", [f"{source}.self_attn.{letter}_proj" for letter in "qkv"])
        weights |= names.pair(f"{attention}.out", f"{source}.self_attn.out_proj")
        weights |= names.pair(f"{attention}.norm", f"{source}.self_attn_layer_norm")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.final_layer_norm")
        weights |= names.pair(f"{feed_forward}.up", f"{source}.fc1")
        weights |= names.pair(f"{feed_forward}.down", f"{source}.fc2")
    if architecture.has_final_norm:
        weights |= names.pair("final_norm", "final_layer_norm")
    projected = architecture.d_embed != architecture.d_model
    if projected:
        weights["embedding.projections.0"] = names["project_in.weight"]
    if architecture.output.kind == "tokens":
        if projected:
            weights["output.projections.0"] = names["project_out.weight"]
        weights |= token_output(names, architecture, "lm_head.weight", "embed_tokens.weight")
    names.finish(r"lm_head\.weight", *([r"project_out\.weight"] if projected else []))
    return weights

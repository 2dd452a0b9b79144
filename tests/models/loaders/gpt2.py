"""GPT-2 as Hugging Face transformers keeps it."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from edgefront.core.spaces.architecture import Architecture
from loaders.foreign import ForeignState, Weights, check_output, layers, token_output


def from_gpt2(state: Mapping[str, Tensor], architecture: Architecture) -> Weights:
    """Renames the state dict of a `GPT2LMHeadModel` or `GPT2Model`; linear weights there are (in, out): transposed.

    `architecture` alternates attention and feed-forward, and has a plain embedding of width d_model.
    """
    check_output(architecture, "GPT-2", "tokens", "none")
    names = ForeignState(state, "transformer.")
    weights = {"embedding.tables.0": names["wte.weight"], "positions.weight": names["wpe.weight"]}
    for layer, attention, feed_forward in layers(architecture, "GPT-2"):
        source = f"h.{layer}"
        for ours, theirs in (
            (f"{attention}.qkv", f"{source}.attn.c_attn"),
            (f"{attention}.out", f"{source}.attn.c_proj"),
            (f"{feed_forward}.up", f"{source}.mlp.c_fc"),
            (f"{feed_forward}.down", f"{source}.mlp.c_proj"),
        ):
            weights[f"{ours}.weight"] = names[f"{theirs}.weight"].T.contiguous()
            weights[f"{ours}.bias"] = names[f"{theirs}.bias"]
        weights |= names.pair(f"{attention}.norm", f"{source}.ln_1")
        weights |= names.pair(f"{feed_forward}.norm", f"{source}.ln_2")
    weights |= names.pair("final_norm", "ln_f")
    if architecture.output.kind == "tokens":
        weights |= token_output(names, architecture, "lm_head.weight", "wte.weight")
    names.finish(r"lm_head\.weight", r"h\.\d+\.attn\.(bias|masked_bias)")  # masks that older versions stored
    return weights

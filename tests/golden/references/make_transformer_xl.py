"""Golden cases of Transformer-XL as transformers 4.35.2 computes it, in float64.

    pip install --no-deps --target REF transformers==4.35.2 'tokenizers==0.14.*' huggingface_hub==0.17.3
    PYTHONPATH=REF python make_transformer_xl.py OUT     # torch, numpy, requests and the rest from the environment

The reference narrows two things to float32 whatever the model's type is: the scores when it masks them, and the
frequencies of the sinusoid. Both are widened here; the unchanged float32 model is checked against the result.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from archive import assert_close, randomise, write

VERSION = "4.35.2"
BATCH = 2
COMMON = {
    "vocab_size": 60, "cutoffs": [20, 32, 46], "d_model": 12, "d_embed": 12, "n_head": 2, "d_head": 6, "d_inner": 20,
    "div_val": 1, "n_layer": 2, "mem_len": 6, "clamp_len": -1, "same_length": False, "untie_r": False,
    "pre_lnorm": False, "proj_share_all_but_first": True, "dropout": 0.0, "dropatt": 0.0,
}  # fmt: skip
# Each case: what differs from the above; the segments' length and number; what the first segment's memory is.
CASES: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "shared_biases": ({}, 6, 2, "empty"),
    "own_biases_same_length": ({"untie_r": True, "same_length": True, "clamp_len": 4, "mem_len": 5}, 4, 3, "empty"),
    "projections_pre_norm": (
        {"div_val": 2, "d_embed": 16, "pre_lnorm": True, "clamp_len": 7, "mem_len": 8}, 6, 2, "empty",
    ),
    "one_projection": ({"d_embed": 8, "untie_r": True}, 6, 2, "empty"),
    "untied_projections": ({"div_val": 2, "proj_share_all_but_first": False}, 6, 2, "empty"),
    "zero_memory": ({"clamp_len": 3, "same_length": True}, 6, 2, "zeros"),
    "characters_no_memory": ({"vocab_size": 27, "cutoffs": [], "mem_len": 0, "pre_lnorm": True}, 9, 1, "none"),
}  # fmt: skip


def main(folder: Path) -> None:
    transformers = importlib.import_module("transformers")
    assert transformers.__version__ == VERSION, f"transformers is {transformers.__version__}, wanted {VERSION}"
    for seed, name in enumerate(CASES):
        _make(transformers, name, seed, folder / "transformer_xl")
        print(name)


def _make(transformers: Any, name: str, seed: int, folder: Path) -> None:
    changes, length, segments, first = CASES[name]
    config = {**COMMON, **changes}
    generator = torch.Generator().manual_seed(1000 + seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.TransfoXLLMHeadModel(transformers.TransfoXLConfig(**config)).double().eval()
    randomise(model, generator)
    tokens, targets = _text(config, length, segments, generator)
    memory = _first_memory(model, config, first)

    with _in_double(model):
        arrays = _run(model, tokens, targets, memory)
    parameters = dict(model.named_parameters())
    arrays |= {f"weights/{key}": value for key, value in parameters.items()}
    arrays |= {f"gradients/{key}": value.grad.clone() for key, value in parameters.items()}
    _compare_with_float32(model, arrays, tokens, memory)  # which rounds the model and its gradients
    write(folder, name, arrays, {
        "reference": f"transformers {VERSION}, TransfoXLLMHeadModel",
        "config": config,
        "segments": segments, "segment_length": length, "batch": BATCH, "first_memory": first,
        "aliases": _aliases(model),
    })  # fmt: skip


def _text(config: dict[str, Any], length: int, segments: int, generator: torch.Generator) -> tuple[Any, Any]:
    """A stream cut into segments: tokens and their successors, both (segments, B, L), with every cluster in both."""
    size, count = config["vocab_size"], BATCH * (segments * length + 1)
    stream = (torch.randperm(max(size, count), generator=generator) % size)[:count].view(BATCH, -1)
    cut = [part.view(BATCH, segments, length).transpose(0, 1).contiguous() for part in (stream[:, :-1], stream[:, 1:])]
    edges = torch.tensor([*config["cutoffs"], size])
    for part in cut:
        assert len(torch.bucketize(part, edges, right=True).unique()) == len(edges), "a cluster does not occur"
    return cut[0], cut[1]


def _first_memory(model: Any, config: dict[str, Any], first: str) -> list[Any] | None:
    if first == "empty":
        return [torch.zeros(0, BATCH, config["d_model"], dtype=torch.float64)] * config["n_layer"]
    memory: list[Any] | None = model.init_mems(BATCH)
    assert (memory is None) == (first == "none")
    return memory


def _run(model: Any, tokens: Any, targets: Any, memory: list[Any] | None) -> dict[str, Any]:
    arrays: dict[str, Any] = {"tokens": tokens, "targets": targets}
    if memory is not None:
        arrays["memory/before"] = torch.stack(memory)
    losses = []
    for segment, (x, y) in enumerate(zip(tokens, targets, strict=True)):
        out = model(x, mems=memory, output_hidden_states=True)
        memory = out.mems
        arrays[f"log_probs/{segment}"] = out.prediction_scores
        arrays[f"hidden/{segment}"] = out.hidden_states[-1]
        if memory is not None:
            arrays[f"memory/{segment}"] = torch.stack(memory)
        losses.append(-out.prediction_scores.gather(2, y[..., None])[..., 0])
        # The reference's own losses pair a segment's tokens with each other, and come in the clusters' order.
        theirs = model(x, mems=None if segment == 0 and memory is None else _before(arrays, segment), labels=x).losses
        ours = -out.prediction_scores[:, :-1].gather(2, x[:, 1:, None])
        assert_close(theirs.flatten().sort().values, ours.flatten().sort().values, "losses")
    loss = torch.stack(losses).mean()
    loss.backward()
    return arrays | {"loss": loss}


def _before(arrays: dict[str, Any], segment: int) -> list[Any]:
    return list(arrays[f"memory/{segment - 1}" if segment else "memory/before"])


def _compare_with_float32(model: Any, arrays: dict[str, Any], tokens: Any, memory: list[Any] | None) -> None:
    model.float()
    memory = None if memory is None else [part.float() for part in memory]
    with torch.no_grad():
        for segment, x in enumerate(tokens):
            out = model(x, mems=memory)
            memory = out.mems
            assert_close(out.prediction_scores, arrays[f"log_probs/{segment}"], "float32", within=2e-6)
    model.double()


def _aliases(model: Any) -> dict[str, str]:
    """Names in the state dict that are another name's tensor."""
    owners = {id(value): name for name, value in model.named_parameters()}
    every = dict(model.named_parameters(remove_duplicate=False))
    return {name: owners[id(value)] for name, value in every.items() if owners[id(value)] != name}


@contextlib.contextmanager
def _in_double(model: Any) -> Iterator[None]:
    width = model.config.d_model
    exact = 1 / (10000 ** (torch.arange(0.0, width, 2.0, dtype=torch.float64) / width))
    narrow = torch.Tensor.float
    rounded = model.transformer.pos_emb.inv_freq
    model.transformer.pos_emb.inv_freq = exact
    torch.Tensor.float = lambda self: self
    try:
        yield
    finally:
        torch.Tensor.float = narrow
        model.transformer.pos_emb.inv_freq = rounded


if __name__ == "__main__":
    main(Path(sys.argv[1]))

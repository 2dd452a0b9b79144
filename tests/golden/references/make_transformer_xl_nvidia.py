"""Golden cases of Transformer-XL as NVIDIA DeepLearningExamples computes it, in float64.

    git clone https://github.com/NVIDIA/DeepLearningExamples
    PYTHONPATH=DeepLearningExamples/PyTorch/LanguageModeling/Transformer-XL/pytorch \\
        python make_transformer_xl_nvidia.py OUT

Its adaptive softmax gives one loss a target: here every token of the vocabulary is the target once. As in
make_transformer_xl.py the frequencies of the sinusoid are widened to float64.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from archive import assert_close, randomise, write
from make_transformer_xl import BATCH, COMMON, _aliases, _text

SEGMENTS, LENGTH = 2, 6
CASES: dict[str, dict[str, Any]] = {
    "nvidia_tails": {"div_val": 2, "d_embed": 16, "clamp_len": 7, "mem_len": 8},  # WikiText-103
    "nvidia_untied": {"div_val": 2, "proj_share_all_but_first": False},  # LM1B
    "nvidia_one_width": {},
}


def main(folder: Path) -> None:
    spec = find_spec("mem_transformer")
    assert spec is not None, "PYTHONPATH lacks NVIDIA's Transformer-XL/pytorch"
    assert spec.origin is not None
    utils = ModuleType("utils")  # without what its __init__ imports for trainings
    utils.__path__ = [str(Path(spec.origin).parent / "utils")]
    sys.modules["utils"] = utils
    module = importlib.import_module("mem_transformer")
    for seed, name in enumerate(CASES):
        _make(module, name, seed, folder / "transformer_xl")
        print(name)


def _make(module: Any, name: str, seed: int, folder: Path) -> None:
    config = {**COMMON, **CASES[name]}
    generator = torch.Generator().manual_seed(3000 + seed)
    model = _model(module, config)
    randomise(model, generator)
    tokens, targets = _text(config, LENGTH, SEGMENTS, generator)
    arrays = _run(model, tokens, targets)
    parameters = dict(model.named_parameters())
    arrays |= {f"weights/{key}": value for key, value in parameters.items()}
    arrays |= {f"gradients/{key}": value.grad.clone() for key, value in parameters.items()}
    write(folder, name, arrays, {
        "reference": "NVIDIA DeepLearningExamples 729963dd, Transformer-XL/pytorch, MemTransformerLM",
        "config": config,
        "segments": SEGMENTS, "segment_length": LENGTH, "batch": BATCH, "first_memory": "empty",
        "aliases": _aliases(model), "reverse_clusters": True,
    })  # fmt: skip


def _model(module: Any, config: dict[str, Any]) -> Any:
    renamed = ("vocab_size", "untie_r", "proj_share_all_but_first")
    model = module.MemTransformerLM(
        config["vocab_size"],
        **{name: value for name, value in config.items() if name not in renamed},
        dtype=None,
        tie_projs=[False] + [config["proj_share_all_but_first"]] * len(config["cutoffs"]),
        tgt_len=LENGTH,
        ext_len=0,
    )
    width = config["d_model"]
    model = model.double().eval()
    model.pos_emb.inv_freq = 1 / (10000 ** (torch.arange(0.0, width, 2.0, dtype=torch.float64) / width))
    model.crit.keep_order = True
    return model


def _run(model: Any, tokens: Any, targets: Any) -> dict[str, Any]:
    memory = model.init_mems()
    memory = memory.new_zeros(len(memory), 0, BATCH, model.d_model)
    arrays: dict[str, Any] = {"tokens": tokens, "targets": targets, "memory/before": memory}
    losses = []
    for segment, (x, y) in enumerate(zip(tokens, targets, strict=True)):
        inputs, aims = x.T.contiguous(), y.T.contiguous()
        hidden, _ = model._forward(inputs, memory)
        loss, memory = model(inputs, aims, memory)
        scores = _log_probs(model, hidden)
        assert_close(-loss.T, scores.gather(2, y[..., None])[..., 0], "losses")
        arrays[f"log_probs/{segment}"] = scores
        arrays[f"hidden/{segment}"] = hidden.transpose(0, 1)
        arrays[f"memory/{segment}"] = memory
        losses.append(loss)
    loss = torch.stack(losses).mean()
    loss.backward()
    return arrays | {"loss": loss}


def _log_probs(model: Any, hidden: Any) -> Any:
    """[L, B, d_model] to [B, L, vocabulary]."""
    states = hidden.flatten(0, 1)
    every = torch.arange(model.n_token).repeat(len(states))
    losses = model.crit(states.repeat_interleave(model.n_token, 0), every)
    return -losses.view(*hidden.shape[:2], -1).transpose(0, 1).detach()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

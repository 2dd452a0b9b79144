"""What quantised weights cost a trained model: the perplexity of a small GPT-2 in every format that is deployed.

    .venv/bin/python benchmarks/bench_formats.py [--steps 300]

Trains a GPT-2 of 4 layers of 256 on the bytes of Python's own language reference (`pydoc_data.topics`), and scores the
text that it has not seen in every runtime. Beside it the error of an untrained one of 8 layers of 512: the relative
norm of the difference of its logits from those in float32. Needs torch, onnxruntime, openvino, xllamacpp and gguf; a
few minutes. A JSON line goes to `results/formats.jsonl`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import torch
from format_outputs import Scores, Weights, error, in_llamacpp, in_onnxruntime, in_openvino, in_pytorch
from numpy.typing import NDArray
from record import append, table

from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.random_values import values
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.spaces.architecture import Architecture

LENGTH, BATCH, SCORED = 128, 16, 64


def gpt(layers: int, width: int) -> Architecture:
    return Architecture.parse(
        {
            "d_model": width,
            "positions": {"kind": "learned", "length": LENGTH + 1},
            "embedding": {"vocab_size": 256},
            "blocks": [{"kind": "attention", "n_head": width // 64}, {"kind": "feed_forward", "d_inner": 4 * width}]
            * layers,
        }
    )


MODEL, UNTRAINED = gpt(4, 256), gpt(8, 512)


def trained(data: NDArray[np.int64], steps: int) -> dict[str, NDArray[np.float32]]:
    rng, model = np.random.default_rng(0), fill(LanguageModel(MODEL), 0)
    torch.set_num_threads(1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=steps)
    for step in range(steps):
        starts = rng.integers(0, len(data) - LENGTH - 1, BATCH)
        batch = torch.from_numpy(np.stack([data[start : start + LENGTH + 1] for start in starts]))
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def perplexity(scores: Scores, data: NDArray[np.int64], texts: int) -> float:
    rng, losses = np.random.default_rng(1), []
    for start in rng.integers(0, len(data) - LENGTH - 1, texts):
        text = data[start : start + LENGTH + 1]
        losses.append(-scores(text[:-1], SCORED)[np.arange(SCORED), text[-SCORED:]].mean())
    return float(np.exp(np.mean(losses)))


def formats(model: Architecture, weights: Weights, folder: Path) -> dict[str, Scores]:
    """The first is what the others are compared with."""
    found: dict[str, Scores] = {"ONNX float32": in_onnxruntime(model, weights)}
    found["ONNX int8"] = in_onnxruntime(model, weights, quantisation="int8")
    for size in (32, 128):
        found[f"ONNX int4, blocks of {size}"] = in_onnxruntime(model, weights, quantisation="int4", block_size=size)
    found["OpenVINO float32"] = in_openvino(model, weights)
    found["OpenVINO int4, blocks of 32"] = in_openvino(model, weights, quantisation="int4")
    found["PyTorch int8"] = in_pytorch(model, weights, int8=True)
    for numbers in ("float32", "float16", "q8_0", "q4_0"):
        found[f"GGUF {numbers}"] = in_llamacpp(model, weights, numbers, folder, LENGTH)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--texts", type=int, default=40)
    chosen = parser.parse_args()
    text = np.frombuffer("".join(topics.values()).encode(), np.uint8).astype(np.int64)
    seen, unseen = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    random = {spec.name: values(spec, 0) for spec in parameters(UNTRAINED)}
    weights = trained(seen, chosen.steps)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        untrained = formats(UNTRAINED, random, Path(folder))
        exact = next(iter(untrained.values()))
        for name, scores in formats(MODEL, weights, Path(folder)).items():
            part = error(untrained[name](unseen[:LENGTH], SCORED), exact(unseen[:LENGTH], SCORED))
            rows.append(
                {
                    "format": name,
                    "error, %": round(100 * part, 2),
                    "perplexity": round(perplexity(scores, unseen, chosen.texts), 3),
                }
            )
            print(rows[-1], flush=True)
    table(f"After {chosen.steps} steps, over {chosen.texts} texts", rows)
    append("formats", {"steps": chosen.steps, "texts": chosen.texts, "rows": rows})


if __name__ == "__main__":
    main()

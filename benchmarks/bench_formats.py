"""What quantised weights cost a trained model: the perplexity of a small GPT-2 in every format that is deployed.

    .venv/bin/python benchmarks/bench_formats.py [--steps 300]

Trains a GPT-2 of 4 layers of 256 on the bytes of Python's own language reference (`pydoc_data.topics`), and scores the
text that it has not seen with ONNX Runtime and llama.cpp. Needs torch, onnxruntime, xllamacpp and gguf; a few minutes.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
import xllamacpp
from numpy.typing import NDArray

from edgefront.core.graph.build import build
from edgefront.core.graph.gguf import write_gguf
from edgefront.core.graph.parameter_values import GivenValues
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.spaces.architecture import Architecture

LENGTH, BATCH, SCORED = 128, 16, 64
MODEL = Architecture.parse(
    {
        "d_model": 256,
        "positions": {"kind": "learned", "length": LENGTH + 1},
        "embedding": {"vocab_size": 256},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 1024}] * 4,
    }
)
Scores = Callable[[NDArray[np.int64]], NDArray[Any]]
"""A text [length] to log-probabilities of the token after each of its last `SCORED` places, [SCORED, 256]."""


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
        losses.append(-scores(text[:-1])[np.arange(SCORED), text[-SCORED:]].mean())
    return float(np.exp(np.mean(losses)))


def in_onnxruntime(weights: Mapping[str, Any], **choice: Any) -> Scores:
    session = ort.InferenceSession(build(MODEL, weights=weights, **choice).SerializeToString())

    def scores(text: NDArray[np.int64]) -> NDArray[Any]:
        logits = session.run(None, {"tokens": text[None]})[0].reshape(len(text), 256)[-SCORED:]
        return np.asarray(torch.from_numpy(logits).log_softmax(-1).numpy())

    return scores


def in_llamacpp(weights: Mapping[str, Any], numbers: Any, folder: Path) -> Scores:
    path = folder / f"{numbers}.gguf"
    write_gguf(MODEL, GivenValues(weights, {}), path, numbers)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = LENGTH + 1, 1, 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.warmup = parameters.fit_params = False
    server = xllamacpp.Server(parameters)

    def scores(text: NDArray[np.int64]) -> NDArray[Any]:
        found = np.full((SCORED, 256), -np.inf)
        for row in range(SCORED):
            prompt = text[: len(text) - SCORED + row + 1].tolist()
            request = {"prompt": prompt, "n_predict": 1, "samplers": ["top_k"], "top_k": 1, "n_probs": 256}
            answer = server.handle_completions(request)["choices"][0]["logprobs"]["content"][0]
            for one in answer["top_logprobs"]:
                found[row, one["id"]] = one["logprob"]
        return found

    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--texts", type=int, default=40)
    chosen = parser.parse_args()
    text = np.frombuffer("".join(topics.values()).encode(), np.uint8).astype(np.int64)
    seen, unseen = text[: len(text) * 9 // 10], text[len(text) * 9 // 10 :]
    weights = trained(seen, chosen.steps)
    with tempfile.TemporaryDirectory() as folder:
        formats: dict[str, Scores] = {"ONNX float32": in_onnxruntime(weights)}
        formats["ONNX int8"] = in_onnxruntime(weights, quantisation="int8")
        for size in (32, 128):
            formats[f"ONNX int4, blocks of {size}"] = in_onnxruntime(weights, quantisation="int4", block_size=size)
        for numbers in ("float32", "float16", "q8_0", "q4_0"):
            formats[f"GGUF {numbers}"] = in_llamacpp(weights, numbers, Path(folder))
        for name, scores in formats.items():
            print(f"| {name} | {perplexity(scores, unseen, chosen.texts):.4f} |", flush=True)


if __name__ == "__main__":
    main()

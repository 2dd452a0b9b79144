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
from collections.abc import Callable, Mapping
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import onnxruntime as ort
import openvino as ov
import torch
import xllamacpp
from numpy.typing import NDArray
from record import append, table

from edgefront.core.graph.build import build
from edgefront.core.graph.formats import quantise
from edgefront.core.graph.gguf import write_gguf
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.parameter_values import GivenValues
from edgefront.core.graph.parameters import parameters
from edgefront.core.graph.random_values import values
from edgefront.core.nn.int8 import use_int8
from edgefront.core.nn.load import load
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


def error(scores: Scores, exact: Scores, text: NDArray[np.int64]) -> float:
    """Of the logits, which log-probabilities are but for a constant of each place."""
    found, right = (logits - logits.mean(-1, keepdims=True) for logits in (scores(text), exact(text)))
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def logarithms(logits: Any) -> NDArray[Any]:
    return np.asarray(torch.from_numpy(np.asarray(logits)).reshape(-1, 256)[-SCORED:].log_softmax(-1).numpy())


def in_onnxruntime(model: Architecture, weights: Mapping[str, Any], **choice: Any) -> Scores:
    session = ort.InferenceSession(build(model, GraphOptions(**choice), weights=weights).SerializeToString())
    return lambda text: logarithms(session.run(None, {"tokens": text[None]})[0])


def in_openvino(model: Architecture, weights: Mapping[str, Any], **choice: Any) -> Scores:
    core = ov.Core()
    read = core.read_model(build(model, GraphOptions(**choice), weights=weights).SerializeToString())
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": ov.Type.f32})
    return lambda text: logarithms(compiled({"tokens": text[None]})["logits"])


def in_pytorch_int8(model: Architecture, weights: Mapping[str, Any]) -> Scores:
    def quantised(name: str) -> tuple[torch.Tensor, float]:
        whole, scale = quantise(weights[name])
        return torch.from_numpy(whole), scale

    tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
    module = use_int8(load(LanguageModel(model), tensors).eval(), quantised)

    def scores(text: NDArray[np.int64]) -> NDArray[Any]:
        with torch.inference_mode():
            return logarithms(module(torch.from_numpy(text[None])).numpy())

    return scores


def in_llamacpp(model: Architecture, weights: Mapping[str, Any], numbers: Any, folder: Path) -> Scores:
    path = folder / f"{model.d_model}-{numbers}.gguf"
    write_gguf(model, GivenValues(weights, {}), path, numbers)
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
            for token in answer["top_logprobs"]:
                found[row, token["id"]] = token["logprob"]
        return found

    return scores


def formats(model: Architecture, weights: Mapping[str, Any], folder: Path) -> dict[str, Scores]:
    """The first is what the others are compared with."""
    found: dict[str, Scores] = {"ONNX float32": in_onnxruntime(model, weights)}
    found["ONNX int8"] = in_onnxruntime(model, weights, quantisation="int8")
    for size in (32, 128):
        found[f"ONNX int4, blocks of {size}"] = in_onnxruntime(model, weights, quantisation="int4", block_size=size)
    found["OpenVINO float32"] = in_openvino(model, weights)
    found["OpenVINO int4, blocks of 32"] = in_openvino(model, weights, quantisation="int4")
    found["PyTorch int8"] = in_pytorch_int8(model, weights)
    for numbers in ("float32", "float16", "q8_0", "q4_0"):
        found[f"GGUF {numbers}"] = in_llamacpp(model, weights, numbers, folder)
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
            part = error(untrained[name], exact, unseen[:LENGTH])
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

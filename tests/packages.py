"""Small models with lively weights, and packages of them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.training.evaluation.given_model import model_files
from edgefront.core.training.evaluation.package import Package, read_package, write_package

S = {"kind": "attention", "n_head": 2}
F = {"kind": "feed_forward", "d_inner": 24}
DESCRIPTIONS: dict[str, dict[str, Any]] = {
    "gpt2": {"positions": {"kind": "learned", "length": 40}, "blocks": [S, F]},
    "transformer-xl": {"positions": {"kind": "relative"}, "norm": "post", "blocks": [S, F, S]},
    "srupp": {"positions": {"kind": "none"}, "blocks": [{"kind": "srupp", "d_attn": 8}] * 2, "output": {"tied": False}},
    "sru": {"positions": {"kind": "none"}, "blocks": [{"kind": "sru"}, F]},
    "adaptive": {
        "positions": {"kind": "relative"},
        "embedding": {"vocab_size": 256, "cutoffs": [60, 150], "div": 2},
        "blocks": [S, F],
    },
    "decoder": {
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "blocks": [{"kind": "short_conv"}, {**F, "gated": True}, {**S, "n_kv_head": 1, "window": 6}, F],
    },
    "bert": {"causal": False, "output": {"kind": "masked_tokens"}, "norm": "post", "blocks": [S, F]},
}


def lively(description: dict[str, Any], seed: int = 1, spread: float = 0.3, vocab_size: int = 256) -> LanguageModel:
    """Weights in which nothing is one, zero or tiny."""
    architecture = Architecture.parse({"d_model": 16, "embedding": {"vocab_size": vocab_size}, **description})
    rng = np.random.default_rng(seed)
    weights = {
        spec.name: torch.tensor(rng.normal(spec.fill == "ones", spread, spec.shape), dtype=torch.float32)
        for spec in parameters(architecture)
    }
    return load(LanguageModel(architecture), weights).eval()


def package(folder: Path, name: str = "transformer-xl", **facts: Any) -> Package:
    """Over bytes."""
    write_package(folder, lively(DESCRIPTIONS[name]), ByteTokenizer(), facts)
    return read_package(folder)


IMPORT_PATH = "/v1/trainings/import"


def packed_model(folder: Path, **others: bytes) -> bytes:
    """A folder of ours as a tar archive, with other files in place of its own, or beside them."""
    files = {name: path.read_bytes() for name, path in model_files(folder).items()}
    return packed(
        {**files, **{name.replace("__", "/").replace("_json", ".json"): text for name, text in others.items()}}
    )


def packed(files: dict[str, bytes]) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return written.getvalue()

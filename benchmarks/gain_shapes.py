"""Shapes of `bench_gain.py`: small Llamas to learn a law from, others that judge it, stock models, and a pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgefront.core.cost.costs import costs
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.base_space import Stock
from edgefront.core.spaces.decoders import LLAMA
from edgefront.core.spaces.embeddings_and_head import Embedding
from edgefront.core.spaces.gene import Gene, steps
from edgefront.core.spaces.kinds import MIN_ATTENTION
from edgefront.core.spaces.layer_genes import PER_LAYER, TIED, UNIFORM

VOCABULARY = 512
MIN_PARAMETERS, MAX_PARAMETERS = 200_000, 1_000_000
"""Of a shape, its embedding included."""
MAX_SMALL = 450_000
"""Of shapes that are drawn besides, for the tightest limits."""
SPACE = replace(
    LLAMA,
    name="llama-small",
    gene_list=(
        Gene("n_layer", steps(1, 10, 1)),
        Gene("d_model", steps(64, 192, 32)),
        Gene("vocab_size", (VOCABULARY,)),
        Gene("output", (TIED,)),
        Gene("d_head", (32,)),
        Gene(MIN_ATTENTION, (40,)),
        Gene("layers", (PER_LAYER,), options=(PER_LAYER, UNIFORM)),
        Gene("n_head", (0, 1, 2, 3, 4, 6), per_layer=True),
        Gene("n_kv_head", (1, 2, 3), per_layer=True),
        Gene("d_inner", (0, *steps(64, 640, 64)), per_layer=True),
    ),
    # A layer of SmolLM2-135M at a sixth of its widths, with heads of 32.
    stock=Stock(d_model=96, n_head=3, n_kv_head=1, d_inner=256),
    frame=replace(LLAMA.frame, embedding=Embedding(vocab_size=VOCABULARY)),
)
STOCK_DEPTHS = tuple(range(1, 10))
LEARN, JUDGE = "learn", "judge"


def shapes(learn: int, judge: int, pool: int, small: int, seed: int) -> list[dict[str, Any]]:
    """Rows `{role, architecture, parameters}`: drawn at random, half of them with all layers alike, and the stock."""
    rng = np.random.default_rng(seed)
    rows = [_row("stock", architecture) for architecture in SPACE.baselines(STOCK_DEPTHS)]
    drawn = {row["digest"] for row in rows}
    roles = [LEARN] * learn + [JUDGE] * judge + ["pool"] * pool
    rows += [_row(role, next(shape)) for shape in [_drawn(rng, drawn, MAX_PARAMETERS)] for role in roles]
    rows += [_row("pool", next(shape)) for shape in [_drawn(rng, drawn, MAX_SMALL)] for _ in range(small)]
    return rows


def _drawn(rng: np.random.Generator, drawn: set[str], most: int) -> Iterator[Architecture]:
    """Shapes of a permitted size, none of them twice; uniform ones and others in turns."""
    spaces = SPACE.narrow({"layers": [UNIFORM]}), SPACE
    while True:
        for space in spaces:
            while True:
                architecture = space.architecture(space.sample(rng))
                size = costs(architecture).total_parameters
                if MIN_PARAMETERS <= size <= most and architecture.digest not in drawn:
                    break
            drawn.add(architecture.digest)
            yield architecture


def _row(role: str, architecture: Architecture) -> dict[str, Any]:
    return {
        "role": role,
        "digest": architecture.digest,
        "parameters": costs(architecture).total_parameters,
        "decoder_parameters": costs(architecture).decoder_parameters,
        "architecture": dict(architecture.canonical),
    }


def architectures(rows: Sequence[dict[str, Any]]) -> list[Architecture]:
    return [Architecture.model_validate(row["architecture"]) for row in rows]


def in_words(architecture: Architecture) -> str:
    """Width: blocks in order, `a3` attention with 3 heads, `f256` feed-forward with 256 inner units."""
    kinds = [f"a{block.n_head}" if block.kind == "attention" else f"f{block.d_inner}" for block in architecture.blocks]
    return f"{architecture.d_model}: {' '.join(kinds)}"


def text_of(folder: Path, into: Path, built_in: str, built_in_bytes: int = 1_500_000) -> Path:
    """Train, validation and test text below `into`: of each source 90, 5 and 5 %, in that order."""
    sources = [
        folder / "wikitext" / "valid.txt",
        folder / "wikitext" / "test.txt",
        folder / "shakespeare" / "input.txt",
    ]
    texts = [path.read_text(encoding="utf-8") for path in sources] + [built_in[:built_in_bytes]]
    into.mkdir(parents=True, exist_ok=True)
    for name, begin, end in (("train", 0.0, 0.9), ("valid", 0.9, 0.95), ("test", 0.95, 1.0)):
        parts = [text[int(begin * len(text)) : int(end * len(text))] for text in texts]
        (into / f"{name}.txt").write_text("\n".join(parts), encoding="utf-8")
    return into

"""Examples of one candidate in full, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from edgefront.api.docs.examples import ARCHITECTURE, CANDIDATE_VIEW, COSTS, PROTOCOL
from edgefront.api.docs.prediction_examples import PARTS
from edgefront.core.graph.model_file import NUMBERS
from edgefront.core.wire import candidates

_HEADS = ARCHITECTURE["blocks"][0]["n_head"]

CANDIDATE_DETAILS: dict[str, Any] = candidates.CandidateDetails(
    candidate=CANDIDATE_VIEW,
    job_name="a model for my laptop",
    target="laptop, onnxruntime",
    device="laptop",
    protocol=PROTOCOL,
    d_model=ARCHITECTURE["d_model"],
    blocks=(
        candidates.BlockView(kind="attention", width=ARCHITECTURE["d_model"], heads=_HEADS, parameters=263_680),
        candidates.BlockView(kind="feed_forward", width=ARCHITECTURE["blocks"][1]["d_inner"], parameters=526_080),
    ),
    position_parameters=COSTS["position_parameters"],
    embedding_parameters=COSTS["embedding_parameters"],
    ancestors=(),
    downloads=(
        candidates.DownloadView(format="onnx", numbers=NUMBERS["onnx"]),
        candidates.DownloadView(format="safetensors", numbers=("float32",)),
    ),
).model_dump(mode="json")

CANDIDATE_PARTS: dict[str, Any] = candidates.CandidateParts(
    latency_ms=12.4,
    parts=PARTS,
    memory_bytes=61_300_000,
    memory_parts=(
        candidates.MemoryPart(name="weights", meaning="weights", bytes=55_100_000),
        candidates.MemoryPart(name="logits", meaning="scores of tokens", bytes=6_200_000),
    ),
).model_dump(mode="json")

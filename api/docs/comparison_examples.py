"""The example of a comparison for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from edgefront.api.docs.examples import ARCHITECTURE, CANDIDATE_VIEW, JOB, PROTOCOL
from edgefront.core.wire import comparisons

_TARGET = JOB["targets"][0]
_BOARD = _TARGET["id"][:-1] + "0"

COMPARISON: dict[str, Any] = comparisons.ComparisonView(
    targets=tuple(
        comparisons.ComparedTarget(
            target_id=id_,
            target=name,
            job_id=JOB["id"],
            job_name=JOB["name"],
            device=name,
            protocol=PROTOCOL,
            state="finished",
            shared=1,
            latency_ratio=ratio,
            memory_ratio=1.0,
        )
        for id_, name, ratio in ((_TARGET["id"], "laptop", 1.0), (_BOARD, "board", 3.9))
    ),
    architectures=(
        comparisons.ComparedArchitecture(
            digest=CANDIDATE_VIEW.digest,
            architecture=ARCHITECTURE,
            decoder_parameters=CANDIDATE_VIEW.decoder_parameters,
            total_parameters=CANDIDATE_VIEW.total_parameters,
            perplexity=92.4,
            law="lts-gpt2-wikitext103",
            entries=tuple(
                comparisons.ComparedEntry(
                    candidate_id=CANDIDATE_VIEW.id,
                    on_frontier=True,
                    latency_ms=latency,
                    latency_half_width_ms=0.2,
                    memory_bytes=61_300_000,
                )
                for latency in (12.4, 48.4)
            ),
        ),
    ),
).model_dump(mode="json")

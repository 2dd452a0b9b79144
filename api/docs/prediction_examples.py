"""Examples of predictions for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from edgefront.api.docs.examples import ARCHITECTURE, COSTS, PROTOCOL
from edgefront.core.wire import jobs, predictions

PREDICTION_REQUEST: dict[str, Any] = {
    "device": "lab-7",
    "protocol": PROTOCOL.model_dump(mode="json"),
    "architectures": [ARCHITECTURE],
}

PREDICTIONS: dict[str, Any] = predictions.PredictionsView(
    device="lab-7",
    protocol=PROTOCOL,
    measurements=34,
    learnt_from=34,
    latency_error=0.021,
    memory_error=0.004,
    hard_to_predict=False,
    note="",
    predictions=(
        predictions.PredictionView(
            digest=COSTS["digest"],
            decoder_parameters=COSTS["decoder_parameters"],
            total_parameters=COSTS["total_parameters"],
            weight_bytes=COSTS["weight_bytes"],
            flops=COSTS["flops"],
            predicted=jobs.PredictedView(
                perplexity=92.4,
                perplexity_low=78.1,
                perplexity_high=109.3,
                extrapolated=True,
                law="lts-gpt2-wikitext103",
                latency_ms=12.4,
                latency_low_ms=11.7,
                latency_high_ms=13.1,
                memory_bytes=61_300_000,
                memory_low_bytes=60_700_000,
                memory_high_bytes=61_900_000,
            ),
            parts=(
                predictions.PartView(
                    block=0,
                    kind="attention",
                    ms=1.6,
                    by_feature={"attention_calls": 0.1, "attention_products": 1.2, "attention_scores": 0.3},
                ),
                predictions.PartView(block=1, kind="feed_forward", ms=2.0, by_feature={"feed_forward_products": 2.0}),
                predictions.PartView(block=None, kind="ends", ms=8.8, by_feature={"pass": 0.3, "output_products": 8.5}),
            ),
            beyond_measured=False,
            measured=None,
        ),
    ),
).model_dump(mode="json")

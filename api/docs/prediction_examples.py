"""Examples of predictions for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from edgefront.api.docs.examples import ARCHITECTURE, COSTS, JOB, JOB_REQUEST, PROTOCOL, RECOMMENDATION
from edgefront.core.wire import estimates, genes, jobs, laws, predictions

PREDICTION_REQUEST: dict[str, Any] = {
    "device": "lab-7",
    "protocol": PROTOCOL.model_dump(mode="json"),
    "architectures": [ARCHITECTURE],
}

PARTS = (
    predictions.PartView(
        block=0,
        kind="attention",
        ms=1.6,
        by_feature={"attention_calls": 0.1, "attention_products": 1.2, "attention_scores": 0.3},
    ),
    predictions.PartView(block=1, kind="feed_forward", ms=2.0, by_feature={"feed_forward_products": 2.0}),
    predictions.PartView(block=None, kind="ends", ms=8.8, by_feature={"pass": 0.3, "output_products": 8.5}),
)

PREDICTIONS: dict[str, Any] = predictions.PredictionsView(
    device="lab-7",
    protocol=PROTOCOL,
    measurements=34,
    learnt_from=34,
    latency_error=0.021,
    memory_error=0.004,
    hard_to_predict=False,
    note="",
    perplexity_of="WikiText-103, validation split",
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
            parts=PARTS,
            beyond_measured=False,
            measured=None,
        ),
    ),
).model_dump(mode="json")

_LAUNCHES = estimates.Count(expected=57, at_most=102)
ESTIMATE: dict[str, Any] = estimates.JobEstimate(
    request=jobs.JobRequest.model_validate(
        JOB_REQUEST | {"proxy": "quality_law", "algorithm": {"name": "surrogate", "settings": {}}}
    ),
    refusals=(
        estimates.Refusal(
            status=422,
            kind="invalid-input",
            detail="targets.1.protocol.threads: 'lab-9' cannot measure ...; up to 4 threads",
            field="targets.1.protocol.threads",
            value=8,
            allowed="at most 4",
        ),
    ),
    targets=(
        estimates.TargetEstimate(
            name="laptop, onnxruntime",
            device="laptop",
            baseline_launches=12,
            candidates=estimates.Count(expected=30, at_most=60),
            refinements=estimates.Count(expected=15, at_most=30),
            launches=_LAUNCHES,
            seconds_per_launch=0.8,
            seconds_from="predicted",
            minutes=1.8,
            minutes_at_most=3.4,
            note="",
            stock=(
                estimates.StockEstimate(
                    name="2 layers",
                    latency_ms=5.4,
                    latency_low_ms=5.1,
                    latency_high_ms=5.7,
                    memory_bytes=61_300_000,
                ),
                estimates.StockEstimate(
                    name="16 layers",
                    latency_ms=41.2,
                    latency_low_ms=38.0,
                    latency_high_ms=44.7,
                    memory_bytes=160_000_000,
                ),
            ),
        ),
    ),
    launches=_LAUNCHES,
    minutes=1.8,
    minutes_at_most=3.4,
    candidates=estimates.Count(expected=34, at_most=64),
    event_bytes=estimates.Count(expected=130_000, at_most=245_000),
    model_bytes=61_000_000,
).model_dump(mode="json")

_CHOSEN = RECOMMENDATION["recommended"]["id"]
AGREEMENT: dict[str, Any] = predictions.JobAgreementView(
    job_id=RECOMMENDATION["job_id"],
    target_id=RECOMMENDATION["target_id"],
    target=RECOMMENDATION["target"],
    latency=predictions.AgreementView(
        measured=9,
        held=8,
        error=0.021,
        widening=1.0,
        spans=(predictions.SpanView(low=11.2, high=48.9, measured=9, held=8, error=0.021),),
        missed=(_CHOSEN,),
    ),
    memory=predictions.AgreementView(
        measured=9,
        held=9,
        error=0.004,
        widening=1.0,
        spans=(predictions.SpanView(low=61_300_000.0, high=298_000_000.0, measured=9, held=9, error=0.004),),
        missed=(),
    ),
    hard_to_predict=False,
    sentence="Within the 95 % interval that was predicted before are 8 of 9 latencies (mean error 2.1 %) and 9 of 9 "
    "peak memories (0.4 %).",
).model_dump(mode="json")

LAW_REQUEST: dict[str, Any] = {"law": "lts-gpt2-wikitext103-3f9a0c41d2", "version": 2}

_OWN = laws.LawChoice(
    law="lts-gpt2-wikitext103-3f9a0c41d2@1",
    name="lts-gpt2-wikitext103-3f9a0c41d2",
    version=1,
    models=5,
    data="wikitext103 (data set 8be7c19d2a40)",
    split="validation",
    trained="with recipe quick, 1,000 steps",
    created_at=datetime(2026, 5, 4, 9, 30, tzinfo=timezone.utc),
)
JOB_LAW: dict[str, Any] = laws.JobLawView(
    job_id=JOB["id"],
    law=_OWN,
    moving_to=None,
    newer=(_OWN.model_copy(update={"law": f"{_OWN.name}@2", "version": 2, "models": 6}),),
    agreement=laws.LawAgreement(
        dataset="wikitext103",
        split="valid",
        recipe="quick",
        alike=True,
        models=1,
        held=1,
        ratio=1.01,
        held_after_shift=1,
        spearman=None,
        rows=(
            laws.AgreementRow(
                candidate_id="cnd_01jv0c9a7m4q3k2n1p0r9s8t7x",
                target="laptop, onnxruntime",
                number=12,
                name="4 layers",
                training_id="trn_01jv0d1e3m4q3k2n1p0r9s8t74",
                predicted=41.2,
                low=39.0,
                high=43.5,
                trained=41.6,
                held=True,
                learnt_from=False,
            ),
        ),
    ),
).model_dump(mode="json")

ADDED_TARGET: dict[str, Any] = {"name": "tablet", "device": "lab-9", "limits": {"latency_ms": 80.0}}

GENES: dict[str, Any] = genes.GenesView(
    job_id=JOB["id"],
    target_id=JOB["targets"][0]["id"],
    target="laptop, onnxruntime",
    measured=27,
    ids=("cnd_01jv0c9a7m4q3k2n1p0r9s8t7x", "cnd_01jv0c9a7m4q3k2n1p0r9s8t7y"),
    numbers=(17, 18),
    on_frontier=(True, False),
    out_of_bounds=(False, False),
    objectives=(
        genes.ObjectiveView(
            name="latency", title="latency", unit="ms", values=(12.4, 17.9), low_is_better=True, explained=0.94
        ),
    ),
    genes=(
        genes.GeneView(
            name="d_model",
            title="d_model",
            values=(256.0, 320.0),
            importance=(genes.ImportanceView(objective="latency", share=0.71, correlation=0.83),),
        ),
    ),
    note="Importance is that of permutation in a random forest.",
).model_dump(mode="json")

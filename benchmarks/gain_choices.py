"""What `bench_gain.py` learns from its trainings, and what is chosen by it under limits."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gain_shapes import JUDGE, LEARN, VOCABULARY, architectures
from gain_training import TOKENS_A_STEP
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.proxies.correlation import spearman
from edgefront.core.quality.law import Origin, Prediction, QualityLaw
from edgefront.core.quality.shared_law import SharedLaw, own_trainings
from edgefront.core.quality.shipped import law_named
from edgefront.core.quality.table_law import TableLaw

Row = Mapping[str, Any]
Floats = NDArray[np.float64]
SHIPPED, OWN = "llama-dolma-cooled", "own-data-llama"
LIMIT_DEPTHS = (3, 5, 7)
"""Layers of the stock models whose latency and memory are the limits."""
SLACK = 1.02
"""So that the stock model itself is within its limits in spite of noise."""
TABLE, SHARED = "of one table", "own data, refined"


def origin(steps: int) -> Origin:
    return Origin(
        name=f"small-{steps}",
        title="Small Llamas",
        family="llama",
        data="WikiText, Shakespeare and Python",
        split="test",
        tokens=f"token (vocabulary of {VOCABULARY})",
        trained=f"{steps} steps of {TOKENS_A_STEP} tokens",
    )


def laws(shapes: Sequence[Row], runs: Sequence[Row], steps: int) -> dict[str, QualityLaw]:
    """Both laws of these trainings at one budget; the shared one learns from all budgets."""
    rows = {row["digest"]: row for row in shapes}
    at_budget = [run for run in runs if run["steps"] == steps]
    table = TableLaw.fit(
        Shapes.of(architectures([rows[run["digest"]] for run in at_budget])),
        [run["log_perplexity"] for run in at_budget],
        origin(steps),
    )
    general = law_named(OWN)
    assert isinstance(general, SharedLaw)
    own = own_trainings(
        general,
        Shapes.of(architectures([rows[run["digest"]] for run in runs])),
        np.log([run["tokens"] for run in runs]),
        [run["log_perplexity"] for run in runs],
        [run["digest"] for run in runs],
    )
    shared = general.refined(own, origin(steps)).at_tokens(float(steps * TOKENS_A_STEP))
    return {TABLE: table, SHARED: shared}


def judged(predicted: Prediction, trained: Floats) -> dict[str, float]:
    """Error (RMS, %), rank correlation, and the share within intervals and these' mean half width (%)."""
    error = predicted.log_perplexity - trained
    return {
        "models": len(trained),
        "error %": 100 * float(np.sqrt(np.mean(error**2))),
        "rank correlation": spearman(predicted.log_perplexity, trained),
        "within interval": float(np.mean(np.abs(error) <= predicted.half_width)),
        "half width %": 100 * float(predicted.half_width.mean()),
    }


def judgements(shapes: Sequence[Row], runs: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for each budget and law: by leave-one-out on what it learnt from, and on the others."""
    rows = {row["digest"]: row for row in shapes}
    learnt = [run for run in runs if rows[run["digest"]]["role"] == LEARN]
    found = []
    for steps in sorted({run["steps"] for run in runs}):
        for name, law in laws(shapes, learnt, steps).items():
            for role in (LEARN, JUDGE):
                asked = [run for run in runs if run["steps"] == steps and rows[run["digest"]]["role"] == role]
                if not asked:
                    continue
                trained = np.array([run["log_perplexity"] for run in asked])
                of = Shapes.of(architectures([rows[run["digest"]] for run in asked]))
                predicted = law.out_of_sample(of, trained)[0] if role == LEARN else law.predict(of)
                found.append({"steps": steps, "law": name, "on": role, **judged(predicted, trained)})
    return found


def shipped_order(shapes: Sequence[Row], runs: Sequence[Row]) -> list[dict[str, Any]]:
    """Rank correlations of the shipped law, of parameters and of decoder parameters with what was trained."""
    rows = {row["digest"]: row for row in shapes}
    law, found = law_named(SHIPPED), []
    for steps in sorted({run["steps"] for run in runs}):
        asked = [run for run in runs if run["steps"] == steps]
        trained = np.array([run["log_perplexity"] for run in asked])
        of = Shapes.of(architectures([rows[run["digest"]] for run in asked]))
        scores = {
            SHIPPED: law.predict(of).log_perplexity,
            "decoder parameters": -of.decoder_parameters.astype(float),
            "parameters": -np.array([rows[run["digest"]]["parameters"] for run in asked], dtype=float),
        }
        for name, score in scores.items():
            found.append(
                {
                    "steps": steps,
                    "by": name,
                    "models": len(asked),
                    "rank correlation": spearman(score, trained),
                    "interval": interval_of_correlation(score, trained),
                }
            )
    return found


def interval_of_correlation(first: Floats, second: Floats, samples: int = 2000) -> list[float]:
    """95 % by bootstrap over models."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(first), size=(samples, len(first)))
    found = [spearman(first[places], second[places]) for places in drawn]
    return [round(float(value), 2) for value in np.nanpercentile(found, [2.5, 97.5])]


def fastest(launches: Iterable[Row]) -> dict[str, dict[str, float]]:
    """By digest the fastest pass of all launches (ms), and the median of their peak memory (bytes)."""
    grouped = defaultdict[str, list[Row]](list)
    for launch in launches:
        if "ms" in launch:
            grouped[launch["digest"]].append(launch)
    return {
        digest: {
            "latency_ms": min(launch.get("fastest_ms", launch["ms"]) for launch in own),
            "peak_bytes": statistics.median(launch["peak_bytes"] for launch in own),
        }
        for digest, own in grouped.items()
    }


@dataclass(frozen=True)
class Limits:
    """Latency (ms) and peak memory (bytes) of a stock model, with a slack, and what is within."""

    depth: int
    latency_ms: float
    peak_bytes: float

    @classmethod
    def of(cls, shapes: Sequence[Row], measured: Mapping[str, Row]) -> list[Limits]:
        """Those of `LIMIT_DEPTHS`."""
        stock = [measured[row["digest"]] for row in shapes if row["role"] == "stock"]
        return [
            cls(depth, SLACK * stock[depth - 1]["latency_ms"], SLACK * stock[depth - 1]["peak_bytes"])
            for depth in LIMIT_DEPTHS
        ]

    def hold(self, measured: Row) -> bool:
        return bool(measured["latency_ms"] <= self.latency_ms and measured["peak_bytes"] <= self.peak_bytes)


def unseen_choices(shapes: Sequence[Row], runs: Sequence[Row], measured: Mapping[str, Row]) -> list[dict[str, Any]]:
    """Under each pair of limits and at each budget the trained perplexity of choices among the trained shapes.

    The law predicts each of them by leave-one-out, so it chooses among shapes that it has not seen. `random` is the
    geometric mean of all within the limits.
    """
    rows, found = {row["digest"]: row for row in shapes}, []
    for steps in sorted({run["steps"] for run in runs}):
        own = [run for run in runs if run["steps"] == steps and run["digest"] in measured]
        trained = np.array([run["log_perplexity"] for run in own])
        of = Shapes.of(architectures([rows[run["digest"]] for run in own]))
        scores = {
            "law": TableLaw.fit(of, trained, origin(steps)).out_of_sample(of, trained)[0].log_perplexity,
            "decoder parameters": -of.decoder_parameters.astype(float),
            SHIPPED: law_named(SHIPPED).predict(of).log_perplexity,
        }
        for limits in Limits.of(shapes, measured):
            within = np.flatnonzero([limits.hold(measured[run["digest"]]) for run in own])
            chosen = {name: float(trained[within[score[within].argmin()]]) for name, score in scores.items()}
            logs = {**chosen, "random": float(trained[within].mean()), "best": float(trained[within].min())}
            perplexities = {name: round(float(np.exp(log)), 2) for name, log in logs.items()}
            found.append({"steps": steps, "limit": limits.depth, "within": len(within), **perplexities})
    return found


def choices(
    shapes: Sequence[Row], runs: Sequence[Row], measured: Mapping[str, Row], judged: Sequence[Row], seeds: int
) -> list[dict[str, Any]]:
    """Under each pair of limits and at each budget: what is chosen by whom, a random one for each seed.

    Of the two laws the one with the lesser leave-one-out error chooses, after learning from all trainings.
    """
    rows = [row for row in shapes if row["digest"] in measured]
    decoder = np.array([row["decoder_parameters"] for row in rows])
    stock = np.array([row["role"] == "stock" for row in rows])
    found: list[dict[str, Any]] = []
    for steps in sorted({run["steps"] for run in runs}):
        own = {row["law"]: row["error %"] for row in judged if row["steps"] == steps and row["on"] == LEARN}
        best = min(own, key=own.__getitem__)
        predicted = laws(shapes, runs, steps)[best].predict(Shapes.of(architectures(rows)))
        rng = np.random.default_rng(0)
        for limits in Limits.of(shapes, measured):
            within = np.flatnonzero([limits.hold(measured[row["digest"]]) for row in rows])
            ours = within[predicted.log_perplexity[within].argmin()]
            chosen = {
                "law": [ours] * seeds,
                "stock": [max((at for at in within if stock[at]), key=decoder.__getitem__)] * seeds,
                "decoder parameters": [within[decoder[within].argmax()]] * seeds,
                "random": list(rng.choice(within, seeds, replace=False)),
            }
            for name, places in chosen.items():
                for seed, at in enumerate(places, start=1):
                    found.append(
                        {
                            "steps": steps,
                            "limit": limits.depth,
                            "latency_limit_ms": limits.latency_ms,
                            "memory_limit_bytes": limits.peak_bytes,
                            "within": len(within),
                            "choice": name,
                            "seed": seed,
                            "digest": rows[at]["digest"],
                            "law": best,
                            "predicted": float(predicted.log_perplexity[at]),
                            "half_width": float(predicted.half_width[at]),
                            **measured[rows[at]["digest"]],
                        }
                    )
    return found

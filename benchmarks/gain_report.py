"""Tables and raw results of `bench_gain.py`."""

from __future__ import annotations

import gzip
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gain_choices import fastest, shipped_order, unseen_choices
from gain_shapes import in_words
from record import RESULTS, append, table
from scipy.stats import t

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.units import MB

Row = Mapping[str, Any]
CHOICES = ("law", "stock", "decoder parameters", "random")


class Trained:
    """All runs by digest and steps, and the scatter of seeds."""

    def __init__(self, runs: Sequence[Row]) -> None:
        self._logs = defaultdict[tuple[str, int], list[float]](list)
        for run in runs:
            self._logs[run["digest"], run["steps"]].append(run["log_perplexity"])
        self._spread: dict[int, tuple[float, int]] = {}
        for steps in {steps for _, steps in self._logs}:
            own = [np.array(logs) for (_, at), logs in self._logs.items() if at == steps and len(logs) > 1]
            freedom = sum(len(logs) - 1 for logs in own)
            squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in own)
            self._spread[steps] = math.sqrt(squares / max(1, freedom)), freedom

    def of(self, digests: Iterable[str], steps: int) -> list[float]:
        """ln perplexities of the runs of these shapes, all seeds."""
        return [log for digest in dict.fromkeys(digests) for log in self._logs.get((digest, steps), ())]

    def scatter(self, steps: int) -> tuple[float, int]:
        """Standard deviation of ln perplexity between seeds, pooled over shapes (0 where none has several), and its
        degrees of freedom.
        """
        return self._spread[steps]

    def half_width(self, steps: int, counts: Sequence[int]) -> float | None:
        """95 % of the mean of so many runs, or of the difference of two such means, in ln perplexity; None where no
        shape has several runs.
        """
        deviation, freedom = self._spread[steps]
        if not freedom:
            return None
        return float(t.ppf(0.975, freedom)) * deviation * math.sqrt(sum(1 / count for count in counts))


def compared(shapes: Sequence[Row], runs: Sequence[Row], chosen: Sequence[Row]) -> list[dict[str, Any]]:
    """A row for each budget, pair of limits and choice of which every shape was trained.

    Intervals are 95 %, of the scatter of seeds pooled over all shapes of the budget that have several.
    """
    trained, rows = Trained(runs), {row["digest"]: row for row in shapes}
    groups = defaultdict[tuple[int, int, str], list[Row]](list)
    for row in chosen:
        groups[row["steps"], row["limit"], row["choice"]].append(row)
    listed = []
    for (steps, limit, name), own in groups.items():
        reference = groups[steps, limit, "stock"]
        logs, stock = (trained.of((row["digest"] for row in group), steps) for group in (own, reference))
        if not all(trained.of([row["digest"]], steps) for row in own):
            continue
        digest, same = own[0]["digest"], own[0]["digest"] == reference[0]["digest"]
        shape = Architecture.model_validate(rows[digest]["architecture"])
        against = _percent(float(np.mean(logs) - np.mean(stock))) if stock else None
        interval = trained.half_width(steps, [len(logs), len(stock)]) if stock and not same else None
        listed.append(
            {
                "steps": steps,
                "limit": limit,
                "choice": name,
                "shape": in_words(shape) if name != "random" else f"{len({row['digest'] for row in own})} shapes",
                "parameters, K": round(rows[digest]["parameters"] / 1e3),
                "ms": round(own[0]["latency_ms"], 2),
                "MB": round(own[0]["peak_bytes"] / MB, 2),
                "perplexity": round(math.exp(float(np.mean(logs))), 2),
                "runs": len(logs),
                "against stock, %": against,
                "± %": None if interval is None else round(100 * interval, 1),
                "predicted, %": _percent(own[0]["predicted"] - reference[0]["predicted"]),
            }
        )
    return sorted(listed, key=lambda row: (row["steps"], row["limit"], CHOICES.index(row["choice"])))


def _percent(log_ratio: float) -> float:
    return round(100 * math.expm1(log_ratio), 1)


def report(folder: Path, record: bool) -> None:
    """Prints everything; with `record` also to `benchmarks/results/`."""
    shapes, runs, chosen, judged, launches = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("shapes", "runs", "choices", "judged", "launches")
    )
    first = [run for run in runs if run["seed"] == 0]
    drawn = [run for run in first if next(row for row in shapes if row["digest"] == run["digest"])["role"] != "stock"]
    order = shipped_order(shapes, drawn)
    unseen = unseen_choices(shapes, drawn, fastest(launches))
    rows = compared(shapes, runs, chosen)
    trained = Trained(runs)
    scatter = {steps: trained.scatter(steps) for steps in sorted({run["steps"] for run in runs})}
    table("Laws learnt from own trainings", judged)
    table("Order of the trained shapes", order)
    table("Choices among the trained shapes, each predicted without its own training", unseen)
    table("Choices under limits", rows)
    for steps, (deviation, freedom) in scatter.items():
        print(f"\n{steps} steps: deviation between seeds {100 * deviation:.2f} % ({freedom} degrees of freedom)")
    if record:
        results = {"judged": judged, "order": order, "unseen": unseen, "choices": rows, "seeds": scatter}
        append("gain", {"what": "small Llamas", **results})
        kept = {"shapes": shapes, "runs": runs, "choices": chosen, "launches": launches}
        with gzip.open(RESULTS / "gain_small.jsonl.gz", "wt", encoding="utf-8") as lines:
            for name, listed in kept.items():
                for row in listed:
                    lines.write(json.dumps({"of": name, **row}) + "\n")

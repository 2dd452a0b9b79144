"""Rank correlation of proxies with the quality of trained models, as in LTS (arXiv 2203.02094, §4.2, App. C and J).

Proxy and quality get signs so that higher is better. A correlation of 1 means that both rank models equally.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.statistics import Z_95
from edgefront.core.training.proxies.registry import Proxy, ProxySettings
from edgefront.core.training.proxies.table import (
    Quality,
    Row,
    architecture_of,
    columns_of,
    missing_fields,
    number_in,
    value_of,
)
from edgefront.core.training.proxies.trained import described_model, training_identity

Floats = NDArray[np.float64]

MIN_PAIRS = 3
"""Minimum number of pairs for a correlation, because two pairs are always in perfect order."""
MIN_FOR_INTERVAL = 10
"""Minimum number of pairs for an interval, because its variance is an approximation for large samples."""


def ranks(values: ArrayLike) -> Floats:
    """Ranks the values along the last axis, from 1; ties share their mean rank."""
    from scipy.stats import rankdata  # imported here because scipy takes a second to load, which would slow a start

    ranked: Floats = rankdata(np.asarray(values, dtype=np.float64), axis=-1)
    return ranked


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Spearman's ρ: Pearson's correlation of the ranks; NaN for fewer than three values or a constant input."""
    a, b = ranks(first), ranks(second)
    if len(a) < MIN_PAIRS:
        return float("nan")
    a, b = a - a.mean(), b - b.mean()
    norm = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / norm if norm > 0 else float("nan")


def kendall(first: ArrayLike, second: ArrayLike) -> float:
    """Kendall's τ-b, corrected for ties; NaN for fewer than three values or a constant input."""
    from scipy.stats import kendalltau

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    return float(kendalltau(a, b, method="asymptotic").statistic) if len(a) >= MIN_PAIRS else float("nan")


def best(values: ArrayLike, share: float) -> NDArray[np.intp]:
    """Indices of the highest `share` of the values, highest first; ties keep their order."""
    array = np.asarray(values, dtype=np.float64)
    # A product such as 0.29 · 100 lies slightly below the whole number.
    count = int(share * len(array) + 1e-9)
    return np.argsort(-array, kind="stable")[:count]


def common_ratio(truth: ArrayLike, proxy: ArrayLike, share: float) -> float:
    """Overlap of the best `share` by truth and the best `share` by proxy, from 0 to 1 (LTS, arXiv 2203.02094, §4.1)."""
    true, chosen = best(truth, share), best(proxy, share)
    return len(np.intersect1d(true, chosen)) / len(true) if len(true) else float("nan")


def interval(first: ArrayLike, second: ArrayLike) -> tuple[float, float] | None:
    """95 % interval of Spearman's ρ by Fisher's z with the variance of Bonett and Wright (2000, Psychometrika 65).

    None if ρ is undefined or there are fewer than `MIN_FOR_INTERVAL` pairs. For a perfect order,
    where z is infinite, ρ is replaced by the ρ of an order with one swapped pair of neighbours.
    """
    rho, number = spearman(first, second), len(np.asarray(first))
    if number < MIN_FOR_INTERVAL or math.isnan(rho):
        return None
    nearest = 1 - 12 / (number * (number**2 - 1))
    z = math.atanh(max(-nearest, min(nearest, rho)))
    half_width = Z_95 * math.sqrt((1 + rho**2 / 2) / (number - 3))
    return min(rho, math.tanh(z - half_width)), max(rho, math.tanh(z + half_width))


SHARES = (100, 50, 30, 10)
"""Percentages of best models by quality for which correlations are computed, as in LTS's figures."""

Score = Callable[[Architecture, Proxy], float]


@dataclass(frozen=True)
class Slice:
    """Rank correlations over the best `percent` of the models by quality; None in fields with too few models."""

    percent: int
    models: int
    spearman: float | None
    low: float | None
    high: float | None
    """95 % interval of Spearman's ρ; None below `MIN_FOR_INTERVAL` models."""
    kendall: float | None
    common_ratio: float | None
    """Share of these models that are also among the same number of best models by the proxy; 1 for all models."""


@dataclass(frozen=True)
class ProxyRanking:
    proxy: str
    from_column: bool
    """Whether the proxy's values come from the table; otherwise they were computed."""
    flops: float | None
    """Mean FLOPs of one score; None if the table has no architectures."""
    models: int
    slices: tuple[Slice, ...]
    d_avg: float | None
    """Mean relative distance in quality from the proxy's frontier to the true frontier; None without latencies."""


@dataclass(frozen=True)
class ProxyStudy:
    quality: str
    higher_is_better: bool
    models: int
    trainings: int
    """Number of trainings of the models. Values of a model with several trainings are means."""
    left_out: int
    """Number of rows without a number in the column of quality."""
    first_left_out: int | None
    """Number of the first row without a quality, from 1."""
    repeated: int
    """Number of rows that repeat model and quality of an earlier row. A repeated training counts once."""
    proxies: tuple[ProxyRanking, ...]


def study_proxies(
    rows: Sequence[Row],
    quality: Quality,
    proxies: Sequence[Proxy],
    score: Score,
    settings: ProxySettings,
    *,
    latency: str | None = None,
) -> ProxyStudy:
    """Compares the ranking of the table's models by each proxy with their quality.

    The table contains the values of a proxy; missing values are computed by `score`. `latency` names a column by which
    frontiers are compared. Models that a proxy cannot score are left out for this proxy. Several trainings of one model
    are one point, because more seeds do not make a correlation more certain.

    Raises `InvalidInput` for fewer than three different models with a quality, or a proxy with fewer than three values.
    The error names the number of a faulty row, counted from 1.
    """
    numbered = list(enumerate(rows, 1))
    with_quality = [(number, row) for number, row in numbered if number_in(row, quality.column) is not None]
    first = next((number for number, row in numbered if number_in(row, quality.column) is None), None)
    trainings: dict[str, dict[float | None, tuple[int, Row]]] = {}
    for number, row in with_quality:
        model, value = training_identity(described_model(number, row), row, quality)
        trainings.setdefault(model, {}).setdefault(value, (number, row))
    if len(trainings) < MIN_PAIRS:
        fault = "" if first is None else f"; row {first}: {quality.column} is {rows[first - 1].get(quality.column)!r}"
        raise InvalidInput(
            f"{len(with_quality)} rows with a number in {quality.column} are of {len(trainings)} different models: a "
            f"ranking needs at least {MIN_PAIRS}{fault}",
            field="table" if first is None else f"rows.{first}.{quality.column}",
            value=len(trainings),
            allowed=f"at least {MIN_PAIRS} different trained models",
        )
    columns = [quality.column, *([] if latency is None else [latency])]
    columns += [column for proxy in proxies for column in columns_of(proxy.name)]
    models = [_mean(list(of_one.values()), columns) for of_one in trainings.values()]
    different = sum(len(of_one) for of_one in trainings.values())
    return ProxyStudy(
        quality=quality.column,
        higher_is_better=quality.higher_is_better,
        models=len(models),
        trainings=different,
        left_out=len(rows) - len(with_quality),
        first_left_out=first,
        repeated=len(with_quality) - different,
        proxies=tuple(_of_one(models, quality, proxy, score, settings, latency) for proxy in proxies),
    )


def slices_of(truth: ArrayLike, values: ArrayLike) -> tuple[Slice, ...]:
    """Returns rank correlations of two columns (higher is better), over all models and over the best by `truth`."""
    true, proxy = np.asarray(truth, dtype=np.float64), np.asarray(values, dtype=np.float64)
    slices = []
    for percent in SHARES:
        indices = best(true, percent / 100)
        a, b = true[indices], proxy[indices]
        low, high = interval(a, b) or (None, None)
        slices.append(
            Slice(
                percent=percent,
                models=len(indices),
                spearman=_finite(spearman(a, b)),
                low=low,
                high=high,
                kendall=_finite(kendall(a, b)),
                common_ratio=_finite(common_ratio(true, proxy, percent / 100)),
            )
        )
    return tuple(slices)


def d_avg(quality: ArrayLike, latency: ArrayLike, proxy: ArrayLike, *, higher_is_better: bool = False) -> float:
    """Mean distance of frontiers (1/N) Σ |p_i − p_gt,i| / p_gt,i over the proxy's N points (LTS, Appendix C, eq. 2).

    p_i is the quality of a model that no other model beats in both proxy (higher is better) and latency; p_gt,i is the
    quality of the point on the true frontier with the nearest latency. The true frontier is the lower convex hull of
    quality against latency.
    """
    p, t = np.asarray(quality, dtype=np.float64), np.asarray(latency, dtype=np.float64)
    gain = p if higher_is_better else -p
    by_proxy = _frontier(np.asarray(proxy, dtype=np.float64), t)
    true = _upper_hull(gain, t, _frontier(gain, t))
    nearest = true[np.abs(t[by_proxy][:, None] - t[true][None, :]).argmin(1)]
    return float(np.mean(np.abs(p[by_proxy] - p[nearest]) / np.abs(p[nearest])))


def _mean(trainings: Sequence[tuple[int, Row]], columns: Sequence[str]) -> tuple[int, Row]:
    """Returns the first row of one model; `columns` have the means over the model's trainings."""
    number, first = trainings[0]
    numbers = {column: [number_in(row, column) for _, row in trainings] for column in columns}
    present = {column: [value for value in values if value is not None] for column, values in numbers.items()}
    return number, {**first, **{column: float(np.mean(values)) for column, values in present.items() if values}}


def _of_one(
    numbered: Sequence[tuple[int, Row]],
    quality: Quality,
    proxy: Proxy,
    score: Score,
    settings: ProxySettings,
    latency: str | None,
) -> ProxyRanking:
    values, costs, from_column = [], [], True
    used: list[Row] = []
    lacking: list[str] = []
    reason = ""
    for number, row in numbered:
        value, architecture = value_of(row, proxy.name), architecture_of(row)
        if architecture is not None:
            costs.append(proxy.cost(architecture, settings))
        if value is None and architecture is not None:
            from_column = False
            try:
                value = score(architecture, proxy)
            except InvalidInput as error:
                reason = error.detail
        elif value is None:
            lacking.append(f"row {number}: {', '.join(missing_fields(row))} is missing")
        if value is not None:
            values.append(proxy.oriented(value))
            used.append(row)
    if len(used) < MIN_PAIRS:
        because = reason or f"rows have neither an architecture nor a column {proxy.name} ({lacking[0]})"
        raise InvalidInput(
            f"{proxy.name} has a value for {len(used)} of {len(numbered)} models: {because}",
            field="proxy",
            value=proxy.name,
            allowed=f"a table with an architecture or a column {proxy.name} in each row",
        )
    truth = [quality.oriented(number_in(row, quality.column) or 0.0) for row in used]
    return ProxyRanking(
        proxy=proxy.name,
        from_column=from_column,
        flops=float(np.mean(costs)) if costs else None,
        models=len(used),
        slices=slices_of(truth, values),
        d_avg=_distance(used, quality, values, latency),
    )


def _distance(rows: Sequence[Row], quality: Quality, values: Sequence[float], latency: str | None) -> float | None:
    if latency is None:
        return None
    kept = [
        (number_in(row, quality.column), number_in(row, latency), value)
        for row, value in zip(rows, values, strict=True)
        if number_in(row, latency) is not None
    ]
    if not kept:
        raise InvalidInput(
            f"no row has a number in {latency}", field="latency", value=latency, allowed="a column of latencies"
        )
    columns = np.array(kept, dtype=np.float64)
    return d_avg(columns[:, 0], columns[:, 1], columns[:, 2], higher_is_better=quality.higher_is_better)


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else value


def _frontier(gain: NDArray[np.float64], latency: NDArray[np.float64]) -> NDArray[np.intp]:
    """Returns indices of non-dominated points (high gain, low latency) by rising latency; the first of equal points."""
    order = np.lexsort((-gain, latency))
    kept, highest = [], -np.inf
    for index in order:
        if gain[index] > highest:
            kept.append(index)
            highest = gain[index]
    return np.array(kept, dtype=np.intp)


def _upper_hull(
    gain: NDArray[np.float64], latency: NDArray[np.float64], frontier: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Returns the points of `frontier`, sorted by rising latency, that lie on the upper convex hull."""
    kept: list[Any] = []
    for index in frontier:
        while len(kept) > 1:
            a, b = kept[-2:]
            rise = (gain[b] - gain[a]) * (latency[index] - latency[a])
            if rise >= (gain[index] - gain[a]) * (latency[b] - latency[a]):
                break
            kept.pop()  # b lies under the line from a to this one
        kept.append(index)
    return np.array(kept, dtype=np.intp)

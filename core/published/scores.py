"""Scores by name, and which published models a filter lets through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edgefront.core.errors import InvalidInput
from edgefront.core.published.rows import PublishedModel
from edgefront.core.validation import existing

PERMISSIVE = "permissive"
PERMISSIVE_LICENCES = frozenset({"apache-2.0", "mit", "bsd-3-clause", "cc-by-4.0", "cc0-1.0"})
"""Licences that permit use, change and sale with no condition but naming the authors."""
_LOWER_IS_BETTER = ":ppl"
"""Ending of the benchmarks that are perplexities."""


@dataclass(frozen=True)
class ScoreName:
    """One benchmark of one table of scores."""

    table: str
    benchmark: str

    def __str__(self) -> str:
        return f"{self.table}:{self.benchmark}"

    def of(self, model: PublishedModel) -> float | None:
        """The model's score, of the weights as they were published; None where the table has none."""
        for score in model.scores:
            if score.table == self.table and score.weight_format is None and self.benchmark in score.values:
                return score.values[self.benchmark]
        return None


def score_named(text: str, models: Mapping[str, PublishedModel]) -> ScoreName:
    """The score that `TABLE:BENCHMARK` names; the benchmark may be cut short where one alone begins so.

    Raises `InvalidInput` that names `score` and lists the tables, or the benchmarks of the table.
    """
    table, _, benchmark = text.partition(":")
    benchmarks = _benchmarks(models.values())
    if table not in benchmarks:
        raise InvalidInput(
            f"no table of scores {table!r}; {existing(table, benchmarks, 'edgefront model list --published --json')}",
            field="score",
            value=text,
            allowed=", ".join(benchmarks),
        )
    names = benchmarks[table]
    chosen = [name for name in names if name == benchmark] or [name for name in names if name.startswith(benchmark)]
    if len(chosen) != 1 or not benchmark:
        listed = ", ".join(chosen if benchmark and chosen else names)
        what = f"{benchmark!r} is none of" if benchmark and not chosen else "name one of"
        raise InvalidInput(
            f"the table {table} has several scores: {what} {listed}", field="score", value=text, allowed=listed
        )
    if chosen[0].endswith(_LOWER_IS_BETTER):
        raise InvalidInput(
            f"{table}:{chosen[0]} is better where it is lower: a search takes scores that are better where higher",
            field="score",
            value=text,
            allowed=", ".join(name for name in names if not name.endswith(_LOWER_IS_BETTER)),
        )
    return ScoreName(table, chosen[0])


def _benchmarks(models: Iterable[PublishedModel]) -> dict[str, list[str]]:
    """Table → the benchmarks of which it has scores, in the order in which they occur."""
    found: dict[str, dict[str, None]] = {}
    for model in models:
        for score in model.scores:
            found.setdefault(score.table, {}).update(dict.fromkeys(score.values))
    return {table: list(names) for table, names in sorted(found.items())}


def is_permitted(model: PublishedModel, licence: str) -> bool:
    """Whether a model has this licence, or a permissive one where that is asked for. An unknown one is neither."""
    if model.licence is None:
        return False
    if licence == PERMISSIVE:
        return model.licence.lower() in PERMISSIVE_LICENCES
    return model.licence.lower() == licence.lower()

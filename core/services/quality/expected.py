"""What perplexity a quality law expects of architectures, as views and rows hold it, and on which data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.shipped import NAMES, family, law_for, law_named, shipped_laws
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.store.sql import Document
from edgefront.core.wire.jobs import JobRequest


def perplexities(law: QualityLaw | None, architectures: Sequence[Architecture]) -> list[Document]:
    """Of each the fields of `core.wire.jobs.PredictedView` that are about quality; empty without a law."""
    if law is None or not architectures:
        return [{} for _ in architectures]
    found = law.predict(Shapes.of(architectures))
    columns = zip(found.perplexity, found.low, found.high, found.beyond, strict=True)
    return [
        {
            "perplexity": float(median),
            "perplexity_low": float(low),
            "perplexity_high": float(high),
            "extrapolated": bool(beyond > 0),
            "law": law.origin.name,
        }
        for median, low, high, beyond in columns
    ]


def perplexity_of(laws: Iterable[str | None], refined: QualityLaw | None = None) -> str:
    """What predictions by the laws of these names are the perplexity of, and how long trained. `refined`: the law of a
    job that does not come along."""
    names = set(laws)
    known = [*shipped_laws().values(), *([] if refined is None else [refined])]
    origins = [law.origin for law in known if law.origin.name in names]
    return "; ".join(
        f"{one.data}, {one.split} split, per {one.tokens}; trained {one.trained}; law {one.name}" for one in origins
    )


def law_note(request: JobRequest, datasets: Iterable[str] = (), refined: QualityLaw | None = None) -> str:
    """What a person should know where the law of a job's predictions is of other data or models than the job's.

    `datasets` are names of those that its models were trained on, beside the one that its proxy settings name;
    `refined` as in `perplexity_of`. Empty where all agree, and where no law is about the job's space.
    """
    space = spaces().get(request.space.name)
    law = None if space is None else refined or _law_of(request, space)
    if space is None or law is None:
        return ""
    origin = law.origin
    notes = []
    named = {request.proxy_settings.get("data"), *datasets}
    others = sorted(str(one) for one in named if one is not None and not _is_of(origin.data, str(one)))
    if others:
        notes.append(
            f"Predicted perplexity is that of models trained on {origin.data} (law {origin.name}), not on "
            f"{', '.join(others)}: compare predictions with each other, not with what is reached there."
        )
    (stock,) = space.baselines([1])
    if "blocks" in law.beyond(Shapes.of([stock]))[0]:
        notes.append(
            f"The law {origin.name} was learnt from models without the blocks of {space.name}: its perplexities are "
            "extrapolated, until trainings of such models refine it."
        )
    if origin.family not in ("", family(stock)):
        notes.append(
            f"The law {origin.name} was learnt from models of the family {origin.family}, which those of {space.name} "
            "are not."
        )
    return " ".join(notes)


def _law_of(request: JobRequest, space: SearchSpace) -> QualityLaw | None:
    named = request.proxy_settings.get("law")
    return law_named(named) if request.proxy == "quality_law" and named in NAMES else law_for(space)


def _is_of(data: str, dataset: str) -> bool:
    """Whether a data set has the name of a law's data, as `wikitext-103-bpe` has that of WikiText-103."""
    wanted, name = (re.sub(r"[^a-z0-9]", "", one.lower()) for one in (data, dataset))
    return wanted == "notstated" or name.startswith(wanted)

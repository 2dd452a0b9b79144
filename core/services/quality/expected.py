"""What perplexity a quality law expects of architectures, as views and rows hold it, and on which data."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from edgefront.core.cost.shapes import Shapes
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.shipped import family, shipped_laws
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import spaces
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


def perplexity_of(names: Iterable[str | None], law: QualityLaw | None = None) -> str:
    """What predictions by the laws of these names are the perplexity of, and how long trained. `law` is the job's,
    which need not come along.
    """
    wanted = set(names)
    known = dict(shipped_laws()) | ({} if law is None else {law.origin.name: law})
    origins = [known[name].origin for name in known if name in wanted]
    return "; ".join(
        f"{origin.data}, {origin.split} split, per {origin.tokens}; trained {origin.trained}; law {origin.name}"
        for origin in origins
    )


def law_note(request: JobRequest, law: QualityLaw | None, datasets: Iterable[str] = ()) -> str:
    """What a person should know where the law of a job's predictions is of other data or models than the job's.

    `datasets` are names of those that its models were trained on, beside the one that its proxy settings name. Empty
    where all agree, and where no law is about the job's space.
    """
    space = spaces().get(request.space.name)
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


def _is_of(data: str, dataset: str) -> bool:
    """Whether a data set has the name of a law's data, as `wikitext-103-bpe` has that of WikiText-103."""
    wanted, name = (re.sub(r"[^a-z0-9]", "", one.lower()) for one in (data, dataset))
    return wanted == "notstated" or name.startswith(wanted)

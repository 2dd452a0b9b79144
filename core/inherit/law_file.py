"""`cuts.safetensors` beside a model's weights: the study of its cuts.

Its tensors are the importance of channels and units (`core.inherit.importance`); its metadata has the quality law of
the model's parts (`core.quality.cut_law`) and the SHA-256 of the weights that it is about. Reading the law needs no
torch.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open

from edgefront.core.errors import InvalidInput
from edgefront.core.evaluation.package import CUTS
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.quality.stored import from_json

FORMAT = "edgefront-cuts"
MAX_LAW_CHARACTERS = 16 << 20
"""Of the law as text; one of 1,000 combinations of 60 blocks has about 3.5 million."""


def read_law(folder: Path) -> CutLaw | None:
    """The law of the study beside a model's weights; None where there is none. `InvalidInput` where it is damaged."""
    path = folder / CUTS
    return law_in(path)[0] if path.is_file() else None


def law_in(path: Path) -> tuple[CutLaw, str]:
    """The law of a study, and the SHA-256 of the weights that it is about."""
    try:
        with safe_open(path, framework="np") as file:
            about = dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise wrong(path, f"cannot be read: {error}") from None
    if about.get("format") != FORMAT or not {"law", "weights"} <= about.keys():
        raise wrong(path, "is no study of cuts")
    if len(about["law"]) > MAX_LAW_CHARACTERS:
        raise wrong(path, f"has a law of {len(about['law']):,} characters, and at most {MAX_LAW_CHARACTERS:,} may be")
    law = from_json(about["law"])
    if not isinstance(law, CutLaw):
        raise wrong(path, f"has the law {law.origin.name}, which is not about cuts")
    return law, about["weights"]


def wrong(path: Path, what: str) -> InvalidInput:
    """What the file is not."""
    return InvalidInput(
        f"{path.name} {what}", field="cuts", value=path.name, allowed="a file that edgefront inherit study wrote"
    )

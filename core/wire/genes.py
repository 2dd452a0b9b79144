"""The candidates of a target as columns: genes, objectives, and how much each gene decides."""

from __future__ import annotations

from typing import Literal

from edgefront.core.wire.agent import Identifier
from edgefront.core.wire.messages import View

ObjectiveName = Literal["perplexity", "proxy", "latency", "memory", "first_token", "token"]


class ImportanceView(View):
    """Importance of one gene for one objective."""

    objective: ObjectiveName
    share: float
    """Share in the importance of all genes for the objective, 0 to 1."""
    correlation: float
    """Spearman's ρ: above 0 where more of the gene goes with more of the objective."""


class GeneView(View):
    """One column: a number for each candidate."""

    name: str
    title: str
    values: tuple[float, ...]
    words: tuple[str, ...] = ()
    """What 0, 1, … stand for, of a gene whose values are words."""
    importance: tuple[ImportanceView, ...] = ()
    """Empty where it is not known."""


class ObjectiveView(View):
    """One column: what was measured or predicted of each candidate; None where nothing was."""

    name: ObjectiveName
    title: str
    unit: str
    values: tuple[float | None, ...]
    low_is_better: bool
    explained: float | None = None
    """R² on candidates that were left out, of the fit by which importance is judged: how far it can be trusted."""


class GenesView(View):
    """Measured candidates of a target, without baselines, in the order in which they were proposed.

    Of many candidates an even spread is given, with the whole frontier: `measured` says of how many.
    """

    job_id: Identifier
    target_id: Identifier
    target: str
    measured: int
    ids: tuple[Identifier, ...]
    numbers: tuple[int, ...]
    on_frontier: tuple[bool, ...]
    out_of_bounds: tuple[bool, ...]
    objectives: tuple[ObjectiveView, ...]
    genes: tuple[GeneView, ...]
    """Those in which the candidates differ. One per layer is its mean over the layers, or the share of a word."""
    note: str
    """How importance was judged, or why it is not known."""

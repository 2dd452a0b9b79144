"""How much each gene decides: permutation importance of a random forest (Breiman 2001, section 10).

A forest learns the objectives from the genes of two thirds of the candidates. On the other third one gene after
another is shuffled among the candidates: by how much the error grows is what the forest owes to that gene. Each third
is left out once. Genes that vary together share their importance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MIN_CANDIDATES = 24
"""Fewer candidates say too little."""
_TREES = 40
_FOLDS = 3
_SHUFFLES = 3


@dataclass(frozen=True)
class Importance:
    """Importance of p genes for m objectives."""

    shares: Floats
    """(p, m) of the importance of all genes for an objective; columns sum to 1, or to 0 where nothing was learnt."""
    correlations: Floats
    """(p, m) Spearman's rank correlations: above 0 where more of the gene goes with more of the objective."""
    explained: Floats
    """(m,) R² on candidates that were left out: how far the shares can be trusted."""


def importance(genes: Floats, objectives: Floats) -> Importance | None:
    """`genes` (n, p) and `objectives` (n, m), each of these with more than one value; None
    for n below `MIN_CANDIDATES`.
    """
    if len(genes) < MIN_CANDIDATES:
        return None
    from sklearn.ensemble import RandomForestRegressor  # here: only who asks waits for it to load

    targets = np.where(objectives.min(axis=0) > 0, np.log(np.maximum(objectives, 1e-300)), objectives)
    targets = (targets - targets.mean(axis=0)) / targets.std(axis=0)
    rng = np.random.default_rng(0)
    folds = np.array_split(rng.permutation(len(genes)), _FOLDS)
    errors = np.zeros(targets.shape[1])
    growth = np.zeros((genes.shape[1], targets.shape[1]))
    for held in folds:
        learnt = np.setdiff1d(np.arange(len(genes)), held)
        forest = RandomForestRegressor(_TREES, min_samples_leaf=3, random_state=0)
        forest.fit(genes[learnt], targets[learnt] if targets.shape[1] > 1 else targets[learnt, 0])
        error = _error(forest.predict(genes[held]), targets[held])
        errors += error / _FOLDS
        # All shuffled copies at once: (gene, shuffle, candidate, gene).
        copies = np.tile(genes[held], (genes.shape[1], _SHUFFLES, 1, 1))
        for gene, shuffle in np.ndindex(genes.shape[1], _SHUFFLES):
            rng.shuffle(copies[gene, shuffle, :, gene])
        predicted = forest.predict(copies.reshape(-1, genes.shape[1])).reshape(*copies.shape[:3], -1)
        growth += (((predicted - targets[held]) ** 2).mean(axis=(1, 2)) - error) / _FOLDS
    growth = np.maximum(growth, 0.0)
    total = growth.sum(axis=0)
    return Importance(
        shares=growth / np.where(total > 0, total, 1.0),
        correlations=_rank_correlations(genes, targets),
        explained=np.maximum(0.0, 1.0 - errors),
    )


def _error(predicted: Floats, targets: Floats) -> Floats:
    """(m,) mean squared errors."""
    return np.asarray(((predicted.reshape(targets.shape) - targets) ** 2).mean(axis=0))


def _rank_correlations(genes: Floats, objectives: Floats) -> Floats:
    from scipy.stats import rankdata

    ranks = [rankdata(table, axis=0) for table in (genes, objectives)]
    a, b = ((rank - rank.mean(axis=0)) / rank.std(axis=0) for rank in ranks)
    return np.asarray(a.T @ b / len(genes))

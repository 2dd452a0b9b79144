"""The competing searches in `bench_find.py`: Optuna's samplers and BoTorch, used as documented.

Each gets a `Session` with launched baselines, and launches until the budget is used up. Predicted quality is free:
BoTorch uses it as the objective and models only latency and memory; Optuna launches only proposals that would beat the
best model so far.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from find_devices import Task

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.operators.base import NO_BLOCK, Codes
from edgefront.core.measurement.prediction.features import features
from edgefront.core.search.population_shapes import PopulationShapes, identity

INITIAL = 10
"""Launches, including baselines, before a model of the device is used: the default of both Optuna samplers."""
PROPOSALS = {"optuna-tpe": 24, "optuna-gp": 2}
"""Maximum number of proposals per launch of Optuna; the Gaussian process takes seconds for each."""
POOL, ROUNDS, PARENTS = 2000, 3, 50
"""Number of samples, then of children of the best sample in each further round, over which BoTorch's acquisition is
maximised.
"""
FIT_STEPS = 100
"""Maximum iterations of L-BFGS for BoTorch's Gaussian processes, which are fitted anew for each launch."""

Description = Callable[["Session", Codes], np.ndarray]


class Spent(Exception):
    """Raised when all launches have been made."""


@dataclass(frozen=True)
class Launched:
    """One launch: a coded genome and its latency and memory."""

    codes: Codes
    quality: float
    latency_ms: float
    memory_bytes: float
    within: bool


@dataclass
class Session:
    """The launches of one search in one task, its baselines first; equal seeds give every search the same baselines."""

    task: Task
    seed: int
    launches: int
    made: list[Launched] = field(default_factory=list)
    curve: list[float] = field(default_factory=list)
    """The best quality within the limits after each launch; -∞ before a launch is within the limits."""

    def __post_init__(self) -> None:
        self.device, self.space = self.task.device, self.task.device.space
        self.operators, self.shapes = self.space.operators, PopulationShapes(self.space)
        self.rng = np.random.default_rng(self.seed)
        self._keys: set[int] = set()
        for codes in self.operators.encode([genome_of(stock, self.space.depth) for stock in self.baselines]):
            self.launch(codes)

    @property
    def baselines(self) -> tuple[Architecture, ...]:
        return self.space.baselines(self.device.depths)

    @property
    def best(self) -> float:
        return self.curve[-1] if self.curve else -np.inf

    def quality(self, codes: Codes) -> np.ndarray:
        """Returns the predicted quality (n,), which needs no launch."""
        return self.device.score(self.shapes(codes))

    def fresh(self, codes: Codes) -> Codes:
        """Returns the distinct architectures that have not been launched."""
        keys, first = np.unique(identity(self.shapes(codes)), return_index=True)
        return codes[np.sort(first[~np.isin(keys, list(self._keys))])]

    def launch(self, codes: Codes) -> Launched:
        if len(self.made) >= self.launches:
            raise Spent
        shapes = self.shapes(codes[None])
        self._keys.add(int(identity(shapes)[0]))
        quality = float(self.device.score(shapes)[0])
        latency, memory = self.device.launch(shapes, self.seed)
        launched = Launched(codes, quality, latency, memory, self.task.within(latency, memory))
        self.made.append(launched)
        self.curve.append(max(self.best, quality if launched.within else -np.inf))
        return launched

    def violations(self, launched: Launched) -> tuple[float, float]:
        """Returns the logarithms of latency and memory as shares of their limits; positive values exceed the limit."""
        problem = self.task.problem
        return (
            float(np.log(launched.latency_ms / problem.latency_ms)),
            float(np.log(launched.memory_bytes / problem.memory_bytes)),
        )


def genome_of(stock: Architecture, depth: int) -> dict[str, object]:
    """Returns the genome of a stock (default) model."""
    layer = {"n_head": stock.blocks[0].n_head, "d_inner": stock.blocks[1].d_inner}
    whole = {
        "n_layer": len(stock.blocks) // 2,
        "d_model": stock.d_model,
        "d_embed": "d_model",
        "div": stock.embedding.div,
    }
    return {**whole, **{name: [width] * depth for name, width in layer.items()}}


# Optuna -------------------------------------------------------------------------------------------------------------


def optuna(name: str, session: Session) -> None:
    """Runs Optuna's sampler over the positions of a genome, with the limits as constraints.

    A position is a real number that is rounded down, because `optuna-gp` takes five times as long to propose integers.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    operators = session.operators
    limits = {
        f"{gene}.{column}": len(operators.genes[gene].values) - 1
        for gene, columns in operators.columns.items()
        for column in range(columns.start, columns.stop)
        if len(operators.genes[gene].values) > 1
    }
    places = [int(place.split(".")[1]) for place in limits]

    kind = optuna.samplers.TPESampler if name == "optuna-tpe" else optuna.samplers.GPSampler
    options = {"multivariate": True} if name == "optuna-tpe" else {}
    sampler = kind(seed=session.seed, n_startup_trials=INITIAL, **options)
    study = optuna.create_study(direction="maximize", sampler=sampler)

    def propose() -> tuple[optuna.trial.Trial, Codes]:
        trial = study.ask()
        codes = np.zeros((1, operators.n_columns), dtype=np.int16)
        codes[0, places] = [min(most, int(trial.suggest_float(place, 0, most + 1))) for place, most in limits.items()]
        return trial, operators.repair(codes)[0]

    def tell(trial: optuna.trial.Trial, launched: Launched) -> None:
        for limited, violation in zip(("latency", "memory"), session.violations(launched), strict=True):
            trial.set_constraint(limited, violation)
        study.tell(trial, launched.quality)

    for stock in session.made:
        study.enqueue_trial({place: stock.codes[column] + 0.5 for place, column in zip(limits, places, strict=True)})
        tell(propose()[0], stock)
    while True:
        proposals = []
        for _ in range(PROPOSALS[name]):
            trial, codes = propose()
            proposals.append((float(session.quality(codes[None])[0]), trial, codes))
            if proposals[-1][0] > session.best:
                break
        best = max(range(len(proposals)), key=lambda number: proposals[number][0])
        for number, (_, trial, codes) in enumerate(proposals):
            if number == best:
                tell(trial, session.launch(codes))
            else:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)


# BoTorch ------------------------------------------------------------------------------------------------------------


def botorch(name: str, session: Session) -> None:
    """Runs constrained expected improvement, with one Gaussian process each for latency and memory, and known quality.

    `botorch` describes an architecture by its genome, `botorch-costs` by the logarithms of the counts of its work that
    edgefront's own predictor sums.
    """
    describe = _genes if name == "botorch" else _costs
    while len(session.made) < INITIAL:
        session.launch(session.fresh(session.operators.sample(POOL, session.rng))[0])
    while True:
        session.launch(_best_of_pool(session, describe))


def _genes(session: Session, codes: Codes) -> np.ndarray:
    """Returns the codes of the genes, scaled from 0 to 1, (n, positions); 0 for unused layers."""
    operators = session.operators
    described = np.zeros(codes.shape)
    layers = operators.block_numbers(codes).reshape(len(codes), operators.depth, 2)[:, :, 0] != NO_BLOCK
    for name, columns in operators.columns.items():
        gene = operators.genes[name]
        there = layers if gene.per_layer else 1.0
        described[:, columns] = (codes[:, columns] + 1) / len(gene.values) * there
    return described


def _costs(session: Session, codes: Codes) -> np.ndarray:
    """Returns the logarithms of the counts of work of each architecture, (n, features)."""
    return np.log1p(features(session.shapes(codes), session.device.protocol))


def _best_of_pool(session: Session, describe: Description) -> Codes:
    import torch
    from botorch.acquisition.logei import qLogExpectedImprovement
    from botorch.acquisition.objective import GenericMCObjective
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import ModelListGP, SingleTaskGP
    from botorch.models.transforms import Normalize, Standardize
    from botorch.models.transforms.input import ChainedInputTransform, FilterFeatures
    from botorch.sampling import SobolQMCNormalSampler
    from gpytorch.mlls import SumMarginalLogLikelihood

    torch.manual_seed(session.seed)
    known = np.array([launched.codes for launched in session.made])
    described = describe(session, known)
    varying = np.flatnonzero(described.std(axis=0) > 0)

    def inputs(codes: Codes) -> torch.Tensor:
        """Returns the features of the codes; the final column, their quality, is hidden from the Gaussian processes."""
        return torch.tensor(np.column_stack([describe(session, codes)[:, varying], session.quality(codes)]))

    seen = inputs(known)
    outcomes = torch.tensor([session.violations(launched) for launched in session.made], dtype=torch.float64)

    def quality(samples: torch.Tensor, X: torch.Tensor) -> torch.Tensor:  # noqa: N803  BoTorch passes it by name
        return X[..., -1].expand(samples.shape[:-1])

    models = []
    for column in range(2):
        transform = ChainedInputTransform(
            described=FilterFeatures(torch.arange(len(varying))), normalised=Normalize(len(varying))
        )
        models.append(
            SingleTaskGP(
                seen, outcomes[:, column : column + 1], input_transform=transform, outcome_transform=Standardize(1)
            )
        )
    model = ModelListGP(*models)
    fit_gpytorch_mll(
        SumMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": FIT_STEPS}}
    )
    reached = session.best if np.isfinite(session.best) else float(seen[:, -1].min())
    acquisition = qLogExpectedImprovement(
        model,
        best_f=reached,
        sampler=SobolQMCNormalSampler(torch.Size([128]), seed=session.seed),
        objective=GenericMCObjective(quality),
        constraints=[lambda samples, column=column: samples[..., column] for column in range(2)],
    )
    operators, rng = session.operators, session.rng
    pool = np.concatenate(
        [known, operators.sample(POOL, rng), operators.mutate(np.repeat(known, 20, axis=0), rng, 0.1)]
    )
    best = pool[:0]
    for _ in range(ROUNDS):
        pool = session.fresh(np.concatenate([best, pool]))
        pool = pool[session.quality(pool) > reached] if (session.quality(pool) > reached).any() else pool
        with torch.no_grad():
            values = np.concatenate([part.numpy() for part in map(acquisition, inputs(pool)[:, None].split(1000))])
        best = pool[np.argsort(-values, kind="stable")[:PARENTS]]
        mates = best[rng.permutation(len(best))]
        repeats = -(-POOL // len(best))
        children = operators.cross(np.repeat(best, repeats, axis=0), np.repeat(mates, repeats, axis=0), rng, 0.2)
        pool = operators.mutate(children, rng, operators.probabilities(len(children), rng, 0.3))
    return best[0]

"""Pruning studies: measures how pruning a trained model raises the loss, and stores the result beside the weights."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import count, parameters
from edgefront.core.common.canonical import digest
from edgefront.core.common.errors import Conflict, InvalidInput, NotFound
from edgefront.core.common.files import sha256, whole_file
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.data.tokenizers.load import same_tokens
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.quality.pruning_predictor import PruningPredictor, pruning_origin
from edgefront.core.quality.pruning_table import cannot_be_cut
from edgefront.core.quality.shipped import family
from edgefront.core.quality.stored import MAX_LOG_PERPLEXITY, to_text
from edgefront.core.training.evaluation.model_card import forbids_derivatives
from edgefront.core.training.evaluation.package import CUTS, WEIGHTS, Package, read_package, write_new_package
from edgefront.core.training.pruning.importance import Importance, importance_of
from edgefront.core.training.pruning.prune import (
    CUTS_EVERY,
    SHARES,
    WIDTHS,
    EvaluationText,
    PruningEvaluator,
    pass_work,
    prune_weights,
)
from edgefront.core.training.pruning.study_file import FORMAT, damaged_study, read_study_file
from edgefront.core.training.pruning.submodel import pruning_summary

MIN_ROWS = 2
"""Minimum number of rows of a text."""
PARTIAL = "cuts.partial.safetensors"
"""Name of the file with the results of an interrupted study, beside the weights."""
Progress = Callable[[float, float], None]
"""Callback that receives finished and total work (`study_work`). An error of the callback ends the study."""


@dataclass(frozen=True)
class PruningStudySettings:
    """Settings of a pruning study: amount of text and number of submodels."""

    calibration_tokens: int = 16_384
    """Number of tokens of the training split on which importance is computed."""
    tokens: int = 2_048
    """Number of tokens of the validation split on which losses are computed."""
    segment: int = 128
    """Number of tokens of a row."""
    combinations: int = 24
    """Number of random submodels that are evaluated."""
    seed: int = 0


QUICK = PruningStudySettings(calibration_tokens=4_096, tokens=512, combinations=12)
"""Settings of a study in about a fifth of the time, with wider intervals."""


def study_work(architecture: Architecture, settings: PruningStudySettings) -> float:
    """Approximate work of a study, in the unit of `prune.pass_work`."""
    importance = settings.calibration_tokens * count(architecture).decoder
    cuts = len(architecture.blocks) * (1 + len(SHARES)) * pass_work(architecture, settings.tokens // CUTS_EVERY, 0.5)
    children = (len(WIDTHS) + settings.combinations) * pass_work(architecture, settings.tokens, 0.5)
    return importance + cuts + children


@dataclass(frozen=True, eq=False)
class PruningStudy:
    """Importance of one model's units, and a scaling law that predicts the perplexity of the model's submodels."""

    importance: Importance
    law: PruningPredictor
    weights: str
    """SHA-256 of the model's weights file."""


def study_pruning(
    package: Package,
    data: Prepared,
    name: str,
    settings: PruningStudySettings = PruningStudySettings(),
    *,
    device: torch.device | str = "cpu",
    begin: Callable[[float, bool], None] = lambda *_: None,
    progress: Progress = lambda *_: None,
) -> PruningStudy:
    """Studies the pruning of a trained model, called `name`, on data with the same tokenizer.

    An interrupted study resumes if it is repeated with the same model, data and settings. `begin` receives the seconds
    that a unit of work takes here (`study_work`), and whether the study resumes. Raises `InvalidInput` for a model that
    cannot be pruned, data with another tokenizer, a text that is too short, and a model that has not learnt the text.
    """
    architecture, torch_device = package.architecture, torch.device(device)
    if (what := cannot_be_cut(architecture)) is not None:
        raise InvalidInput(
            f"the model has {what}, which cannot be pruned",
            field="model",
            value=architecture.digest,
            allowed="a decoder of attention, feed_forward and short_conv blocks, one after the other",
        )
    if not same_tokens(package.folder, data.folder):
        raise InvalidInput(
            f"data: {data.name} was prepared with another tokenizer than the model's",
            field="data",
            value=data.name,
            allowed=f"data prepared with {package.folder / 'tokenizer.json'} (edgefront data prepare --vocabulary)",
        )
    segment = min(settings.segment, architecture.max_length or settings.segment)
    model = package.model(torch_device)
    calibration = rows_of(data, "train", settings.calibration_tokens, segment)
    text = EvaluationText(rows_of(data, "valid", settings.tokens, segment), torch_device)
    started = time.monotonic()
    parent_loss = text.loss(model)
    pace = (time.monotonic() - started) / pass_work(architecture, text.count)
    if not parent_loss <= MAX_LOG_PERPLEXITY:
        raise InvalidInput(
            f"the model's loss on {data.name} is {parent_loss:g} nats per token, so that it has not learnt this text",
            field="model",
            value=architecture.digest,
            allowed=f"a trained model, with a loss of at most {MAX_LOG_PERPLEXITY:g}",
        )
    weights = sha256(package.folder / WEIGHTS)
    identity = digest({"weights": weights, "data": data.digest, **vars(settings)})
    read = replace(settings, calibration_tokens=calibration[:, 1:].numel(), tokens=text.count)
    journal = _Journal(package.folder / PARTIAL, identity, study_work(architecture, read), progress)
    begin(pace, journal.importance is not None)

    def counted() -> Iterator[Tensor]:
        for batch in calibration[:, :-1].split(text.batch):
            yield batch
            journal.advance(batch.numel() * count(architecture).decoder)

    importance = journal.importance
    if importance is None:
        importance = journal.importance = importance_of(model, counted(), torch_device)
    else:
        journal.advance(read.calibration_tokens * count(architecture).decoder)
    evaluator = PruningEvaluator(model, importance, text, parent_loss, journal)
    table = evaluator.table()
    children, losses = evaluator.combinations(table, settings.combinations, settings.seed)
    if not children:
        raise InvalidInput(
            "the model is too small to be pruned",
            field="model",
            value=architecture.digest,
            allowed="a model with several blocks, heads or inner units",
        )
    law = PruningPredictor(
        origin=pruning_origin(
            f"cuts-{identity[:12]}",
            name,
            data.name,
            "valid",
            f"token of {architecture.embedding.vocab_size:,}",
            family(architecture) or "",
        ),
        table=table,
        parent_log_perplexity=parent_loss,
        architectures=children,
        log_perplexity=losses,
    )
    return PruningStudy(evaluator.importance, law, weights)


class _Journal:
    """Records results in a file, from which an interrupted study resumes, and reports the progress."""

    def __init__(self, path: Path, identity: str, total: float, progress: Progress) -> None:
        self._path, self._identity, self._total, self._progress = path, identity, total, progress
        self.importance: Importance | None = None
        self._results: list[list[float]] = []
        self._used, self._done = 0, 0.0
        with suppress(OSError, SafetensorError), safe_open(path, framework="pt") as file:
            if file.metadata().get("study") == identity:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
                self.importance = Importance.of_tensors(tensors, tensors["influence"].tolist())
                self._results = json.loads(file.metadata()["results"])

    def __call__(self, work: float, evaluation: Callable[[], list[float]]) -> list[float]:
        """Returns the next result: the recorded one, or that of the evaluation."""
        if self._used == len(self._results):
            self._results.append(evaluation())
            self._write()
        self._used += 1
        self.advance(work)
        return self._results[self._used - 1]

    def advance(self, work: float) -> None:
        self._done += work
        self._progress(min(self._done, self._total), self._total)

    def _write(self) -> None:
        assert self.importance is not None
        influence = torch.tensor(self.importance.influence, dtype=torch.float64)
        metadata = {"study": self._identity, "results": json.dumps(self._results)}
        with whole_file(self._path) as file:
            file.write(save({**self.importance.tensors(), "influence": influence}, metadata))


def rows_of(data: Prepared, split: str, tokens: int, segment: int) -> Tensor:
    """Returns n rows with about `tokens` predictions, spread evenly over the split: int64 [n, segment + 1]."""
    text = data.split(split).tokens
    possible = (len(text) - 1) // segment
    count = min(max(MIN_ROWS, -(-tokens // segment)), possible)
    if count < MIN_ROWS:
        raise InvalidInput(
            f"data: the {split} split of {data.name} has {len(text)} tokens, too few for {MIN_ROWS} rows of {segment}",
            field="data",
            value=data.name,
            allowed=f"at least {MIN_ROWS * segment + 1} tokens",
        )
    starts = np.linspace(0, possible - 1, count).astype(np.int64) * segment
    return torch.from_numpy(np.stack([text[start : start + segment + 1].astype(np.int64) for start in starts]))


# The file -------------------------------------------------------------------------------------------------------------


def write_pruning_study(study: PruningStudy, folder: Path) -> Path:
    """Writes the study beside the model's weights; the file appears only when it is complete."""
    metadata = {"format": FORMAT, "weights": study.weights, "law": to_text(study.law)}
    path = folder / CUTS
    with whole_file(path) as file:
        file.write(save(study.importance.tensors(), metadata))
    (folder / PARTIAL).unlink(missing_ok=True)
    return path


def read_pruning_study(folder: Path) -> PruningStudy:
    """Reads the pruning study beside a model's weights.

    Raises `NotFound` without a study, `InvalidInput` for a damaged study or a study of other weights.
    """
    path = folder / CUTS
    if not path.is_file():
        raise NotFound(
            f"{folder} has no pruning study ({CUTS}); create one first",
            allowed="edgefront inherit study FOLDER --data DATA",
        )
    law, studied = read_study_file(path)
    stored = sha256(folder / WEIGHTS)
    if studied != stored:
        raise damaged_study(path, f"is about weights {studied[:12]}, but {WEIGHTS} in the same folder is {stored[:12]}")
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    importance = Importance.of_tensors(tensors, [cuts.influence for cuts in law.table.blocks])
    return PruningStudy(importance, law, stored)


def load_pruned(weights: Path, child: Architecture) -> dict[str, Tensor]:
    """Returns the initial tensors of a submodel, from the parent's weights file and the study in the same folder.

    Raises `InvalidInput` if the child is not a submodel (the error names the tensor or field), `NotFound` without a
    pruning study.
    """
    study = read_pruning_study(weights.parent)
    model = load_safetensors(weights)
    if model.architecture != study.law.parent:
        raise damaged_study(weights.parent / CUTS, f"is about architecture {study.law.parent.digest[:12]}")
    weights_by_name = {spec.name: model.get_parameter(spec.name).detach() for spec in parameters(model.architecture)}
    return prune_weights(weights_by_name, child, study.law.table, study.importance)


def write_submodel(parent: Package, child: Architecture, output: Path) -> Package:
    """Writes the submodel that `child` describes, with the parent's tokenizer and licence.

    `output` must not exist, and appears only when complete. Raises `InvalidInput` if the child is not a submodel or
    the licence forbids derivatives, `NotFound` without a pruning study of the parent.
    """
    licence = parent.facts.get("licence")
    if isinstance(licence, str) and forbids_derivatives(licence):
        raise InvalidInput(
            f"the model is under {licence}, which forbids derivatives",
            field="licence",
            value=licence,
            allowed="a model whose licence allows derivatives",
        )
    tokenizer, vocabulary = parent.tokenizer_if_any, child.embedding.vocab_size
    if tokenizer is not None and tokenizer.vocab_size > vocabulary:
        raise InvalidInput(
            f"the submodel has {vocabulary} tokens, but the tokenizer has {tokenizer.vocab_size}",
            field="embedding.vocab_size",
            value=vocabulary,
            allowed=f"at least {tokenizer.vocab_size}",
        )
    if output.exists():
        raise Conflict(f"{output} exists; choose a folder that does not exist")
    tensors = load_pruned(parent.folder / WEIGHTS, child)
    cut = pruning_summary(parent.architecture, child)
    name = str(parent.facts.get("name") or parent.folder.resolve().name)
    facts = {
        "name": f"part of {name}"[:100],
        "licence": licence,
        "parent": {
            "name": name,
            "licence": licence,
            "sha256": sha256(parent.folder / WEIGHTS),
            "digest": cut.pop("parent"),
        },
        "cut": cut,
    }
    write_new_package(
        output,
        child,
        {name: tensor.numpy() for name, tensor in tensors.items()},
        tokenizer,
        {key: value for key, value in facts.items() if value is not None},
    )
    return read_package(output)

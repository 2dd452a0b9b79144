"""Evaluation on zero- and few-shot tasks of EleutherAI's lm-evaluation-harness (requires the extra `eval`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.tasks import TaskManager

from edgefront.core.common.errors import InvalidInput
from edgefront.core.training.evaluation.generate import Sampling
from edgefront.core.training.evaluation.package import Package
from edgefront.core.training.evaluation.scoring import TextScorer

_MAX_TOKENS = 256
"""Default maximum number of generated tokens, as in the models of lm-evaluation-harness."""


class HarnessModel(LM):
    """Adapter from the package of a trained model to the interface `LM` of lm-evaluation-harness."""

    def __init__(self, package: Package, *, device: torch.device | str = "cpu", rows: int = 16) -> None:
        super().__init__()
        self.scorer = TextScorer(package, device=device, rows=rows)
        self.name = package.architecture.digest[:12]

    @property
    def tokenizer_name(self) -> str:
        """Key under which the harness caches requests."""
        return self.name

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Per (context, continuation): log-probability in nats, and whether greedy decoding gives the continuation."""
        return self.scorer.score([self.scorer.encoded(*request.args) for request in requests])

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Returns the log-probability in nats of the whole text of each request (text,)."""
        return [self.scorer.whole(request.args[0]) for request in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Returns the generated text of each request (context, settings); greedy unless `do_sample` is set."""
        texts = []
        for request in requests:
            context, settings = request.args
            until = settings.get("until") or []
            samples = settings.get("do_sample", False)
            sampling = Sampling(
                temperature=float(settings.get("temperature", 1.0)) if samples else 0.0,
                top_k=settings.get("top_k") if samples else None,
                top_p=settings.get("top_p") if samples else None,
            )
            until = [until] if isinstance(until, str) else [text for text in until if text]
            texts.append(self.scorer.write(context, int(settings.get("max_gen_toks", _MAX_TOKENS)), until, sampling))
        return texts


def evaluate_tasks(
    package: Package,
    tasks: Sequence[str],
    *,
    include: Path | None = None,
    shots: int | None = None,
    limit: int | None = None,
    device: torch.device | str = "cpu",
    rows: int = 16,
) -> dict[str, dict[str, Any]]:
    """Evaluates tasks. Returns each task's metrics and standard errors by name.

    Args:
        tasks: names of the harness's tasks (most download their data from the Hugging Face Hub), or of tasks in YAML
            files in `include`, whose data may be local.
        shots: number of solved examples before each question (few-shot); None: the task's default.
        limit: maximum number of questions of each task, from the first.

    Raises `InvalidInput` for an unknown task.
    """
    manager = TaskManager(include_path=None if include is None else str(include))
    unknown = [task for task in tasks if not manager.match_tasks([task])]
    if unknown or not tasks:
        raise InvalidInput(
            f"there is no task {unknown[0]!r}" if unknown else "no task was named",
            field="tasks",
            value=unknown[:1],
            allowed="names that `lm-eval ls tasks` lists, or names in YAML files of the included folder",
        )
    evaluated = simple_evaluate(
        HarnessModel(package, device=device, rows=rows),
        tasks=list(tasks),
        num_fewshot=shots,
        limit=limit,
        task_manager=manager,
        log_samples=False,
        bootstrap_iters=1000,
    )
    if evaluated is None:
        raise InvalidInput(f"the harness returned no results for {', '.join(tasks)}", field="tasks", value=list(tasks))
    return {
        task: {name.removesuffix(",none"): value for name, value in scores.items() if name != "alias"}
        for task, scores in evaluated["results"].items()
    }

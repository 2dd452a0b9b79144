"""`edgefront quality probe`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.commands.base import Identifies, Session, command
from edgefront.commands.options import PassLimitOptions, RecipeOptions

if TYPE_CHECKING:
    from edgefront.core.wire.probes import ProbeView

_PANELS = {
    "Answer": "job target max_latency_ms max_memory_mb",
    "Trainings": "trainings data recipe setting steps tokens licence seed",
}


def add_to(app: typer.Typer) -> None:
    command(app, "probe", panels=_PANELS)(probe)


def probe(
    session: Session,
    job: Annotated[
        str,
        typer.Option(metavar="JOB", help="Id of a job, or part of one."),
        Identifies("job"),
    ],
    target: Annotated[str | None, typer.Option(help="Name of a target. Default: the job's first.")] = None,
    limit: PassLimitOptions = PassLimitOptions(),
    trainings: Annotated[int, typer.Option(min=1, max=16, help="Number of small models to train.")] = 5,
    how: RecipeOptions = RecipeOptions(),
    tokens: Annotated[int | None, typer.Option(help="End each training after this many tokens.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the trainings.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and train nothing.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the answer after the trainings.")] = False,
) -> None:
    """Train the few candidates that make a job's answer surest, and move the job to the law that they refine.

    The service continues without this command; with --wait it prints the answer before and after.
    """
    from edgefront.show import probes

    client = session.watching_client
    asked = {
        **how.fields,
        "trainings": trainings,
        "target": target,
        "limits": {"latency_ms": limit.max_latency_ms, "memory_mb": limit.max_memory_mb},
        "budget": {"steps": how.steps, "tokens": tokens},
        "seed": seed,
        "dry_run": dry_run,
    }
    view: ProbeView = client.jobs.probe(job, asked)
    if wait and not dry_run:
        session.note(f"training {', '.join(each.training_id or '' for each in view.trainings)}")
        view = client.jobs.wait_for_probe(view.job_id)
    session.put(view, lambda: probes.show(view, session.out))

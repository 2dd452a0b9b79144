"""`/v1/catalogue/recipes`, `/v1/datasets` and `/v1/trainers`: what a training can use, and who trains how fast."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool

from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer
from edgefront.api.http.auth import Anyone, Here, Reader
from edgefront.api.http.threads import ThreadRoute
from edgefront.core.services.trainings.choices import list_datasets, list_recipes
from edgefront.core.services.trainings.paces import list_trainers
from edgefront.core.wire.training_choices import DatasetView, RecipeView, TrainerView

router = APIRouter(route_class=ThreadRoute)


@router.get(
    "/v1/catalogue/recipes",
    tags=["catalogue"],
    operation_id="list_recipes",
    summary="List training recipes",
    responses=answer(example("recipes")),
)
def recipes(_asker: Anyone) -> list[RecipeView]:
    return list_recipes()


@router.get(
    "/v1/datasets",
    tags=["trainings"],
    operation_id="list_datasets",
    summary="List the data sets that trainings may use",
    responses=answer(example("datasets")),
)
async def datasets(_person: Reader, here: Here) -> list[DatasetView]:
    """Prepared and built-in data sets. Workers with their own data folder may have others."""
    return await run_in_threadpool(list_datasets, here.settings.data_folder)


@router.get(
    "/v1/trainers",
    tags=["trainings"],
    operation_id="list_trainers",
    summary="List the workers whose pace of training is known",
    responses=answer(example("trainers")),
)
def trainers(person: Reader, here: Here) -> list[TrainerView]:
    """Workers on which a training of yours has ended: their pace gives the tokens that a training reads in a time."""
    return list_trainers(here.database, person.owner)

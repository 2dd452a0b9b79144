"""`/v1/catalogue`, `/v1/quality/laws`, `/v1/datasets`, `/v1/trainers`: the choices for searches and trainings."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field

from edgefront.api.context import AppContext, CurrentPrincipal, CurrentViewer
from edgefront.api.docs.examples import example
from edgefront.api.docs.openapi import answer, sample
from edgefront.api.http.parameters import CatalogueName, HubName, HubOwner, LawName
from edgefront.api.http.routes import JsonRoute
from edgefront.core.architectures import catalogue
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, Costs, Dtype, costs
from edgefront.core.architectures.cost.passes import Logits, Mode
from edgefront.core.architectures.models import NamedModel, named_model, named_models, nearest_models
from edgefront.core.architectures.models.published import published_view
from edgefront.core.architectures.published import PublishedCatalogue, PublishedView, published_models, score_tables
from edgefront.core.common.errors import NotFound
from edgefront.core.common.number_formats import Quantisation
from edgefront.core.common.validation import existing
from edgefront.core.quality.shipped import law_for
from edgefront.core.schemas.service import AlgorithmView, NamedModelView, QualityLawView, SpaceView
from edgefront.core.schemas.trainings import DatasetView, RecipeView, TrainerView
from edgefront.core.search.registry import ALGORITHMS
from edgefront.core.services import datasets as data
from edgefront.core.services.quality import laws
from edgefront.core.services.trainings import paces
from edgefront.core.training.recipes.catalogue import recipes

_TOKENS = "Tokens per sequence of the pass. Default: 192; in decode 1."
_MODE = (
    "forward: all at once, after memory_length others as a segment memory. prefill: all at once, keys and values kept. "
    "decode: after memory_length others, whose keys and values are given."
)
_MEMORY = "Tokens before the pass. Default: 0; in decode 192."
_WEIGHTS = (
    "Of the blocks' linear layers, float32 for all others. int8: one byte per weight. int4: half a byte per weight, "
    "and a float32 scale for every 32 of them. Formats of GGUF files: the tensors of such a file."
)


class PassOptions(BaseModel):
    """Query parameters of `describe`; unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid")

    sequence_length: Annotated[int | None, Field(ge=1, le=1 << 20, description=_TOKENS)] = None
    batch: Annotated[int, Field(ge=1, le=1 << 16)] = 1
    dtype: Dtype = "float32"
    logits: Logits = "all"
    mode: Annotated[Mode, Field(description=_MODE)] = "forward"
    memory_length: Annotated[int | None, Field(ge=0, le=1 << 20, description=_MEMORY)] = None
    weights: Annotated[Quantisation, Field(description=_WEIGHTS)] = "full"


_DESCRIPTIONS: dict[str, Any] = {
    **sample(example("architecture")),
    "pattern": {"summary": "PAR Transformer Base, its blocks as a pattern", "value": example("pattern")},
}

router = APIRouter(prefix="/v1", route_class=JsonRoute)


@router.get("/catalogue/spaces", tags=["catalogue"], summary="List search spaces", responses=answer([example("space")]))
def list_spaces(_principal: CurrentPrincipal) -> list[SpaceView]:
    return [_space(name) for name in catalogue.spaces()]


@router.get(
    "/catalogue/spaces/{name}",
    tags=["catalogue"],
    summary="One search space with its genes",
    responses=answer(example("space"), 404),
)
def get_space(name: CatalogueName, _principal: CurrentPrincipal) -> SpaceView:
    by_name = catalogue.spaces()
    if name not in by_name:
        raise NotFound(f"no search space {name!r}; {existing(name, by_name, 'edgefront space list')}")
    return _space(name)


@router.get("/catalogue/models", tags=["catalogue"], summary="List named models", responses=answer([example("model")]))
def list_models(_principal: CurrentPrincipal) -> list[NamedModelView]:
    return [_model(name) for name in named_models()]


@router.get(
    "/catalogue/models/{name}", tags=["catalogue"], summary="One named model", responses=answer(example("model"), 404)
)
def get_model(name: CatalogueName, _principal: CurrentPrincipal) -> NamedModelView:
    return _model(named_model(name).name)


@router.get(
    "/catalogue/published",
    tags=["catalogue"],
    summary="List published models with their facts, and the tables of their scores",
    responses=answer({"tables": [example("score_table")], "models": [example("published_model")]}),
)
def list_published_models(_principal: CurrentPrincipal) -> PublishedCatalogue:
    """Lists published models, their facts and scores. Scores of different tables are not comparable. Unknown facts are
    null.
    """
    models = tuple(_published(name) for name in published_models())
    return PublishedCatalogue(tables=tuple(score_tables().values()), models=models)


@router.get(
    "/catalogue/published/{owner}/{name}",
    tags=["catalogue"],
    summary="One published model by its id on the Hugging Face Hub",
    responses=answer(example("published_model"), 404),
)
def get_published_model(owner: HubOwner, name: HubName, _principal: CurrentPrincipal) -> PublishedView:
    model = f"{owner}/{name}"
    if model not in published_models():
        raise NotFound(f"no published model {model!r}; {nearest_models(model)}")
    return _published(model)


@router.get(
    "/catalogue/algorithms",
    tags=["catalogue"],
    summary="List search algorithms with the schema of their settings",
    responses=answer([example("algorithm")]),
)
def list_algorithms(_principal: CurrentPrincipal) -> list[AlgorithmView]:
    return [
        AlgorithmView(name=name, title=info.title, source=info.source, settings=info.settings.model_json_schema())
        for name, info in ALGORITHMS.items()
    ]


@router.post(
    "/catalogue/describe",
    tags=["catalogue"],
    summary="The exact cost of an architecture, without running it",
    responses=answer(example("costs")),
)
def describe(
    architecture: Annotated[dict[str, Any], Body(openapi_examples=_DESCRIPTIONS)],
    _principal: CurrentPrincipal,
    options: Annotated[PassOptions, Query()],
) -> Costs:
    """Computes the cost of the architecture description in the body. FLOPs are those of the described pass."""
    return costs(Architecture.parse(architecture), CostOptions(**options.model_dump()))


# The catalogue is constant in a release, so views are built once.
@lru_cache(maxsize=64)
def _space(name: str) -> SpaceView:
    space = catalogue.spaces()[name]
    law, modes = law_for(space), {} if space.example.causal else {"modes": ("forward",)}
    budget = None if law is None else law.train_tokens
    return SpaceView.model_validate(space.to_json() | modes | {"train_tokens": budget})


@lru_cache(maxsize=256)
def _model(name: str) -> NamedModelView:
    model: NamedModel = named_models()[name]
    length = min(192, model.architecture.max_length or 192)
    return NamedModelView(
        name=model.name,
        source=model.source,
        architecture=model.architecture.canonical,
        costs=costs(model.architecture, CostOptions(sequence_length=length)),
    )


@lru_cache(maxsize=1024)
def _published(name: str) -> PublishedView:
    return published_view(published_models()[name])


@router.get(
    "/quality/laws", tags=["catalogue"], summary="List scaling laws", responses=answer([example("quality_law")])
)
def list_quality_laws(viewer: CurrentViewer, context: AppContext) -> list[QualityLawView]:
    """Lists the shipped scaling laws, and those refined with your own trainings and imported models."""
    return laws.views(context.database, viewer)


@router.get(
    "/quality/laws/{name}",
    tags=["catalogue"],
    summary="What a scaling law predicts, and where it holds",
    responses=answer(example("quality_law"), 404),
)
def get_quality_law(name: LawName, viewer: CurrentViewer, context: AppContext) -> QualityLawView:
    return laws.law_view(context.database, viewer, name)


@router.get(
    "/catalogue/recipes", tags=["catalogue"], summary="List training recipes", responses=answer(example("recipes"))
)
def list_recipes(_principal: CurrentPrincipal) -> list[RecipeView]:
    return [
        RecipeView(
            name=recipe.name,
            title=recipe.title,
            source=recipe.source,
            task=recipe.task,
            dataset=recipe.dataset,
            steps=recipe.steps,
            tokens=recipe.steps * recipe.rows * recipe.segment,
            recipe=recipe.model_dump(mode="json"),
        )
        for recipe in recipes().values()
    ]


@router.get(
    "/datasets",
    tags=["trainings"],
    summary="List the data sets that trainings may use",
    responses=answer(example("datasets")),
)
def list_datasets(_viewer: CurrentViewer, context: AppContext) -> list[DatasetView]:
    """Lists prepared and built-in data sets. Workers with their own data folder may have other data sets."""
    return data.list_datasets(context.settings.data_folder)


@router.get(
    "/trainers",
    tags=["trainings"],
    summary="List the workers whose pace of training is known",
    responses=answer(example("trainers")),
)
def list_trainers(viewer: CurrentViewer, context: AppContext) -> list[TrainerView]:
    """Lists workers on which a training of yours has ended; their pace gives the tokens of a training per hour."""
    return paces.list_trainers(context.database, viewer.owner)

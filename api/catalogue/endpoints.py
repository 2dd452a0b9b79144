"""`/v1/catalogue`."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query

from api import examples
from api.auth import Anyone
from api.json_body import JsonRoute
from api.openapi import answer, errors, sample
from api.parameters import CatalogueName
from core.cost.costs import Dtype, Logits, costs
from core.errors import NotFound
from core.search.registry import algorithms
from core.spaces import catalogue
from core.spaces.architecture import Architecture
from core.spaces.catalogue import NamedModel
from core.spaces.space import SearchSpace
from core.wire.service import AlgorithmView, Costs, NamedModelView, SpaceView

router = APIRouter(prefix="/v1/catalogue", tags=["catalogue"], route_class=JsonRoute)


@router.get("/spaces", operation_id="list_spaces", summary="List search spaces", responses=answer([examples.SPACE]))
def list_spaces(_asker: Anyone) -> list[SpaceView]:
    return [_space(name) for name in catalogue.spaces()]


@router.get(
    "/spaces/{name}",
    operation_id="get_space",
    summary="One search space with its genes",
    responses={**answer(examples.SPACE), **errors(404)},
)
def get_space(name: CatalogueName, _asker: Anyone) -> SpaceView:
    known = catalogue.spaces()
    if name not in known:
        raise NotFound(f"no search space {name!r}; there are {', '.join(known)}")
    return _space(name)


@router.get("/models", operation_id="list_models", summary="List named models", responses=answer([examples.MODEL]))
def list_models(_asker: Anyone) -> list[NamedModelView]:
    return [_model(name) for name in catalogue.named_models()]


@router.get(
    "/models/{name}",
    operation_id="get_model",
    summary="One named model",
    responses={**answer(examples.MODEL), **errors(404)},
)
def get_model(name: CatalogueName, _asker: Anyone) -> NamedModelView:
    return _model(catalogue.named_model(name).name)


@router.get(
    "/algorithms",
    operation_id="list_algorithms",
    summary="List search algorithms with the schema of their settings",
    responses=answer([examples.ALGORITHM]),
)
def list_algorithms(_asker: Anyone) -> list[AlgorithmView]:
    return [
        AlgorithmView(name=name, title=info.title, source=info.source, settings=info.settings_schema)
        for name, info in algorithms().items()
    ]


@router.post(
    "/describe",
    operation_id="describe",
    summary="What an architecture costs, exactly, without running it",
    responses=answer(examples.COSTS),
)
def describe(
    architecture: Annotated[dict[str, Any], Body(openapi_examples=sample(examples.ARCHITECTURE))],
    _asker: Anyone,
    sequence_length: Annotated[int, Query(ge=1, le=1 << 20)] = 192,
    batch: Annotated[int, Query(ge=1, le=1 << 16)] = 1,
    dtype: Dtype = "float32",
    logits: Logits = "all",
) -> Costs:
    """The body is an architecture description."""
    found = costs(
        Architecture.parse(architecture), sequence_length=sequence_length, batch=batch, dtype=dtype, logits=logits
    )
    return Costs.model_validate(found.to_json())


# The catalogue is data of this release: views are made once.
@lru_cache(maxsize=64)
def _space(name: str) -> SpaceView:
    space: SearchSpace = catalogue.spaces()[name]
    return SpaceView(
        name=space.name, title=space.title, source=space.source, genes=space.genes(), size=str(space.size())
    )


@lru_cache(maxsize=256)
def _model(name: str) -> NamedModelView:
    model: NamedModel = catalogue.named_models()[name]
    length = min(192, model.architecture.positions.length)
    return NamedModelView(
        name=model.name,
        source=model.source,
        architecture=model.architecture.canonical,
        costs=Costs.model_validate(costs(model.architecture, sequence_length=length).to_json()),
    )

"""The catalogue: search spaces, named models, algorithms and training recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgefront.core.cost.costs import CostOptions
from edgefront.core.published import PublishedCatalogue, PublishedView
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.wire.service import AlgorithmView, Costs, NamedModelView, QualityLawView, SpaceView
from edgefront.core.wire.training_choices import RecipeView
from edgefront.transport import Transport, segment


class Catalogue:
    """`client.catalogue`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def spaces(self) -> list[SpaceView]:
        return self._transport.ask(list[SpaceView], "GET", "/v1/catalogue/spaces")

    def space(self, name: str) -> SpaceView:
        return self._transport.ask(SpaceView, "GET", f"/v1/catalogue/spaces/{segment(name)}")

    def models(self) -> list[NamedModelView]:
        return self._transport.ask(list[NamedModelView], "GET", "/v1/catalogue/models")

    def model(self, name: str) -> NamedModelView:
        return self._transport.ask(NamedModelView, "GET", f"/v1/catalogue/models/{segment(name)}")

    def published(self) -> PublishedCatalogue:
        """The published models that the service knows, and the tables of their scores."""
        return self._transport.ask(PublishedCatalogue, "GET", "/v1/catalogue/published")

    def published_model(self, hub_id: str) -> PublishedView:
        """One published model by its id on the Hugging Face Hub, `OWNER/NAME`."""
        path = "/".join(segment(part) for part in hub_id.split("/"))
        return self._transport.ask(PublishedView, "GET", f"/v1/catalogue/published/{path}")

    def quality_laws(self) -> list[QualityLawView]:
        """What each law predicts (of which data, how long trained), and where it holds."""
        return self._transport.ask(list[QualityLawView], "GET", "/v1/quality/laws")

    def quality_law(self, name: str) -> QualityLawView:
        return self._transport.ask(QualityLawView, "GET", f"/v1/quality/laws/{segment(name)}")

    def describe(self, architecture: Architecture | Mapping[str, Any], **options: Any) -> Costs:
        """The exact costs of an architecture in one pass; options are fields of `core.cost.costs.CostOptions`.

        Raises `ArchitectureError` that names the field of the description, `InvalidInput` that names the option.
        """
        description = architecture.canonical if isinstance(architecture, Architecture) else dict(architecture)
        CostOptions(**options)  # TypeError for another name
        path = "/v1/catalogue/describe"
        # It has no side effects, so it may be retried.
        return self._transport.ask(Costs, "POST", path, params=options, body=description, repeatable=True)

    def algorithms(self) -> list[AlgorithmView]:
        return self._transport.ask(list[AlgorithmView], "GET", "/v1/catalogue/algorithms")

    def recipes(self) -> list[RecipeView]:
        return self._transport.ask(list[RecipeView], "GET", "/v1/catalogue/recipes")

"""The catalogue: search spaces, named models and algorithms."""

from __future__ import annotations

from core.wire.service import AlgorithmView, NamedModelView, SpaceView
from edgefront.resources.lists import views
from edgefront.transport import Transport, segment


class Catalogue:
    """`client.catalogue`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def spaces(self) -> list[SpaceView]:
        return views(SpaceView, self._transport.request("GET", "/v1/catalogue/spaces"))

    def space(self, name: str) -> SpaceView:
        return SpaceView.model_validate_json(
            self._transport.request("GET", f"/v1/catalogue/spaces/{segment(name)}").content
        )

    def models(self) -> list[NamedModelView]:
        return views(NamedModelView, self._transport.request("GET", "/v1/catalogue/models"))

    def model(self, name: str) -> NamedModelView:
        return NamedModelView.model_validate_json(
            self._transport.request("GET", f"/v1/catalogue/models/{segment(name)}").content
        )

    def algorithms(self) -> list[AlgorithmView]:
        return views(AlgorithmView, self._transport.request("GET", "/v1/catalogue/algorithms"))

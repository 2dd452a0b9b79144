"""Requests about devices, enrolment tokens, API keys, and the catalogue of models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from edgefront.client.resources.repeated import pages
from edgefront.client.transport import Resource, segment
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, Costs
from edgefront.core.architectures.published import PublishedCatalogue, PublishedView
from edgefront.core.common.validation import checked
from edgefront.core.schemas.service import (
    AddressView,
    AnchorView,
    DevicePage,
    DeviceView,
    EnrolmentTokenRequest,
    EnrolmentTokenView,
    KeyRequest,
    KeyView,
    NamedModelView,
    QualityLawView,
    ReenrolRequest,
    SpaceView,
)
from edgefront.core.schemas.trainings import RecipeView


class Devices(Resource):
    """The devices, `client.devices`. The arguments `device` take a device's id or name."""

    def list(self, *, limit: int = 100) -> Iterator[DeviceView]:
        """Yields all devices; `limit` is the number of devices per request."""
        return pages(self._transport, DevicePage, "/v1/devices", {"limit": limit})

    def get(self, device: str) -> DeviceView:
        return self._transport.ask(DeviceView, "GET", f"/v1/devices/{segment(device)}")

    def drain(self, device: str) -> DeviceView:
        """Drains the device: it finishes its launches (runs of models) and gets no more."""
        return self._change_state(device, "drain")

    def activate(self, device: str) -> DeviceView:
        """Ends a drain of the device."""
        return self._change_state(device, "activate")

    def trust(self, device: str) -> DeviceView:
        """Ends the device's quarantine."""
        return self._change_state(device, "trust")

    def anchor(self, device: str) -> AnchorView:
        """Returns the device's measurements of the anchor, a reference model measured regularly to detect drift."""
        return self._transport.ask(AnchorView, "GET", f"/v1/devices/{segment(device)}/anchor")

    def revoke(self, device: str) -> DeviceView:
        """Revokes the device's credential permanently. The device's measurements are kept."""
        return self._change_state(device, "revoke")

    def reenrol(self, device: str, *, minutes: int = 60) -> EnrolmentTokenView:
        """Creates a token to enrol this device again after it was revoked or went offline. Only this response contains
        the token's secret (`token`).
        """
        path = f"/v1/devices/{segment(device)}/reenrol"
        return self._transport.ask(EnrolmentTokenView, "POST", path, body=checked(ReenrolRequest, {"minutes": minutes}))

    def _change_state(self, device: str, action: str) -> DeviceView:
        return self._transport.ask(DeviceView, "POST", f"/v1/devices/{segment(device)}/{action}")


class Tokens(Resource):
    """The enrolment tokens, `client.tokens`."""

    def create(self, *, name: str = "device", minutes: int = 60, uses: int = 1) -> EnrolmentTokenView:
        """Creates an enrolment token for `uses` devices. Only this response contains the secret (`token`)."""
        request = checked(EnrolmentTokenRequest, {"name": name, "minutes": minutes, "uses": uses})
        return self._transport.ask(EnrolmentTokenView, "POST", "/v1/enrolment-tokens", body=request)

    def address(self) -> AddressView:
        """Returns the address at which devices reach the service."""
        return self._transport.ask(AddressView, "GET", "/v1/address")

    def list(self) -> list[EnrolmentTokenView]:
        return self._transport.ask(list[EnrolmentTokenView], "GET", "/v1/enrolment-tokens")

    def revoke(self, token_id: str) -> None:
        self._transport.request("DELETE", f"/v1/enrolment-tokens/{segment(token_id)}")


class Keys(Resource):
    """The API keys, `client.keys`."""

    def create(
        self,
        name: str,
        *,
        role: Literal["admin", "user", "viewer"] = "user",
        owner: str | None = None,
        days: int | None = None,
    ) -> KeyView:
        """Creates an API key. Only this response contains the key's secret (`key`)."""
        request = checked(KeyRequest, {"name": name, "role": role, "owner": owner, "days": days})
        return self._transport.ask(KeyView, "POST", "/v1/keys", body=request)

    def list(self) -> list[KeyView]:
        return self._transport.ask(list[KeyView], "GET", "/v1/keys")

    def revoke(self, key_id: str, *, force: bool = False) -> None:
        """Revokes a key. Raises `Conflict` for the only remaining admin key unless `force` is set."""
        params = {"force": "true"} if force else None
        self._transport.request("DELETE", f"/v1/keys/{segment(key_id)}", params=params)


class Catalogue(Resource):
    """The catalogue of models, spaces and scaling laws, `client.catalogue`."""

    def spaces(self) -> list[SpaceView]:
        return self._transport.ask(list[SpaceView], "GET", "/v1/catalogue/spaces")

    def space(self, name: str) -> SpaceView:
        return self._transport.ask(SpaceView, "GET", f"/v1/catalogue/spaces/{segment(name)}")

    def models(self) -> list[NamedModelView]:
        return self._transport.ask(list[NamedModelView], "GET", "/v1/catalogue/models")

    def model(self, name: str) -> NamedModelView:
        return self._transport.ask(NamedModelView, "GET", f"/v1/catalogue/models/{segment(name)}")

    def published(self) -> PublishedCatalogue:
        """Returns the published models that the service knows, and the published result tables with their scores."""
        return self._transport.ask(PublishedCatalogue, "GET", "/v1/catalogue/published")

    def published_model(self, hub_id: str) -> PublishedView:
        """Returns one published model by its id on the Hugging Face Hub, `OWNER/NAME`."""
        path = "/".join(segment(part) for part in hub_id.split("/"))
        return self._transport.ask(PublishedView, "GET", f"/v1/catalogue/published/{path}")

    def quality_laws(self) -> list[QualityLawView]:
        """Returns the scaling laws with data and training budget of their predictions and range of validity."""
        return self._transport.ask(list[QualityLawView], "GET", "/v1/quality/laws")

    def quality_law(self, name: str) -> QualityLawView:
        return self._transport.ask(QualityLawView, "GET", f"/v1/quality/laws/{segment(name)}")

    def describe(self, architecture: Architecture | Mapping[str, Any], **options: Any) -> Costs:
        """Returns the exact costs of an architecture in one forward pass; options are fields of
        `core.architectures.cost.costs.CostOptions`.

        Raises `ArchitectureError` that names a wrong field, `InvalidInput` that names a wrong option.
        """
        description = architecture.canonical if isinstance(architecture, Architecture) else dict(architecture)
        CostOptions(**options)  # raises TypeError for an unknown name
        path = "/v1/catalogue/describe"
        return self._transport.ask(Costs, "POST", path, params=options, body=description, repeatable=True)

    def recipes(self) -> list[RecipeView]:
        return self._transport.ask(list[RecipeView], "GET", "/v1/catalogue/recipes")

"""Predictions of what was not measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.validation import checked
from edgefront.core.wire.predictions import PredictionRequest, PredictionsView
from edgefront.transport import Transport


def predict(
    transport: Transport,
    architectures: Sequence[Architecture | Mapping[str, Any] | str],
    *,
    device: str | None,
    device_class: str | None,
    protocol: Mapping[str, Any] | None,
) -> PredictionsView:
    """See `Client.predict`. Raises `InvalidInput` that names the field, here for what the client can see."""
    given = [
        architecture.canonical if isinstance(architecture, Architecture) else architecture
        for architecture in architectures
    ]
    value = {"device": device, "device_class": device_class, "protocol": protocol or {}, "architectures": given}
    request = checked(PredictionRequest, value)
    # It changes nothing, so it may be sent again.
    return transport.ask(PredictionsView, "POST", "/v1/predictions", body=request, repeatable=True)

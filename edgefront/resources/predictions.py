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
    asked: Mapping[str, Any],
) -> PredictionsView:
    """See `Client.predict`; `asked` are the further fields of the request.

    Raises `InvalidInput` that names the field, here for what the client can see.
    """
    given = [
        architecture.canonical if isinstance(architecture, Architecture) else architecture
        for architecture in architectures
    ]
    request = checked(PredictionRequest, {**asked, "architectures": given})
    # It changes nothing, so it may be sent again.
    return transport.ask(PredictionsView, "POST", "/v1/predictions", body=request, repeatable=True)

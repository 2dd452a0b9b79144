"""Downloads of models."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgefront.core.graph.model_file import ModelFormat
from edgefront.core.number_formats import NumberFormat
from edgefront.core.wire.service import ImportedModel
from edgefront.resources.downloads import Download, Progress
from edgefront.transport import Transport, segment


class Models:
    """`client.models`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def import_config(self, config: Mapping[str, Any]) -> ImportedModel:
        """The description of a Hugging Face `config.json`, as the mapping that it contains. Nothing is stored.

        Raises `InvalidInput` with all fields that cannot be expressed: `error.extra["errors"]`.
        """
        return self._transport.ask(ImportedModel, "POST", "/v1/models/import", body=dict(config), repeatable=True)

    def download(
        self,
        candidate_id: str,
        format: ModelFormat = "onnx",  # noqa: A002
        path: str | os.PathLike[str] = ".",
        *,
        numbers: NumberFormat = "float32",
        replace: bool = True,
        progress: Progress | None = None,
    ) -> Path:
        """Fetches a candidate's model and returns the file's path. Another file there is replaced; without `replace` it
        raises `Conflict`.

        `numbers`: number format of an ONNX or GGUF file, as measured with such a dtype or weights. `path` is
        a file, or a folder that gets the server's own file name. The bytes are written to a hidden `.part` file beside
        it; after an interruption, also of an earlier call, the download resumes from it. The file appears under its
        name only after its SHA-256 equals the server's ETag.

        Raises `InvalidInput` that names `format` if the model has no such file (an encoder has none that decodes), or
        `numbers` if the format supports only float32.
        """
        return model_download(
            self._transport,
            f"/v1/candidates/{segment(candidate_id)}/model",
            candidate_id,
            format,
            numbers,
            Path(path),
            replace=replace,
            progress=progress,
        )


def model_download(
    transport: Transport,
    url: str,
    model_id: str,
    format: ModelFormat,  # noqa: A002
    numbers: NumberFormat,
    path: Path,
    *,
    replace: bool,
    progress: Progress | None,
) -> Path:
    """Fetches one file of the model of a candidate or a training."""
    key = f"{segment(model_id)}-{format if numbers == 'float32' else f'{format}-{numbers}'}"
    params = {"format": format, "numbers": numbers}
    return Download(transport, url, path, key, model_id, params, replace, progress).fetch()

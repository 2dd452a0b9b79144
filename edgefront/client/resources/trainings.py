"""Requests that submit, follow, control and download trainings."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from edgefront.client.resources.downloads import Download, Progress, model_download
from edgefront.client.resources.repeated import follow_log, pages, until_ended
from edgefront.client.transport import Resource, segment
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput
from edgefront.core.common.files import Archive
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.common.states import ENDED_TRAININGS, TrainingState
from edgefront.core.common.validation import checked
from edgefront.core.model_files.model_file import ModelFormat
from edgefront.core.schemas.messages import Event
from edgefront.core.schemas.trainings import (
    DatasetView,
    MetricPage,
    MetricView,
    ProbabilitiesView,
    TrainerView,
    TrainingEstimate,
    TrainingFile,
    TrainingPage,
    TrainingRequest,
    TrainingView,
)

RESULT, CHECKPOINTS, TENSORBOARD = "result", "checkpoints", "tensorboard"
"""Folder names of a training's files."""

FileProgress = Callable[[str, int, "int | None"], None]
"""Progress callback: called with a file's path, the received and the total bytes (None while unknown)."""


class Trainings(Resource):
    """The trainings, `client.trainings`."""

    def datasets(self) -> list[DatasetView]:
        """Returns the data sets of the service that trainings may use, prepared or built in."""
        return self._transport.ask(list[DatasetView], "GET", "/v1/datasets")

    def trainers(self) -> list[TrainerView]:
        """Returns the workers that have completed a training, each with its pace of training."""
        return self._transport.ask(list[TrainerView], "GET", "/v1/trainers")

    def create(
        self, request: TrainingRequest | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> tuple[TrainingView, ...]:
        """Submits trainings: one for each architecture that the request names.

        Safe to retry: the same idempotency key and request return the same trainings. Raises `InvalidInput` that names
        the wrong field, found by the client's or the server's validation.
        """
        request = checked(TrainingRequest, request)
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        page = self._transport.ask(
            TrainingPage, "POST", "/v1/trainings", body=request, headers=headers, repeatable=True
        )
        return page.items

    def import_model(
        self, model: str | os.PathLike[str], *, name: str | None = None, licence: str | None = None
    ) -> TrainingView:
        """Imports a model with its weights as a completed training: an edgefront folder, a Hugging Face folder or a
        GGUF file. The model can be downloaded, and be the `start` of trainings of its architecture.

        Name and licence default to those in the model; the README of a Hugging Face folder states the licence.
        Importing the same weights and tokenizer again returns the existing training. Raises `InvalidInput` for a model
        without weights or with a wrong tensor, `TooLarge` above the service's size limit.
        """
        from edgefront.core.training.evaluation.given_model import model_files, package_of

        with package_of(os.fspath(model)) as package:
            archive = Archive(model_files(package.folder))
            headers = {"Content-Type": "application/x-tar", "Content-Length": str(archive.size)}
            return self._transport.ask(
                TrainingView,
                "POST",
                "/v1/trainings/import",
                params={"name": name, "licence": licence},
                content=archive,
                headers=headers,
                repeatable=True,
            )

    def estimate(self, request: TrainingRequest | Mapping[str, Any]) -> TrainingEstimate:
        """Returns the trainings that the request would create, without creating them. Raises the same errors as
        `create`, except `Conflict`.
        """
        request = checked(TrainingRequest, request)
        path = "/v1/trainings/estimate"
        return self._transport.ask(TrainingEstimate, "POST", path, body=request, repeatable=True)

    def list(
        self, *, state: str | None = None, job: str | None = None, digest: str | None = None, limit: int = 50
    ) -> Iterator[TrainingView]:
        """Yields trainings, newest first, filtered by state, job and digest of the architecture, over all pages."""
        params = {"state": state, "job": job, "digest": digest, "limit": limit}
        return pages(self._transport, TrainingPage, "/v1/trainings", params)

    def get(self, training_id: str) -> TrainingView:
        return self._transport.ask(TrainingView, "GET", _path(training_id))

    def pause(self, training_id: str) -> TrainingView:
        """Pauses the training after its current step, with a checkpoint."""
        return self._change_state(training_id, "pause")

    def resume(self, training_id: str) -> TrainingView:
        """Resumes the training from its latest checkpoint, even if the training has failed."""
        return self._change_state(training_id, "resume")

    def cancel(self, training_id: str) -> TrainingView:
        """Ends the training permanently. The training's checkpoints are kept."""
        return self._change_state(training_id, "cancel")

    def delete(self, training_id: str) -> None:
        """Deletes a training with its curves and files, cancelling a running one. The scores of its architecture are
        kept.
        """
        self._transport.request("DELETE", _path(training_id))

    def metrics(self, training_id: str, *, after: int = -1) -> Iterator[MetricView]:
        """Yields the training's metrics at steps above `after`, by rising step, over all pages."""
        step: int | None = after
        while step is not None:
            params = {"after": step, "limit": 5000}
            page = self._transport.ask(MetricPage, "GET", f"{_path(training_id)}/metrics", params=params)
            yield from page.items
            step = page.next_step

    def probabilities(self, training_id: str, *, records: int = 100) -> ProbabilitiesView:
        """Returns each block's probability in each layer of a supernet, at up to `records` steps and at the end."""
        path, params = f"{_path(training_id)}/probabilities", {"records": records}
        return self._transport.ask(ProbabilitiesView, "GET", path, params=params)

    def log(self, training_id: str, *, tail: int = 200) -> str:
        """Returns the final `tail` lines of the training's log."""
        return self._transport.request("GET", f"{_path(training_id)}/log", params={"tail": tail}).text

    def wait(self, training_id: str, *, timeout_s: float | None = None) -> TrainingView:
        """Returns the training once it is completed, failed or cancelled. Raises `TimeoutError` after `timeout_s`."""
        return until_ended(lambda: self.get(training_id), ENDED_TRAININGS, f"training {training_id}", timeout_s)

    def events(self, training_id: str, *, after: int = 0, kinds: Collection[str] | None = None) -> Iterator[Event]:
        """Yields the training's events after number `after`, then new events until the training has ended. Every event
        is sent exactly once.

        `edgefront.core.schemas.messages` describes the `data` of each kind. After a broken connection the stream
        resumes from the latest event; raises `Unavailable` if resuming fails for the client's `patience_s`. `kinds`
        selects kinds of events; the event numbers then have gaps.
        """
        path = f"{_path(training_id)}/events"
        return follow_log(
            self._transport, path, lambda: self.get(training_id), ENDED_TRAININGS, after=after, kinds=kinds
        )

    def files(self, training_id: str) -> tuple[TrainingFile, ...]:
        """Lists the downloadable files: result of a completed training, newest checkpoint, TensorBoard's files."""
        return self._transport.ask(tuple[TrainingFile, ...], "GET", f"{_path(training_id)}/files")

    def download(
        self,
        training_id: str,
        path: str | os.PathLike[str],
        *,
        checkpoint: bool = False,
        tensorboard: bool = False,
        replace: bool = True,
        progress: FileProgress | None = None,
    ) -> tuple[Path, ...]:
        """Downloads the files of the result into the folder `path`, created if missing: weights, description,
        tokenizer.

        With `checkpoint`, downloads the files of the newest checkpoint instead; with `tensorboard`, the curves for
        TensorBoard, even while the training runs. Interrupted downloads resume, and a file gets its final name once its
        SHA-256 is correct. Raises `Conflict` if there are no files, or (without `replace`) if a different file exists
        under a downloaded file's name.
        """
        if checkpoint and tensorboard:
            raise InvalidInput(
                "checkpoint and tensorboard cannot be combined", field="tensorboard", value=True, allowed="one of them"
            )
        kind = TENSORBOARD if tensorboard else CHECKPOINTS if checkpoint else RESULT
        listed = [file for file in self.files(training_id) if file.path.startswith(f"{kind}/")]
        if not listed:
            training = self.get(training_id)
            what = {RESULT: "no result", CHECKPOINTS: "no checkpoint", TENSORBOARD: "no files for TensorBoard"}[kind]
            why = "was the database restored without the artifacts?" if training.state == TrainingState.DONE else "wait"
            raise Conflict(f"training {training_id} is {training.state} and has {what}: {why}", state=training.state)
        folder, downloaded = Path(path), []
        for file in listed:
            inside = PurePosixPath(file.path)
            if inside.is_absolute() or ".." in inside.parts or "\\" in file.path or len(inside.parts) < 2:
                raise EdgefrontError(f"the server names a file outside its training: {file.path!r}")
            target = folder.joinpath(*inside.parts[2 if checkpoint else 1 :])
            target.parent.mkdir(parents=True, exist_ok=True)

            def report(done: int, total: int | None, name: str = file.path) -> None:
                if progress is not None:
                    progress(name, done, total)

            url = f"{_path(training_id)}/files/{'/'.join(segment(part) for part in inside.parts)}"
            key = f"{segment(training_id)}-{target.name}"
            download = Download(self._transport, url, target, key, target.name, replace=replace, progress=report)
            downloaded.append(download.fetch())
        return tuple(downloaded)

    def download_model(
        self,
        training_id: str,
        format: ModelFormat = "transformers",  # noqa: A002
        path: str | os.PathLike[str] = ".",
        *,
        numbers: NumberFormat = "float32",
        logits: Logits | None = None,
        replace: bool = True,
        progress: Progress | None = None,
    ) -> Path:
        """Downloads the trained model as one file and returns its path. Formats `gguf` (for llama.cpp) and
        `transformers` include the tokenizer.

        `path`, `numbers`, `logits` and `replace`: see `client.models.download`; `logits` are by default what was
        measured of the training's candidate, else all. Raises `Conflict` if the training has no result yet,
        `InvalidInput` for a format, number format, logits or tokenizer that the file does not support.
        """
        url = f"{_path(training_id)}/model"
        return model_download(
            self._transport, url, training_id, format, numbers, logits, Path(path), replace=replace, progress=progress
        )

    def _change_state(self, training_id: str, action: str) -> TrainingView:
        # Idempotent: pausing a paused training changes nothing.
        return self._transport.ask(TrainingView, "POST", f"{_path(training_id)}/{action}", repeatable=True)


def _path(training_id: str) -> str:
    return f"/v1/trainings/{segment(training_id)}"

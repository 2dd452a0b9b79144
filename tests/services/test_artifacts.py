"""Models for download: built once, whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import onnx
import pytest
from concurrency import at_once
from databases import ON_BOTH
from safetensors import safe_open
from simulated_agent import SimulatedAgent, principal
from simulated_service import Service, request
from sqlalchemy import func, select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound, TooLarge, Unavailable
from edgefront.core.common.files import whole_file
from edgefront.core.model_files import export
from edgefront.core.model_files.model_file import MODES, NUMBERS, ModelFormat
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.services.jobs.answers import model_files as artifacts
from edgefront.core.services.jobs.answers.candidates import list_candidates
from edgefront.core.services.jobs.answers.model_files import artifact_for
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Artifact, Target


@pytest.fixture
def tiny(service: Service) -> tuple[Service, CandidateView]:
    """A candidate of two layers."""
    SimulatedAgent(service.database)
    narrow = {"n_layer": [2], "d_model": [128], "n_head": [2], "d_inner": [256], "div": [4]}
    job = service.submit(request(space={"name": "lts-gpt2", "narrow": narrow}, seed=5))
    with service.database.read() as session:
        return service, list_candidates(session, service.user, job.id).items[0]


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_each_format(tiny: tuple[Service, CandidateView], tmp_path: Path) -> None:
    service, candidate = tiny
    folder = tmp_path / "artifacts"
    short = candidate.digest[:12]
    names: dict[ModelFormat, str] = {
        "onnx": f"edgefront-{short}-untrained-seed5-last.onnx",
        "onnx-prefill": f"edgefront-{short}-untrained-seed5-prefill.onnx",
        "onnx-decode": f"edgefront-{short}-untrained-seed5-decode.onnx",
        "onnx-generate": f"edgefront-{short}-untrained-seed5-generate.onnx",
        "onnx-segment": f"edgefront-{short}-untrained-seed5-segment-last.onnx",
        "safetensors": f"edgefront-{short}-untrained-seed5.safetensors",
        "architecture": f"edgefront-{short}-architecture.json",
    }
    for format_, name in names.items():
        made = artifact_for(service.database, service.user, candidate.id, format_, folder)
        assert made.name == made.path.name == name
        assert made.size == made.path.stat().st_size
        assert made.sha256 == hashlib.sha256(made.path.read_bytes()).hexdigest()
        again = artifact_for(service.database, service.user, candidate.id, format_, folder)
        assert again == made
    refused: dict[ModelFormat, str] = {"gguf": "GGUF", "transformers": "transformers"}
    for format_, reader in refused.items():
        with pytest.raises(InvalidInput, match=f"{reader} cannot express"):
            artifact_for(service.database, service.user, candidate.id, format_, folder)
    assert len(files(folder)) == len(names)
    assert {*names, *refused} == set(get_args(ModelFormat))
    for format_, mode in MODES.items():
        model = onnx.load(artifact_for(service.database, service.user, candidate.id, format_, folder).path)
        about = {entry.key: entry.value for entry in model.metadata_props}
        assert (about["digest"], about["mode"]) == (
            candidate.digest,
            "generate" if format_ == "onnx-generate" else mode,
        )
    path = artifact_for(service.database, service.user, candidate.id, "safetensors", folder).path
    with safe_open(path, "numpy") as weights:
        assert "untrained" in weights.metadata()["weights"]
    described = artifact_for(service.database, service.user, candidate.id, "architecture", folder).path.read_text()
    assert Architecture.parse(described).digest == candidate.digest
    assert json.loads(described) == candidate.architecture
    with pytest.raises(InvalidInput, match="onnx-segment, gguf, transformers, safetensors, architecture"):
        artifact_for(service.database, service.user, candidate.id, "pickle", tmp_path)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        artifact_for(service.database, service.user, "cnd_none", "onnx", tmp_path)
    with pytest.raises(NotFound):
        artifact_for(service.database, principal(service.database, "bob"), candidate.id, "onnx", tmp_path)


def test_other_numbers_are_files_of_their_own(tiny: tuple[Service, CandidateView], tmp_path: Path) -> None:
    service, candidate = tiny
    made = {
        numbers: artifact_for(service.database, service.user, candidate.id, "onnx-segment", tmp_path, numbers)
        for numbers in NUMBERS["onnx-segment"]
    }
    short = candidate.digest[:12]
    assert [file.name for file in made.values()] == [
        f"edgefront-{short}-untrained-seed5-segment-last{numbers}.onnx"
        for numbers in ("", "-float16", "-bfloat16", "-int8", "-int4")
    ]
    assert made["float16"].size < made["int4"].size < made["int8"].size < made["float32"].size
    for numbers, file in made.items():
        again = artifact_for(service.database, service.user, candidate.id, "onnx-segment", tmp_path, numbers)
        assert again == file
    with pytest.raises(InvalidInput, match="safetensors: it contains float32") as caught:
        artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path, "int8")
    assert (caught.value.field, caught.value.value) == ("numbers", "int8")


def test_a_file_computes_what_was_measured_or_what_is_asked(
    tiny: tuple[Service, CandidateView], tmp_path: Path
) -> None:
    service, candidate = tiny

    def axes(**asked: Any) -> list[str]:
        made = artifact_for(service.database, service.user, candidate.id, "onnx", tmp_path, **asked)
        (output,) = onnx.load(made.path).graph.output
        return [output.name, *(axis.dim_param for axis in output.type.tensor_type.shape.dim[:-1])]

    assert axes() == axes(logits="last") == ["logits", "batch"]
    assert axes(logits="all") == ["logits", "batch", "sequence"]
    assert axes(logits="none") == ["hidden", "batch", "sequence"]
    with service.database.write() as session:
        target = session.get(Target, candidate.target_id)
        assert target is not None
        target.protocol = {**target.protocol, "logits": "all", "weights": "int8"}
    assert axes() == ["logits", "batch", "sequence"]
    made = artifact_for(service.database, service.user, candidate.id, "onnx", tmp_path)
    assert made.name.endswith("seed5-int8.onnx")
    for format_, logits in (("onnx-decode", "all"), ("safetensors", "last")):
        with pytest.raises(InvalidInput, match=f"logits {logits} is not for {format_}") as caught:
            artifact_for(service.database, service.user, candidate.id, format_, tmp_path, logits=logits)  # type: ignore[arg-type]
        assert caught.value.field == "logits"


def test_a_missing_file_is_built_again(tiny: tuple[Service, CandidateView], tmp_path: Path) -> None:
    service, candidate = tiny
    made = artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path)
    made.path.unlink()
    assert artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path) == made
    made.path.write_bytes(b"cut short")
    assert artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path) == made
    assert hashlib.sha256(made.path.read_bytes()).hexdigest() == made.sha256
    # Partial files of a builder that was killed long ago are removed.
    old, young = made.path.parent / ".old.part", made.path.parent / ".young.part"
    for part in (old, young):
        part.write_bytes(b"half")
    two_days_ago = time.time() - 2 * 86400
    os.utime(old, (two_days_ago, two_days_ago))
    made.path.unlink()
    artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path)
    assert (old.exists(), young.exists()) == (False, True)
    # The folder has moved: the row says how the file should look, not where the disk was.
    assert artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path / "new").path.exists()


@ON_BOTH
def test_requests_at_once_build_once_and_hold_no_transaction_meanwhile(
    tiny: tuple[Service, CandidateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, candidate = tiny
    built: list[Path] = []
    write = export.write_onnx

    def counted(architecture: Architecture, seed: int, path: Path, options: GraphOptions) -> None:
        built.append(path)
        with service.database.write() as session:  # would wait for itself within a transaction
            service.database.now(session)
        write(architecture, seed, path, options)

    monkeypatch.setattr(export, "write_onnx", counted)
    found = at_once(*[lambda: artifact_for(service.database, service.user, candidate.id, "onnx", tmp_path / "a")] * 5)
    assert len(set(found)) == 1
    assert len(built) == 1
    assert len(files(tmp_path / "a")) == 1
    with service.database.read() as session:
        assert session.scalar(select(func.count()).select_from(Artifact)) == 1


def test_a_full_disk_leaves_nothing_behind(
    tiny: tuple[Service, CandidateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, candidate = tiny

    def fills_the_disk(architecture: Architecture, seed: int, path: Path, options: GraphOptions) -> None:
        with whole_file(path) as file:
            file.write(b"half of a mod")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = tmp_path / "a"
    with monkeypatch.context() as patched:
        patched.setattr(export, "write_onnx", fills_the_disk)
        with pytest.raises(Unavailable, match="disk is full"):
            artifact_for(service.database, service.user, candidate.id, "onnx", folder)
    assert files(folder) == []
    assert artifact_for(service.database, service.user, candidate.id, "onnx", folder).path.exists()
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match="cannot write"):
        artifact_for(service.database, service.user, candidate.id, "onnx", blocked)


@ON_BOTH
def test_the_oldest_files_make_room_for_new_ones(tiny: tuple[Service, CandidateView], tmp_path: Path) -> None:
    service, candidate = tiny

    def made(format_: ModelFormat, most: int) -> artifacts.Download:
        return artifact_for(service.database, service.user, candidate.id, format_, tmp_path, "float32", most)

    first = made("safetensors", 1 << 30)
    second = made("onnx", first.size + (1 << 20))
    assert files(tmp_path) == [second.path]
    assert made("onnx", 1).path == second.path, "what is there is sent, whatever may be built"
    again = made("safetensors", first.size + (1 << 20))
    assert (again.sha256, files(tmp_path)) == (first.sha256, [first.path])
    with service.database.read() as session:
        assert session.scalars(select(Artifact.format)).all() == ["safetensors"]


def test_making_room_spares_what_was_built_and_forgets_only_what_it_removed(
    tiny: tuple[Service, CandidateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, candidate = tiny

    def made(format_: ModelFormat, most: int) -> artifacts.Download:
        return artifact_for(service.database, service.user, candidate.id, format_, tmp_path, "float32", most)

    def kept() -> set[str]:
        with service.database.read() as session:
            return set(session.scalars(select(Artifact.format)))

    oldest = made("safetensors", 1 << 30)
    newer = made("onnx", 1 << 30)
    oldest.path.unlink()
    again = made("safetensors", oldest.size)
    assert (again.path.exists(), newer.path.exists(), kept()) == (True, False, {"safetensors"})

    unlink = Path.unlink

    def held(path: Path, *, missing_ok: bool = False) -> None:
        if path == again.path:
            raise PermissionError(f"{path} is open elsewhere")
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", held)
        made("onnx", oldest.size)
    assert kept() == {"safetensors", "onnx-last"}


def test_a_model_beyond_what_is_kept_is_not_built(
    tiny: tuple[Service, CandidateView], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, candidate = tiny
    with pytest.raises(TooLarge, match=r"data\.max_model_bytes"):
        artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path, "float32", 1000)
    monkeypatch.setattr(artifacts, "_LEFT_FREE", 1 << 60)
    with pytest.raises(Unavailable, match="lacks space"):
        artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path)
    assert artifact_for(service.database, service.user, candidate.id, "architecture", tmp_path).size
    assert len(files(tmp_path)) == 1


def test_two_jobs_of_one_seed_share_the_file(
    service: Service, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    SimulatedAgent(service.database)
    found = set()
    for seed in (5, 5, 6):
        job = service.submit(request(baseline_layers=[1], seed=seed))
        with service.database.read() as session:
            candidate = list_candidates(session, service.user, job.id).items[0]
        found.add(artifact_for(service.database, service.user, candidate.id, "safetensors", tmp_path))
    assert len(found) == 2

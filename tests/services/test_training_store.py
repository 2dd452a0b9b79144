"""A training's files on an artifact store: whole states or none, and the last claim's are the truth."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefront.core.errors import Conflict, InvalidInput, Unavailable
from edgefront.core.files import sha256
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.objects import ObjectStore, check_store, shown
from edgefront.core.services.trainings.files.store import (
    Damaged,
    Publisher,
    Replaced,
    TrainingManifest,
    TrainingStore,
)


class Failing(ObjectStore):
    """A store that goes away for one call: the one after `calls` more that change something."""

    calls = -1

    def _make_folder(self, key: str) -> None:
        self.calls -= 1
        if self.calls == -1:
            raise OSError("the line is cut")
        super()._make_folder(key)


class Stored(TrainingStore):
    """A store whose manifests are recorded as the row of a training does: by the current claim alone."""

    def __init__(self, store: ObjectStore, training_id: str) -> None:
        super().__init__(store, training_id, lambda: self.recorded)
        self.recorded: TrainingManifest | None = None
        self.fence = 0

    def record(self, manifest: TrainingManifest) -> None:
        if manifest.fence < self.fence:
            raise Conflict(f"not leased under fence {manifest.fence}")
        self.recorded = manifest

    def claim(self, fence: int) -> Publisher:
        self.fence = fence
        return Publisher(self, fence, self.record)

    def delete(self) -> None:
        self.recorded = None
        self.store.remove_folder(self.root)


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(ObjectStore(f"file://{tmp_path}/store"), "trn_one")


def made(folder: Path, files: dict[str, str]) -> dict[str, Path]:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return {path: folder / path for path in files}


def checkpoint(step: int, best: int | None = None) -> dict[str, str]:
    place = f"checkpoints/step-{step:09d}"
    return {f"{place}/model.safetensors": f"after {step}", f"{place}/trainer.json": json.dumps({"best_step": best})}


def objects(stored: TrainingStore) -> set[str]:
    return {
        f"{folder}/{n}"
        for folder in stored.store.names(stored.root)
        for n in stored.store.names(f"{stored.root}/{folder}")
    }


def damage(stored: TrainingStore, path: str) -> None:
    manifest = stored.newest()
    assert manifest is not None
    file = manifest.find(path)
    assert file is not None
    stored.store.write(stored.key(manifest, file), b"x" * file.size)


def test_the_last_claim_counts_and_harms_no_later_one(stored: Stored, tmp_path: Path) -> None:
    assert stored.newest() is None
    first = stored.claim(1)
    first.publish(made(tmp_path / "one", checkpoint(100) | checkpoint(200) | {"log.txt": "one"}))
    first.publish(made(tmp_path / "one", checkpoint(200) | {"log.txt": "one and more"}))
    manifest = stored.newest()
    assert manifest is not None
    assert (manifest.fence, list(manifest.checkpoints())) == (1, [200])
    assert len(objects(stored)) == 3  # two files and the log: what was replaced is gone
    second = stored.claim(2)
    second.publish(made(tmp_path / "two", checkpoint(200) | checkpoint(300) | {"log.txt": ""}))
    assert {name[:9] for name in objects(stored)} == {"000000002"}
    # The first has not noticed that it lost its lease: it writes beside the second, and is not seen.
    with pytest.raises(Conflict):
        first.publish(made(tmp_path / "one", checkpoint(400)))
    assert {name[:9] for name in objects(stored)} == {"000000001", "000000002"}
    newest = stored.newest()
    assert newest is not None
    assert list(newest.checkpoints()) == [200, 300]
    assert stored.tail("log.txt", 10) == b""
    # What it left goes with the next state.
    second.publish(made(tmp_path / "two", checkpoint(300) | {"log.txt": "a long log"}))
    assert {name[:9] for name in objects(stored)} == {"000000002"}
    assert stored.tail("log.txt", 3) == b"log"


def test_a_damaged_checkpoint_is_replaced_by_the_previous_one(stored: Stored, tmp_path: Path) -> None:
    files = checkpoint(100, 100) | checkpoint(200, 100) | checkpoint(300, 200) | checkpoint(400, 300)
    stored.claim(7).publish(made(tmp_path / "run", files | {"metrics.jsonl": "{}\n"}))
    into = tmp_path / "into"
    fetched = stored.fetch(into)
    assert fetched is not None
    assert (fetched.step, fetched.damaged) == (400, ())
    assert sorted(path.name for path in (into / "checkpoints").iterdir()) == ["step-000000300", "step-000000400"]
    assert (into / "metrics.jsonl").read_text() == "{}\n"
    damage(stored, "checkpoints/step-000000300/model.safetensors")  # the best of step 400
    fetched = stored.fetch(into)
    assert fetched is not None
    assert fetched.step == 200
    assert "step-000000300/model.safetensors of training trn_one is damaged" in fetched.damaged[0]
    assert sorted(path.name for path in (into / "checkpoints").iterdir()) == ["step-000000100", "step-000000200"]
    damage(stored, "checkpoints/step-000000100/trainer.json")
    fetched = stored.fetch(into)
    assert fetched is not None
    assert fetched.step is None
    assert not (into / "checkpoints").exists()
    manifest = stored.newest()
    assert manifest is not None
    with pytest.raises(Damaged, match="its SHA-256 is"):
        stored.download(manifest, manifest.below("checkpoints/step-000000100")[1], tmp_path / "file")


def test_a_file_is_read_on_while_it_is_moved_and_not_beyond_its_end(stored: Stored, tmp_path: Path) -> None:
    content = random.Random(0).randbytes(20 << 20)
    (tmp_path / "weights").write_bytes(content)

    def begun(claim: int) -> tuple[bytes, Iterator[bytes]]:
        manifest = stored.claim(claim).publish({"result/weights": tmp_path / "weights"})
        chunks = stored.chunks(manifest, manifest.files[0], 0, len(content))
        return next(chunks), chunks

    first, chunks = begun(1)
    stored.claim(2).publish({"result/weights": tmp_path / "weights"})  # which removes what claim 1 had
    assert first + b"".join(chunks) == content
    _, chunks = begun(3)
    stored.claim(4).publish(made(tmp_path, {"log.txt": "anew"}))
    with pytest.raises(Replaced, match="has no file 'result/weights' any more"):
        next(chunks)
    _, chunks = begun(5)
    stored.delete()
    with pytest.raises(Replaced):
        next(chunks)
    manifest = stored.claim(6).publish({"result/weights": tmp_path / "weights"})
    stored.store.remove(stored.key(manifest, manifest.files[0]))
    with pytest.raises(Damaged, match="it is missing"):
        stored.download(manifest, manifest.files[0], tmp_path / "back")
    assert not list(tmp_path.glob("*back*"))


def test_a_full_disk_is_reported_and_leaves_no_file(
    stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = stored.claim(1).publish(made(tmp_path, {"weights": "many"}))

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Unavailable, match="the disk is full"):
        stored.download(manifest, manifest.files[0], tmp_path / "back" / "weights")
    assert list((tmp_path / "back").iterdir()) == []


steps = st.lists(st.tuples(st.sampled_from("abc"), st.text("xyz", max_size=2)), min_size=1, max_size=3)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.booleans(), steps, st.integers(-1, 6)), min_size=1, max_size=6))
def test_a_state_is_there_whole_or_not_at_all(writes: list[tuple[bool, list[tuple[str, str]], int]]) -> None:
    with TemporaryDirectory() as text:
        store = Failing(f"file://{text}/store")
        stored, fence = Stored(store, "trn_any"), 1
        claim, truth = stored.claim(fence), None
        for number, (is_next, files, calls) in enumerate(writes):
            if is_next:
                fence += 1
                claim = stored.claim(fence)
            wanted = dict(files)
            places = made(Path(text) / str(number), wanted)
            store.calls = calls
            try:
                truth = claim.publish(places)
            except Unavailable:
                assert stored.newest() == truth
                store.calls = -1
                truth = claim.publish(places)  # tried again
            store.calls = -1
            assert stored.newest() == truth
            assert {file.path: file.sha256 for file in truth.files} == {p: sha256(f) for p, f in places.items()}
            for file in truth.files:
                stored.download(truth, file, Path(text) / "back" / str(number) / file.path)


WRONG: list[tuple[str, type[Exception], str]] = [
    ("nosuch://place", InvalidInput, "not a store that fsspec supports"),
    ("oci://bucket@space/prefix", InvalidInput, "pip install ocifs"),
    ("s3://key:hidden@bucket/prefix", InvalidInput, "do not belong in the URL"),
    ("simplecache::file:///tmp", InvalidInput, "a chain of URLs"),
    ("file://place/store", InvalidInput, "is not absolute: write file:///folder"),
    ("file:///proc/nowhere", Unavailable, "artifact store file:///proc/nowhere is unavailable"),
    ("ftp://someone:hidden@127.0.0.1:1/x", Unavailable, "artifact store ftp://127.0.0.1:1/x is unavailable"),
]


@pytest.mark.parametrize(("url", "kind", "said"), WRONG)
def test_a_wrong_url_is_reported_without_secrets(url: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said) as found:
        check_store(url)
    assert "hidden" not in repr(found.value) + str(vars(found.value))


def test_a_folder_is_a_folder_and_a_url_is_not_shown(tmp_path: Path) -> None:
    def of(**values: Any) -> tuple[Path, str | None]:
        made = Settings(home=tmp_path, **values)
        assert "hidden" not in repr(made)
        return made.artifact_folder, made.artifact_url

    url = "sftp://someone:hidden@host/place?key=hidden"
    assert of() == (tmp_path / "artifacts", None)
    assert of(artifacts="/shared/artifacts") == (Path("/shared/artifacts"), None)
    assert of(artifacts=url) == (tmp_path / "artifacts", url)
    assert shown(url) == "sftp://host/place"

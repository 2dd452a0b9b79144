"""Prepares a data set: streams its text once or twice and writes a folder of token ids."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import locked, refusing_full_disk, sha256, sync, whole_file
from edgefront.core.data.prepared.planning import Preparation, PreparationPlan
from edgefront.core.data.prepared.prepared import (
    FORMAT,
    MANIFEST,
    SOURCE_FOLDER,
    SPLITS,
    Manifest,
    OriginalFile,
    Prepared,
    Progress,
    StoredFile,
    StoredSplit,
    no_progress,
    open_prepared,
)
from edgefront.core.data.sources.corpus import Parts
from edgefront.core.data.sources.data_set import DataSet
from edgefront.core.data.sources.text import Counts, Piece, TextFormat, Tick
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, Ids, Tokenizer, WordTokenizer

_CHUNK = 1 << 20
_BUFFER = 1 << 18
"""Number of token ids or offsets that are buffered before a write."""
_BATCH = 1 << 20
"""Number of characters that are encoded together."""


def prepare(
    data: str | DataSet,
    home: Path,
    *,
    origin: Path | None = None,
    target: Path | None = None,
    settings: Preparation | None = None,
    progress: Progress = no_progress,
) -> Prepared:
    """Returns the prepared data set; creates the data set's folder in `home` if it does not exist.

    The folder's name is a digest of the text, the settings and the format. An existing folder is used only if all
    files have the recorded SHA-256. A folder appears only when it is complete. A second preparation of the same data
    waits for the first.

    Args:
        data: a name in `data_sets()`, or the path of a file or folder.
        origin: the folder with the published files of a named data set.
        target: the file with the translation of `data`, line by line.
        progress: called with the phase, the bytes processed and the total bytes.

    Raises:
        NotFound: the data set or a file does not exist.
        InvalidInput: a file is empty, not UTF-8, or different from the published file; a setting is wrong.
        Unavailable: the disk is full; the incomplete folder is removed.
    """
    plan = PreparationPlan.make(data, origin, target, settings or Preparation())
    originals = _read_originals(plan, progress)
    digest = plan.digest(originals)
    folder = home / digest
    existing = _intact(folder, progress)
    if existing is not None:
        return existing
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".preparing-{digest}"
    progress("waiting", 0, 1)
    with refusing_full_disk(folder), locked(home / f".{digest}.lock"):
        existing = _intact(folder, progress)
        if existing is not None:
            return existing
        shutil.rmtree(draft, ignore_errors=True)  # left over from a preparation that was killed
        draft.mkdir()
        try:
            _write(plan, draft, digest, originals, progress)
            shutil.rmtree(folder, ignore_errors=True)  # a damaged data set
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync(home)
    return open_prepared(folder)


def _read_originals(plan: PreparationPlan, progress: Progress) -> dict[Path, OriginalFile]:
    """Reads every file once; compares the MD5 of each file with the published MD5, if there is one."""
    files = plan.corpus.files() + ([plan.vocabulary] if plan.vocabulary else [])
    done, total = 0, sum(path.stat().st_size for path in files)
    published = plan.catalogued.published.md5 if plan.catalogued else None
    originals = {}
    for path in files:
        hashed, md5, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                hashed.update(block)
                if published:
                    md5.update(block)
                size += len(block)
                progress("reading", done + size, total)
        done += size
        if published and plan.catalogued and md5.hexdigest() != published:
            raise plan.catalogued.wrong(
                path, f"{path} has the MD5 {md5.hexdigest()}, but {plan.catalogued.name} has {published}"
            )
        inside = path.is_relative_to(plan.corpus.root) and path != plan.vocabulary
        name = path.relative_to(plan.corpus.root).as_posix() if inside else path.name
        originals[path] = OriginalFile(name=name, bytes=size, sha256=hashed.hexdigest())
    return originals


def _intact(folder: Path, progress: Progress) -> Prepared | None:
    """Opens the prepared data set and verifies every byte; None if the data set is missing or damaged."""
    try:
        return open_prepared(folder, verify=True, progress=progress)
    except (NotFound, InvalidInput):
        return None


def _counting(progress: Progress, phase: str, parts: Iterable[Parts]) -> Tick:
    """Returns a callback that reports how many bytes of `parts` have been read."""
    done, total = 0, sum(part.size for group in parts for part in group)

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress(phase, done, total)

    return tick


def _write(
    plan: PreparationPlan, folder: Path, digest: str, originals: Mapping[Path, OriginalFile], progress: Progress
) -> None:
    corpus = plan.corpus
    _check_text(plan, progress)
    tokenizer = _save_tokenizer(plan, corpus.splits, folder, progress)
    sides = [("", corpus.splits, tokenizer)]
    source = None
    if corpus.sources:
        (folder / SOURCE_FOLDER).mkdir()
        source = _save_tokenizer(plan, corpus.sources, folder / SOURCE_FOLDER, progress)
        sides.append((".source", corpus.sources, source))
    if plan.catalogued is not None and plan.level == "words" and not plan.own_vocabulary:
        plan.catalogued.check("words in the vocabulary", tokenizer.vocab_size, plan.catalogued.published.vocabulary)
    tick = _counting(progress, "encoding", (parts for _, splits, _ in sides for parts in splits.values()))
    stored = {
        split + suffix: _encode(
            plan.text_format.pieces(parts, tick), plan.text_format, side_tokenizer, folder, split + suffix
        )
        for suffix, splits, side_tokenizer in sides
        for split, parts in splits.items()
    }
    manifest = Manifest(
        format=FORMAT,
        name=corpus.name,
        digest=digest,
        level=plan.level,
        vocab_size=tokenizer.vocab_size,
        source_vocab_size=source.vocab_size if source else None,
        settings=plan.public(),
        originals=tuple(originals.values()),
        tokenizer=tuple(
            StoredFile(name=path.relative_to(folder).as_posix(), bytes=path.stat().st_size, sha256=sha256(path))
            for path in sorted(folder.rglob("*"))
            if path.suffix in (".json", ".txt")
        ),
        splits={
            split: stored[split].model_copy(update={"source": stored.get(f"{split}.source")}) for split in corpus.splits
        },
    )
    with whole_file(folder / MANIFEST) as file:
        file.write((manifest.model_dump_json(indent=2, exclude_none=True) + "\n").encode())
    sync(folder)


def _check_text(plan: PreparationPlan, progress: Progress) -> None:
    """Raises an error, before tokenizer training, if a split has no text or not the published number of words.

    If no number of words is published, only the first piece of the training split is read, to save time.
    """
    corpus, published = plan.corpus, plan.catalogued.published.words if plan.catalogued else {}
    sides = [(corpus.splits, published), (corpus.sources, {})]
    counted = [split for split in SPLITS if split != "train" or split in published]
    tick = _counting(progress, "reading", (splits.get(split, ()) for splits, _ in sides for split in counted))
    for splits, words in sides:
        for split, parts in splits.items():
            is_counted = split in counted
            pieces = plan.text_format.pieces(parts, tick if is_counted else lambda _: None)
            is_empty, count = True, 0
            for text, _ in pieces if is_counted else islice(pieces, 1):
                is_empty, count = False, count + Counts.of(text).words
            if is_empty:
                raise InvalidInput(
                    f"the split {split} of {corpus.name} has no text. Add text, or name the files of the split",
                    field="data",
                    value=corpus.name,
                )
            if plan.catalogued is not None and split in words:
                plan.catalogued.check(f"words in the split {split}", count, words[split])


def _save_tokenizer(plan: PreparationPlan, splits: Mapping[str, Parts], folder: Path, progress: Progress) -> Tokenizer:
    """Creates and saves the tokenizer of one language. A closed vocabulary is built from all splits."""
    is_closed = plan.level in ("bytes", "characters")
    parts = [part for split, in_split in splits.items() if is_closed or split == "train" for part in in_split]
    tick = _counting(progress, "vocabulary", [tuple(parts)])
    texts = (plan.text_format.encoded(piece, eos=not is_closed) for piece in plan.text_format.pieces(parts, tick))
    tokenizer: Tokenizer
    if plan.given is not None:
        tokenizer = plan.given
    elif plan.level == "bytes":
        tokenizer = ByteTokenizer() if plan.alphabet == "all" else ByteTokenizer.of_texts(texts)
    elif plan.level == "characters":
        tokenizer = CharacterTokenizer.of_texts(texts)
    elif plan.level == "words":
        tokenizer = WordTokenizer.of_texts(texts, plan.vocab_size)
    else:
        from edgefront.core.data.tokenizers.bpe import BPETokenizer

        assert plan.vocab_size is not None
        tokenizer = BPETokenizer.train(texts, plan.vocab_size)
    tokenizer.save(folder)
    return tokenizer


def _encode(
    pieces: Iterable[Piece], text_format: TextFormat, tokenizer: Tokenizer, folder: Path, name: str
) -> StoredSplit:
    """Writes the tokens of one split, and the offsets of the split's lines or documents."""
    vocab_size, begins = tokenizer.vocab_size, True
    dtype: Literal["|u1", "<u2", "<i4"] = "|u1" if vocab_size <= 1 << 8 else "<u2" if vocab_size <= 1 << 16 else "<i4"
    characters = words = size = 0
    with (
        _ArrayWriter(folder, f"{name}.tokens", dtype) as tokens,
        _ArrayWriter(folder, f"{name}.starts", "<i8") as starts,
    ):
        starts.add([0])
        for batch in _batched(pieces):
            texts = [text_format.encoded(piece, eos=tokenizer.eos is not None) for piece in batch]
            ends: list[int] = []
            for (text, end), ids in zip(batch, tokenizer.encode_many(texts), strict=True):
                whole = tokenizer.begin(ids) if begins else ids
                tokens.add(tokenizer.end(whole) if end else whole)
                if end:
                    ends.append(tokens.count)
                begins = end
                counts = Counts.of(text)
                characters, words, size = characters + counts.characters, words + counts.words, size + counts.bytes
            if ends:
                starts.add(ends)
        return StoredSplit(
            tokens=tokens.finish(), starts=starts.finish(), dtype=dtype, characters=characters, words=words, bytes=size
        )


def _batched(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    batch: list[Piece] = []
    size = 0
    for piece in pieces:
        batch.append(piece)
        size += len(piece[0])
        if size >= _BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class _ArrayWriter:
    """Appends numbers to a file through a buffer. The file is closed at the end of the `with` block."""

    def __init__(self, folder: Path, name: str, dtype: str) -> None:
        self._file = (folder / name).open("xb")
        self._name, self._dtype, self._hash = name, np.dtype(dtype), hashlib.sha256()
        self._buffer: list[Any] = []
        self._buffered = 0
        self.count = 0

    def __enter__(self) -> _ArrayWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, numbers: Ids | list[int]) -> None:
        self._buffer.append(numbers)
        self._buffered += len(numbers)
        self.count += len(numbers)
        if self._buffered >= _BUFFER:
            self._write()

    def _write(self) -> None:
        if self._buffer:
            raw = np.concatenate(self._buffer).astype(self._dtype).tobytes()
            self._file.write(raw)
            self._hash.update(raw)
        self._buffer, self._buffered = [], 0

    def finish(self) -> StoredFile:
        """Writes the buffered numbers and syncs the file to disk."""
        self._write()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self.count * self._dtype.itemsize
        return StoredFile(name=self._name, bytes=size, sha256=self._hash.hexdigest())

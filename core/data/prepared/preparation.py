"""Prepares a data set: reads its text once or twice, little by little, and leaves a folder of numbers."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import locked, refusing_full_disk, sha256, sync, whole_file
from edgefront.core.data.prepared.encoding import SplitWriter, encode, make_tokenizer
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
    no_progress,
    open_prepared,
)
from edgefront.core.data.sources.corpus import Parts
from edgefront.core.data.sources.data_set import DataSet
from edgefront.core.data.sources.text import Counts
from edgefront.core.data.tokenizers.tokenizers import Tokenizer

_CHUNK = 1 << 20


def prepare(
    data: str | DataSet,
    home: Path,
    *,
    origin: Path | None = None,
    target: Path | None = None,
    settings: Preparation | None = None,
    progress: Progress = no_progress,
) -> Prepared:
    """The prepared data set; made in a folder of `home` unless it is there.

    The folder's name is a digest of the text, the settings and the format, so nothing is prepared twice, and nothing
    stale is taken; nor is what is damaged, for every byte of it is compared. It appears when it is whole: a
    preparation that was killed leaves nothing that is taken for done, and a second one of the same waits for the first.

    Args:
        data: a name in `data_sets()`, or the path of a file or folder.
        origin: the folder that has the published files of a data set with a name.
        target: where `data` is what is translated: the file with the translation, line by line.
        progress: called with what is being done, and how many bytes of how many.

    Raises:
        NotFound: no such data set or file: names what was looked for.
        InvalidInput: a file is empty, no UTF-8, or not as published; a setting is wrong: names it.
        Unavailable: the disk is full; what was written is removed.
    """
    plan = PreparationPlan.make(data, origin, target, settings or Preparation())
    originals = _read_originals(plan, progress)
    digest = plan.digest(originals)
    folder = home / digest
    there = _opened(folder, progress)
    if there is not None:
        return there
    home.mkdir(parents=True, exist_ok=True)
    draft = home / f".preparing-{digest}"
    progress("waiting", 0, 1)
    with refusing_full_disk(folder), locked(home / f".{digest}.lock"):
        there = _opened(folder, progress)
        if there is not None:
            return there
        shutil.rmtree(draft, ignore_errors=True)  # of one that was killed
        draft.mkdir()
        try:
            _write(plan, draft, digest, originals, progress)
            shutil.rmtree(folder, ignore_errors=True)  # it is damaged, or it would have been opened
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync(home)
    return open_prepared(folder)


def _read_originals(plan: PreparationPlan, progress: Progress) -> dict[Path, OriginalFile]:
    """Reads every file once; compares with the published MD5 where there is one."""
    files = plan.corpus.files() + ([plan.vocabulary] if plan.vocabulary else [])
    done, total = 0, sum(path.stat().st_size for path in files)
    published = plan.catalogued.published.md5 if plan.catalogued else None
    originals = {}
    for path in files:
        hashed, other, size = hashlib.sha256(), hashlib.md5(usedforsecurity=False), 0
        with path.open("rb") as file:
            while block := file.read(_CHUNK):
                hashed.update(block)
                if published:
                    other.update(block)
                size += len(block)
                progress("reading", done + size, total)
        done += size
        if published and plan.catalogued and other.hexdigest() != published:
            raise plan.catalogued.wrong(
                path, f"{path} has the MD5 {other.hexdigest()}, and {plan.catalogued.name} has {published}"
            )
        inside = path.is_relative_to(plan.corpus.root) and path != plan.vocabulary
        name = path.relative_to(plan.corpus.root).as_posix() if inside else path.name
        originals[path] = OriginalFile(name=name, bytes=size, sha256=hashed.hexdigest())
    return originals


def _opened(folder: Path, progress: Progress) -> Prepared | None:
    """What is there, every byte as it was written; None if nothing is, or if it is damaged."""
    try:
        return open_prepared(folder, verify=True, progress=progress)
    except (NotFound, InvalidInput):
        return None


def _write(
    plan: PreparationPlan, folder: Path, digest: str, originals: Mapping[Path, OriginalFile], progress: Progress
) -> None:
    corpus = plan.corpus
    _check_text(plan, progress)
    tokenizer = _tokenizer(plan, corpus.splits, folder, progress)
    source = None
    if corpus.sources:
        (folder / SOURCE_FOLDER).mkdir()
        source = _tokenizer(plan, corpus.sources, folder / SOURCE_FOLDER, progress)
    if plan.catalogued is not None and plan.level == "words" and not plan.own_vocabulary:
        plan.catalogued.check("words in the vocabulary", tokenizer.vocab_size, plan.catalogued.published.vocabulary)
    writers = {}
    sides = [("", corpus.splits, tokenizer)]
    if source is not None:
        sides.append((".source", corpus.sources, source))
    total = sum(part.size for _, splits, _ in sides for parts in splits.values() for part in parts)
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress("encoding", done, total)

    for suffix, splits, chosen in sides:
        for split, parts in splits.items():
            with SplitWriter(folder, f"{split}{suffix}", chosen.vocab_size) as writer:
                encode(plan.reading.pieces(parts, tick), plan.reading, chosen, writer)
                writers[split + suffix] = writer.finish()
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
            split: writers[split].model_copy(update={"source": writers.get(f"{split}.source")})
            for split in corpus.splits
        },
    )
    with whole_file(folder / MANIFEST) as file:
        file.write((manifest.model_dump_json(indent=2, exclude_none=True) + "\n").encode())
    sync(folder)


def _check_text(plan: PreparationPlan, progress: Progress) -> None:
    """Refuses, before a tokenizer is trained, a split without text, or with another number of words than published.

    Reads all of each split but that to train on, which what follows reads first, unless its words are published.
    """
    corpus, published = plan.corpus, plan.catalogued.published.words if plan.catalogued else {}
    sides = [(corpus.splits, published), (corpus.sources, {})]
    whole = [split for split in SPLITS if split != "train" or split in published]
    total = sum(part.size for splits, _ in sides for split in whole for part in splits.get(split, ()))
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress("reading", done, total)

    for splits, words in sides:
        for split, parts in splits.items():
            is_whole = split in whole
            pieces = plan.reading.pieces(parts, tick if is_whole else lambda _: None)
            is_empty, count = True, 0
            for text, _ in pieces if is_whole else islice(pieces, 1):
                is_empty, count = False, count + Counts.of(text).words
            if is_empty:
                raise InvalidInput(
                    f"the split {split} of {corpus.name} has no text: take more, or name its files",
                    field="data",
                    value=corpus.name,
                )
            if plan.catalogued is not None and split in words:
                plan.catalogued.check(f"words in the split {split}", count, words[split])


def _tokenizer(plan: PreparationPlan, splits: Mapping[str, Parts], folder: Path, progress: Progress) -> Tokenizer:
    """Makes the tokenizer of one language and saves it."""
    closed = plan.level in ("bytes", "characters")
    parts = [part for split, in_split in splits.items() if closed or split == "train" for part in in_split]
    done, total = 0, sum(part.size for part in parts)

    def tick(count: int) -> None:
        nonlocal done
        done += count
        progress("vocabulary", done, total)

    def texts() -> Iterable[str]:
        return (plan.reading.shaped(piece, eos=not closed) for piece in plan.reading.pieces(parts, tick))

    tokenizer = plan.given or make_tokenizer(plan.level, texts, plan.vocab_size, all_bytes=plan.alphabet == "all")
    tokenizer.save(folder)
    return tokenizer

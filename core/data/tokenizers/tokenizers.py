"""Tokenizers by bytes, characters and words; `core.data.tokenizers.bpe` has byte-pair encoding.

A tokenizer is saved as JSON beside the data set, and can be loaded without the data set. The file `tokenizer.json` for
Hugging Face's transformers is written too.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import whole_file
from edgefront.core.common.hugging_face import TOKENIZER, TOKENIZER_CONFIG
from edgefront.core.data.sources.text import not_utf8

Level = Literal["bytes", "characters", "words", "bpe"]
Ids = NDArray[np.int32]

FILE, VOCABULARY_FILE = "edgefront_tokenizer.json", "vocabulary.txt"
FORMAT = 1
EOS, UNKNOWN = "<eos>", "<unk>"
BOS, MASK, CLS, SEP = "<bos>", "<mask>", "<cls>", "<sep>"
# Names of <eos> and <unk> in other vocabularies; the first name that a vocabulary contains is used.
EOS_NAMES = (EOS, "<S>", "</S>", "</s>", "<|endoftext|>")
UNKNOWN_NAMES = (UNKNOWN, "<UNK>", "[UNK]")

_CODE_POINTS = 0x110000


class Tokenizer(ABC):
    """A vocabulary of `vocab_size` tokens with the ids 0 … vocab_size - 1.

    `eos` is the token that ends a line (words) or a document (bpe), `unknown` the token for words outside the
    vocabulary, `bos` the token before every document; each may be None. `stops` are tokens that end a generation.
    `special` maps names to tokens that encoding a text never produces: <mask>, <cls>, <sep>, <bos>, <eos>.
    """

    level: Level
    vocab_size: int
    eos: int | None = None
    unknown: int | None = None
    bos: int | None = None
    special: Mapping[str, int] = {}
    config_fields: Mapping[str, Any] = {}
    """Fields of `tokenizer_config.json` besides the names of eos and unknown."""

    @property
    def stops(self) -> tuple[int, ...]:
        return () if self.eos is None else (self.eos,)

    @abstractmethod
    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """Encodes each text as int32 ids. Raises `InvalidInput` for a character or byte outside a closed vocabulary."""

    @abstractmethod
    def _decode(self, ids: Ids) -> str: ...

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """Returns the fields of `FILE` other than format and level."""

    @abstractmethod
    def hugging_face(self) -> dict[str, bytes]:
        """Returns files for Hugging Face's transformers by name; empty if transformers cannot give the same tokens."""

    def encode(self, text: str) -> list[int]:
        """Encodes one text without bos and eos."""
        tokens: list[int] = self.encode_many([text])[0].tolist()
        return tokens

    def prompt(self, text: str) -> list[int]:
        """Encodes a text as the beginning of a document, with bos."""
        tokens: list[int] = self.begin(self.encode_many([text])[0]).tolist()
        return tokens

    def prompt_with_special(self, text: str) -> list[int]:
        """Encodes like `prompt`, and turns names of special tokens in the text into these tokens."""
        raise InvalidInput(
            f"a tokenizer of {self.level} recognises no special tokens in a text",
            field="special",
            value=True,
            allowed="a prompt without names of special tokens",
        )

    @property
    def chat_template(self) -> Any:
        """Chat template in Jinja, or several templates with names; None if the tokenizer has no template."""
        return None

    def chat(self, text: str) -> list[int]:
        """Encodes a chat with this user message, up to the answer. Raises `InvalidInput` without a chat template."""
        raise InvalidInput(
            "the model has no chat template", field="chat", value=True, allowed="--no-chat, which continues the text"
        )

    def unused(self, size: int) -> list[int]:
        """Returns the ids below `size` (the model's vocabulary size) that have no token."""
        return list(range(self.vocab_size, size))

    def decode(self, ids: Iterable[int]) -> str:
        """Decodes ids of the vocabulary as text."""
        return self._decode(np.fromiter(ids, np.int32))

    def begin(self, ids: Ids) -> Ids:
        """Puts `bos`, if there is one, before the tokens of a document's beginning."""
        return ids if self.bos is None else np.concatenate([np.array([self.bos], np.int32), ids])

    def end(self, ids: Ids) -> Ids:
        """Appends `<eos>`, if there is one, to the tokens of a line or document."""
        return ids if self.eos is None else np.append(ids, np.int32(self.eos))

    def save(self, folder: Path) -> list[str]:
        """Writes the tokenizer into the folder, as `FILE` and as Hugging Face's files. Returns the files' names."""
        content = {"format": FORMAT, "level": self.level, **self._content()}
        files = {FILE: (json.dumps(content, ensure_ascii=False) + "\n").encode(), **self.hugging_face()}
        for name, text in files.items():
            with whole_file(folder / name) as file:
                file.write(text)
        return list(files)


class _ClosedVocabulary(Tokenizer):
    """Base class of tokenizers with a fixed set of bytes or code points, in the order of token ids."""

    def __init__(self, values: NDArray[Any], size: int) -> None:
        self._values, self.vocab_size = values, len(values)
        self._ids = np.full(size, -1, np.int32)
        self._ids[values] = np.arange(len(values), dtype=np.int32)
        if int((self._ids >= 0).sum()) != len(values):
            raise ValueError("a token occurs twice")

    @abstractmethod
    def _values_of(self, text: str) -> NDArray[Any]: ...

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(self._values_of(text)) for text in texts]

    def _encode(self, values: NDArray[Any]) -> Ids:
        ids: Ids = self._ids[values]
        if ids.size and ids.min() < 0:
            wrong = values[ids < 0][0]
            what = f"byte {wrong}" if self.level == "bytes" else f"character {chr(wrong)!r}"
            allowed = f"one of the {self.vocab_size} {self.level} of its vocabulary"
            raise InvalidInput(f"{what} is not in the vocabulary; it must be {allowed}", field="text", allowed=allowed)
        return ids


class ByteTokenizer(_ClosedVocabulary):
    """Tokenizer with a token per byte: all 256 bytes, or only the given bytes, in the given order (enwik8 has 205)."""

    level = "bytes"

    def __init__(self, values: Sequence[int] = range(256)) -> None:
        super().__init__(np.array(values, np.uint8), 256)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> ByteTokenizer:
        """Returns a tokenizer of the bytes that occur in the texts, in ascending order."""
        seen = np.zeros(256, np.bool_)
        for text in texts:
            seen[np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)] = True
        return cls(np.flatnonzero(seen).tolist())

    def _values_of(self, text: str) -> NDArray[Any]:
        return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)

    def _decode(self, ids: Ids) -> str:
        return self._values[ids].tobytes().decode("utf-8", "replace")

    def _content(self) -> dict[str, Any]:
        return {"bytes": self._values.tolist()}

    def hugging_face(self) -> dict[str, bytes]:
        # In byte-level vocabularies a printable byte is its own character; each other byte has a substitute.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        names = [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        vocabulary = {names[value]: token_id for token_id, value in enumerate(self._values.tolist())}
        return hugging_face_files(_unmerged(vocabulary, pre_tokenizer=level, decoder=level))


class CharacterTokenizer(_ClosedVocabulary):
    """Tokenizer with a token per Unicode code point of a fixed set."""

    level = "characters"

    def __init__(self, characters: str) -> None:
        super().__init__(self._values_of(characters), _CODE_POINTS)

    @classmethod
    def of_texts(cls, texts: Iterable[str]) -> CharacterTokenizer:
        """Returns a tokenizer of the characters that occur in the texts, in the order of code points."""
        seen = np.zeros(_CODE_POINTS, np.bool_)
        for text in texts:
            seen[np.frombuffer(text.encode("utf-32-le"), "<u4")] = True
        return cls("".join(map(chr, np.flatnonzero(seen).tolist())))

    def _values_of(self, text: str) -> NDArray[Any]:
        return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.uint32, copy=False)

    def _decode(self, ids: Ids) -> str:
        return self._values[ids].tobytes().decode("utf-32-le")

    def _content(self) -> dict[str, Any]:
        return {"characters": self._decode(np.arange(self.vocab_size, dtype=np.int32))}

    def hugging_face(self) -> dict[str, bytes]:
        vocabulary = {character: token_id for token_id, character in enumerate(self._content()["characters"])}
        return hugging_face_files(_unmerged(vocabulary, pre_tokenizer=None, decoder={"type": "Fuse"}))


class WordTokenizer(Tokenizer):
    """Tokenizer of words between white space; `<eos>` ends each line, a word outside the vocabulary is `<unk>`.

    `words` are in the order of ids, the most frequent first, as adaptive softmax needs. Raises `InvalidInput` if
    `<eos>` or `<unk>` (or LM1B's `<S>` or `<UNK>`) is missing, or a word occurs twice.
    """

    level = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self.vocab_size = len(self._words)
        self._ids = {word: token_id for token_id, word in enumerate(self._words)}
        if len(self._ids) < self.vocab_size:
            twice = next(word for token_id, word in enumerate(self._words) if self._ids[word] != token_id)
            raise _wrong_vocabulary(f"the vocabulary has {twice!r} twice", "each word once", twice)
        self.eos: int = self._id_of(EOS_NAMES)
        self.unknown: int = self._id_of(UNKNOWN_NAMES)
        self.special = {EOS: self.eos}

    @classmethod
    def of_texts(cls, texts: Iterable[str], vocab_size: int | None) -> WordTokenizer:
        """Returns a tokenizer of `<eos>`, `<unk>` and the words by falling frequency, ties by first occurrence."""
        counter: Counter[str] = Counter()
        for text in texts:
            counter.update(text.split())
        for special in (EOS, UNKNOWN):
            counter.pop(special, None)
        ranked = sorted(counter, key=lambda word: -counter[word])
        return cls([EOS, UNKNOWN, *ranked][:vocab_size])

    @classmethod
    def from_file(cls, path: Path, vocab_size: int | None) -> WordTokenizer:
        """Reads the first word of each line, of at most `vocab_size` lines. Raises the errors of the class."""
        lines = (line.split(None, 1) for line in read_text(path).removeprefix("\ufeff").split("\n"))
        try:
            return cls([line[0] for line in lines if line][:vocab_size])
        except InvalidInput as error:
            raise InvalidInput(
                f"{path}: {error.detail}", field="vocabulary", value=str(path), allowed=error.allowed
            ) from None

    def _id_of(self, names: Sequence[str]) -> int:
        for name in names:
            if name in self._ids:
                return self._ids[name]
        raise _wrong_vocabulary(f"the vocabulary has no {names[0]}", f"a line with one of {', '.join(names)}")

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Ids:
        id_of, unknown = self._ids.get, self.unknown
        tokens: list[int] = []
        for index, line in enumerate(text.split("\n")):
            if index:
                tokens.append(self.eos)
            tokens += [id_of(word, unknown) for word in line.split()]
        return np.array(tokens, np.int32)

    def end(self, ids: Ids) -> Ids:
        """Appends `<eos>` unless the text's final line already ends with `<eos>`."""
        return ids if ids.size and ids[-1] == self.eos else super().end(ids)

    def _decode(self, ids: Ids) -> str:
        lines: list[list[str]] = [[]]
        for token_id in ids.tolist():
            if token_id == self.eos:
                lines.append([])
            else:
                lines[-1].append(self._words[token_id])
        return "\n".join(" ".join(line) for line in lines)

    def save(self, folder: Path) -> list[str]:
        with whole_file(folder / VOCABULARY_FILE) as file:
            file.write("".join(f"{word}\n" for word in self._words).encode())
        return [*super().save(folder), VOCABULARY_FILE]

    def _content(self) -> dict[str, Any]:
        return {"words": self._words}

    def hugging_face(self) -> dict[str, bytes]:
        eos, unknown = self._words[self.eos], self._words[self.unknown]
        pieces = {
            "normalizer": {"type": "Replace", "pattern": {"String": "\n"}, "content": f" {eos} "},
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": self._ids, "unk_token": unknown},
        }
        return hugging_face_files(pieces, eos=eos, unknown=unknown)


def read_text(path: Path) -> str:
    """Reads a UTF-8 file. Raises `NotFound` if the file does not exist."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except UnicodeDecodeError as error:
        raise not_utf8(path, error.start) from None


def hugging_face_files(
    tokenizer: Mapping[str, Any],
    eos: str | None = None,
    unknown: str | None = None,
    config_fields: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """Returns two files: tokenizer.json with the fields of `tokenizer`, tokenizer_config.json with `config_fields`."""
    parts = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    whole = {"version": "1.0", "added_tokens": [], **dict.fromkeys(parts), **tokenizer}
    names: dict[str, Any] = {
        name: token for name, token in (("eos_token", eos), ("unk_token", unknown)) if token is not None
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **names,
        **(config_fields or {}),
    }
    return {
        TOKENIZER: json.dumps(whole, ensure_ascii=False).encode(),
        TOKENIZER_CONFIG: json.dumps(config, ensure_ascii=False, indent=2).encode(),
    }


def _unmerged(vocabulary: Mapping[str, int], *, pre_tokenizer: Any, decoder: Any) -> dict[str, Any]:
    """Returns fields of `tokenizer.json` for single characters as tokens: byte-pair encoding without merges."""
    return {
        "pre_tokenizer": pre_tokenizer,
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": dict(vocabulary), "merges": []},
    }


def _wrong_vocabulary(detail: str, allowed: str, value: str | None = None) -> InvalidInput:
    return InvalidInput(detail, field="vocabulary", value=value, allowed=allowed)

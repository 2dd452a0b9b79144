"""Text as numbers and back: by bytes, characters or words. `core.data.tokenizers.bpe` adds pieces of words.

A tokenizer is saved as plain JSON beside the data that it was made for, and is loaded without that data; Hugging Face's
`tokenizer.json` is written too, for transformers.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import whole_file
from edgefront.core.common.hugging_face import TOKENIZER, TOKENIZER_CONFIG

Level = Literal["bytes", "characters", "words", "bpe"]
Ids = NDArray[np.int32]

FILE, VOCABULARY_FILE = "edgefront_tokenizer.json", "vocabulary.txt"
FORMAT = 1
EOS, UNKNOWN = "<eos>", "<unk>"
BOS, MASK, CLS, SEP = "<bos>", "<mask>", "<cls>", "<sep>"
# What a vocabulary that was made elsewhere may call them; the first that it has.
EOS_NAMES = (EOS, "<S>", "</S>", "</s>", "<|endoftext|>")
UNKNOWN_NAMES = (UNKNOWN, "<UNK>", "[UNK]")

_CODE_POINTS = 0x110000


class Tokenizer(ABC):
    """A vocabulary of `vocab_size` tokens with the numbers 0 … vocab_size - 1.

    `eos` ends a line (words) or a document (bpe), `unknown` stands for words outside the vocabulary, `bos` is put
    before every document; None where there is none. `stops` end a generation. `special` has the tokens that no text is
    encoded as, by name: <mask>, <cls>, <sep>, <bos>, <eos>.
    """

    level: Level
    vocab_size: int
    eos: int | None = None
    unknown: int | None = None
    bos: int | None = None
    special: Mapping[str, int] = {}
    config_fields: Mapping[str, Any] = {}
    """What `tokenizer_config.json` has beyond what follows from the names of the tokens."""

    @property
    def stops(self) -> tuple[int, ...]:
        return () if self.eos is None else (self.eos,)

    @abstractmethod
    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        """The tokens of each text, int32. `InvalidInput` for a character or byte outside a closed vocabulary."""

    @abstractmethod
    def _decode(self, ids: Ids) -> str: ...

    @abstractmethod
    def _content(self) -> dict[str, Any]:
        """What `FILE` has besides the format and the level."""

    @abstractmethod
    def hugging_face(self) -> dict[str, bytes]:
        """The files by which Hugging Face's transformers makes the same tokens, and the names of special ones.

        Empty for a tokenizer that it cannot express.
        """

    def encode(self, text: str) -> list[int]:
        """The tokens of one text; nothing is added at its ends."""
        tokens: list[int] = self.encode_many([text])[0].tolist()
        return tokens

    def prompt(self, text: str) -> list[int]:
        """The tokens of a text that begins a document, or of the beginning of one."""
        tokens: list[int] = self.begin(self.encode_many([text])[0]).tolist()
        return tokens

    def prompt_with_special(self, text: str) -> list[int]:
        """As `prompt`, where the names of special tokens in the text mean these tokens."""
        raise InvalidInput(
            f"a tokenizer of {self.level} has no special tokens that a text can name",
            field="special",
            value=True,
            allowed="a prompt as it is",
        )

    @property
    def chat_template(self) -> Any:
        """A template of Jinja, or several by name; None for a model that does not chat."""
        return None

    def chat(self, text: str) -> list[int]:
        """The tokens of a chat in which a user said this, and the answer is next. `InvalidInput` without a template."""
        raise InvalidInput(
            "the model has no chat template", field="chat", value=True, allowed="--no-chat, which continues the text"
        )

    def unused(self, size: int) -> list[int]:
        """The numbers below `size`, the model's vocabulary, that are no token."""
        return list(range(self.vocab_size, size))

    def decode(self, ids: Iterable[int]) -> str:
        """The text of these tokens. `InvalidInput` for a number that is no token."""
        array = np.fromiter(ids, np.int64)
        wrong = array[(array < 0) | (array >= self.vocab_size)]
        if wrong.size:
            raise InvalidInput(
                f"there is no token {wrong[0]}; there are 0 to {self.vocab_size - 1}",
                field="ids",
                value=int(wrong[0]),
                allowed=f"0 to {self.vocab_size - 1}",
            )
        return self._decode(array.astype(np.int32))

    def begin(self, ids: Ids) -> Ids:
        """The tokens of the beginning of a document, after the `bos` that is put there where the tokenizer has one."""
        return ids if self.bos is None else np.concatenate([np.array([self.bos], np.int32), ids])

    def end(self, ids: Ids) -> Ids:
        """The tokens of a whole line or document, with the `<eos>` that ends it where the level has one."""
        return ids if self.eos is None else np.append(ids, np.int32(self.eos))

    def save(self, folder: Path) -> list[str]:
        """Writes the tokenizer's files into the folder, with those of Hugging Face, and returns their names."""
        content = {"format": FORMAT, "level": self.level, **self._content()}
        files = {FILE: (json.dumps(content, ensure_ascii=False) + "\n").encode(), **self.hugging_face()}
        for name, text in files.items():
            with whole_file(folder / name) as file:
                file.write(text)
        return list(files)


class _Closed(Tokenizer):
    """A closed vocabulary: the bytes or code points that there are, in the order of their numbers."""

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


class Bytes(_Closed):
    """The bytes of UTF-8: all 256, or only those given, in this order (enwik8 has 205)."""

    level = "bytes"

    def __init__(self, values: Sequence[int] = range(256)) -> None:
        super().__init__(np.array(values, np.uint8), 256)

    def _values_of(self, text: str) -> NDArray[Any]:
        return np.frombuffer(text.encode("utf-8", "surrogateescape"), np.uint8)

    def _decode(self, ids: Ids) -> str:
        return self._values[ids].tobytes().decode("utf-8", "replace")

    def _content(self) -> dict[str, Any]:
        return {"bytes": self._values.tolist()}

    def hugging_face(self) -> dict[str, bytes]:
        # The character that stands for each byte in byte-level vocabularies: itself if printable, else another.
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        names = [chr(byte if byte in printable else 256 + others.index(byte)) for byte in range(256)]
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        vocabulary = {names[value]: number for number, value in enumerate(self._values.tolist())}
        return hugging_face_files(_unmerged(vocabulary, pre_tokenizer=level, decoder=level))


class Characters(_Closed):
    """A closed set of Unicode code points."""

    level = "characters"

    def __init__(self, characters: str) -> None:
        super().__init__(self._values_of(characters), _CODE_POINTS)

    def _values_of(self, text: str) -> NDArray[Any]:
        return np.frombuffer(text.encode("utf-32-le"), "<u4").astype(np.uint32, copy=False)

    def _decode(self, ids: Ids) -> str:
        return self._values[ids].tobytes().decode("utf-32-le")

    def _content(self) -> dict[str, Any]:
        return {"characters": self._decode(np.arange(self.vocab_size, dtype=np.int32))}

    def hugging_face(self) -> dict[str, bytes]:
        vocabulary = {character: number for number, character in enumerate(self._content()["characters"])}
        return hugging_face_files(_unmerged(vocabulary, pre_tokenizer=None, decoder={"type": "Fuse"}))


class Words(Tokenizer):
    """Words between white space, each line ended by `<eos>`; a word outside the vocabulary is `<unk>`.

    The words of the vocabulary stand in the order of their numbers, the most frequent first (adaptive softmax counts
    on it). `InvalidInput` where `<eos>` or `<unk>` (or what LM1B's list calls them) is missing, or a word stands twice.
    """

    level = "words"

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        self.vocab_size = len(self._words)
        self._ids = {word: number for number, word in enumerate(self._words)}
        if len(self._ids) < self.vocab_size:
            twice = next(word for number, word in enumerate(self._words) if self._ids[word] != number)
            raise _wrong_vocabulary(f"the vocabulary has {twice!r} twice", "each word once", twice)
        self.eos: int = self._named(EOS_NAMES)
        self.unknown: int = self._named(UNKNOWN_NAMES)
        self.special = {EOS: self.eos}

    def _named(self, names: Sequence[str]) -> int:
        for name in names:
            if name in self._ids:
                return self._ids[name]
        raise _wrong_vocabulary(f"the vocabulary has no {names[0]}", f"a line with one of {', '.join(names)}")

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Ids:
        number_of, unknown = self._ids.get, self.unknown
        tokens: list[int] = []
        for number, line in enumerate(text.split("\n")):
            if number:
                tokens.append(self.eos)
            tokens += [number_of(word, unknown) for word in line.split()]
        return np.array(tokens, np.int32)

    def end(self, ids: Ids) -> Ids:
        """A text's last line may have been ended already."""
        return ids if ids.size and ids[-1] == self.eos else super().end(ids)

    def _decode(self, ids: Ids) -> str:
        lines: list[list[str]] = [[]]
        for number in ids.tolist():
            if number == self.eos:
                lines.append([])
            else:
                lines[-1].append(self._words[number])
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


def hugging_face_files(
    tokenizer: Mapping[str, Any],
    eos: str | None = None,
    unknown: str | None = None,
    config_fields: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """The two files of a tokenizer; `tokenizer`: the parts that the first has, `config_fields`: more of the second."""
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
    """Byte-pair encoding without merges: every character is a token."""
    return {
        "pre_tokenizer": pre_tokenizer,
        "decoder": decoder,
        "model": {"type": "BPE", "vocab": dict(vocabulary), "merges": []},
    }


def _wrong_vocabulary(detail: str, allowed: str, value: str | None = None) -> InvalidInput:
    return InvalidInput(detail, field="vocabulary", value=value, allowed=allowed)

"""Byte-level byte-pair encoding, by Hugging Face's `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer as HuggingFace
from tokenizers import decoders, models, pre_tokenizers, trainers

from edgefront.core.data.tokenizers.tokenizers import (
    BOS,
    CLS,
    EOS,
    EOS_NAMES,
    MASK,
    SEP,
    UNKNOWN_NAMES,
    Ids,
    Tokenizer,
    hugging_face_files,
)
from edgefront.core.errors import InvalidInput, NotFound

SPECIAL = (EOS, BOS, MASK, CLS, SEP)
# What a vocabulary that was made elsewhere may call them.
_NAMES = {
    EOS: EOS_NAMES,
    BOS: (BOS, "<s>"),
    MASK: (MASK, "[MASK]"),
    CLS: (CLS, "[CLS]"),
    SEP: (SEP, "[SEP]"),
}
SMALLEST = 256 + len(SPECIAL)
"""The vocabulary of byte-level pieces before anything is merged."""


class Pieces(Tokenizer):
    """Pieces of words; any text has some, so none is unknown. A document is ended by `<eos>`."""

    level = "bpe"

    def __init__(self, model: HuggingFace, special: Mapping[str, int]) -> None:
        # A text that has "<mask>" in it means these six characters.
        model.encode_special_tokens = True
        self._model = model
        self.vocab_size = model.get_vocab_size()
        self.special = dict(special)
        self.eos = self.special.get(EOS)
        self.unknown = _first(model, UNKNOWN_NAMES)

    @classmethod
    def train(cls, texts: Iterator[str], vocab_size: int) -> Pieces:
        """Learns `vocab_size` pieces (fewer where the text has no more); the same texts give the same pieces."""
        if vocab_size < SMALLEST:
            raise InvalidInput(
                f"vocab_size must be at least {SMALLEST}: 256 bytes, {len(SPECIAL)} special tokens; not {vocab_size}",
                field="vocab_size",
                value=vocab_size,
                allowed=f"at least {SMALLEST}",
            )
        model = HuggingFace(models.BPE())
        model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        model.train_from_iterator(texts, trainer)
        return cls(model, {name: number for number, name in enumerate(SPECIAL)})

    @classmethod
    def given(cls, path: Path) -> Pieces:
        """A `tokenizer.json` of Hugging Face's, such as GPT-2's or BERT's. `InvalidInput` where it is none."""
        try:
            model = HuggingFace.from_str(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NotFound(f"there is no file {path}") from None
        except OSError:
            raise
        except Exception as error:  # the package raises Exception itself
            raise InvalidInput(
                f"{path} is not a tokenizer.json of Hugging Face's tokenizers: {error}",
                field="vocabulary",
                value=str(path),
                allowed="a tokenizer.json",
            ) from None
        model.no_padding()
        model.no_truncation()
        found = {ours: _first(model, names) for ours, names in _NAMES.items()}
        special = {ours: number for ours, number in found.items() if number is not None}
        # Others of its own, such as [PAD], are no words either.
        own = {token.content: number for number, token in model.get_added_tokens_decoder().items() if token.special}
        return cls(model, special | {name: number for name, number in own.items() if number not in special.values()})

    @classmethod
    def read(cls, path: Path, special: Mapping[str, int]) -> Pieces:
        """What `save` wrote: the pieces are in Hugging Face's own form."""
        text = path.read_text(encoding="utf-8")
        try:
            return cls(HuggingFace.from_str(text), special)
        except Exception as error:  # the package raises Exception itself
            raise InvalidInput(
                f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
            ) from None

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        found = self._model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in found]

    def _decode(self, ids: Ids) -> str:
        return str(self._model.decode(ids.tolist(), skip_special_tokens=True))

    def _content(self) -> dict[str, Any]:
        return {"special": dict(self.special)}

    def hugging_face(self) -> dict[str, bytes]:
        eos, unknown = (
            None if number is None else self._model.id_to_token(number) for number in (self.eos, self.unknown)
        )
        return hugging_face_files(json.loads(self._model.to_str()), eos, unknown)


def _first(model: HuggingFace, names: Sequence[str]) -> int | None:
    """The number of the first of these tokens that there is."""
    numbers: list[int | None] = [model.token_to_id(name) for name in names]
    return next((number for number in numbers if number is not None), None)

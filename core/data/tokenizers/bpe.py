"""Byte-level byte-pair encoding, by Hugging Face's `tokenizers`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from tokenizers import Tokenizer as HuggingFace
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import GENERATION_CONFIG, TOKENIZER, refuse_pointer
from edgefront.core.data.tokenizers.stated import Stated, stated_in
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

Template = str | list[dict[str, str]]
"""A Jinja template, or several with their names."""
_DEFAULT = "default"


def rendered(template: Template, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    """The text of these messages, up to where the answer begins; special tokens are written in it.

    `tokens` are those that templates name: bos_token, eos_token … Raises `InvalidInput` for a template that is invalid,
    has no default, or refuses the messages.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}`, which marks what an assistant said; what is in it is rendered as it is."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = _to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(form),
    }
    try:
        return environment.from_string(_chosen(template)).render(
            messages=[dict(message) for message in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **tokens,
        )
    except (TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:  # a template is a program
        raise InvalidInput(
            f"the model's chat template cannot be used: {error}",
            field="chat",
            allowed="--no-chat, which continues the text",
        ) from None


def _chosen(template: Template) -> str:
    if isinstance(template, str):
        return template
    named = {choice.get("name"): choice.get("template", "") for choice in template}
    if _DEFAULT not in named:
        raise InvalidInput(
            f"the model has chat templates {', '.join(map(str, named))}, and none of them is the default",
            field="chat",
            allowed="--no-chat, which continues the text",
        )
    return named[_DEFAULT]


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON without HTML escapes, unlike that of Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


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
MAX_TRAINED_BYTES = 1024
"""A longer run of bytes without a cut (DNA, a line of dashes) is seen in parts by training.

The trainer takes time by the square of a run. Training on Python's standard library, whose longest has 96, gives
the same pieces with this bound and without.
"""


class Pieces(Tokenizer):
    """Pieces of words; any text has some, so none is unknown. A document is ended by `<eos>`.

    One that was made elsewhere may also put a token before each document (Llama's does, Qwen's does not), end a
    generation at several tokens, lack some numbers below its highest, and bring a chat template: `stated`.
    """

    level = "bpe"

    def __init__(self, model: HuggingFace, special: Mapping[str, int], stated: Stated | None = None) -> None:
        stated = stated or Stated()
        # A text that has "<mask>" in it means these six characters.
        model.encode_special_tokens = True
        self._model = model
        self._numbers = frozenset(model.get_vocab(with_added_tokens=True).values())
        self.vocab_size = max(self._numbers, default=-1) + 1
        self.special = dict(special)
        self.eos = self.special.get(EOS)
        self.unknown = _token(model, stated, "unk_token", UNKNOWN_NAMES)
        bos, pad = (_token(model, stated, f"{name}_token") for name in ("bos", "pad"))
        adds = _adds(model, stated, bos, self.eos)
        if adds is not None and adds[0] is not None:
            self.bos = bos = adds[0]
        ends = [end for end in stated.ends if end in self._numbers and end != self.eos]
        self._stops = tuple(end for end in (self.eos, *ends) if end is not None)
        said = [("eos_token_id", end) for end in stated.ends] + list(stated.ids.items())
        self.left_out = tuple(
            (name, number, stated.numbers_file) for name, number in said if number not in self._numbers
        )
        """Role, number and file of what is said to be a token, and is none here."""
        ids = {"bos_token_id": bos, "pad_token_id": pad}
        self._ids = {name: number for name, number in ids.items() if number is not None}
        fields: dict[str, Any] = {
            name.removesuffix("_id"): model.id_to_token(number) for name, number in self._ids.items()
        }
        if adds is not None:
            fields |= {"add_bos_token": adds[0] is not None, "add_eos_token": adds[1]}
        if self.eos is not None and self.eos != _first(model, EOS_NAMES):
            fields["eos_token"] = model.id_to_token(self.eos)
        if stated.chat_template is not None:
            fields["chat_template"] = stated.chat_template
        self.config_fields = fields

    @property
    def stops(self) -> tuple[int, ...]:
        return self._stops

    @classmethod
    def train(cls, texts: Iterator[str], vocab_size: int) -> Pieces:
        """Learns `vocab_size` pieces (fewer where the text has no more); the same texts give the same pieces."""
        check_size(vocab_size)
        model = HuggingFace(models.BPE())
        model.pre_tokenizer = pre_tokenizers.Sequence([_gpt2_cuts(), pre_tokenizers.FixedLength(MAX_TRAINED_BYTES)])
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        model.train_from_iterator(texts, trainer)
        model.pre_tokenizer = _gpt2_cuts()
        return cls(model, {name: number for number, name in enumerate(SPECIAL)})

    @classmethod
    def given(cls, path: Path) -> Pieces:
        """A `tokenizer.json` of Hugging Face's, such as GPT-2's or BERT's, with what the files beside it say of it.

        `InvalidInput` where it is none.
        """
        try:
            text = path.read_text(encoding="utf-8-sig")
            refuse_pointer(text, path)
            model = HuggingFace.from_str(text)
        except InvalidInput:
            raise
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
        stated = stated_in(path.parent) if path.name == TOKENIZER else Stated()
        numbers = {ours: _first(model, names) for ours, names in _NAMES.items()}
        end = _token(model, stated, "eos_token")
        if end is None:
            end = next((end for end in stated.ends if _is_token(model, end)), None)
        numbers[EOS] = numbers[EOS] if end is None else end
        special = {ours: number for ours, number in numbers.items() if number is not None}
        # Others of its own, such as [PAD], are no words either.
        own = {token.content: number for number, token in model.get_added_tokens_decoder().items() if token.special}
        own = {name: number for name, number in own.items() if number not in special.values()}
        return cls(model, special | own, stated)

    @classmethod
    def read(cls, path: Path, content: Mapping[str, Any]) -> Pieces:
        """What `save` wrote: the pieces are in Hugging Face's own form, `content` says the rest."""
        text, special, bos = path.read_text(encoding="utf-8"), content["special"], content["bos"]
        try:
            model, stated = HuggingFace.from_str(text), stated_in(path.parent)
            tokens: dict[str, str] = {} if bos is None else {"bos_token": str(model.id_to_token(bos))}
            adds = {**stated.adds, "add_bos_token": bos is not None} if bos is not None or stated.adds else {}
            return cls(model, special, replace(stated, tokens={**stated.tokens, **tokens}, adds=adds))
        except InvalidInput:
            raise
        except Exception as error:  # the package raises Exception itself
            raise InvalidInput(
                f"{path} is damaged ({error}); prepare the data again", field="tokenizer", value=str(path)
            ) from None

    def encode_many(self, texts: Sequence[str]) -> list[Ids]:
        encodings = self._model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, np.int32) for encoding in encodings]

    def prompt_with_special(self, text: str) -> list[int]:
        tokens = self._with_special(text)
        return tokens if self.bos is None or tokens[:1] == [self.bos] else [self.bos, *tokens]

    @property
    def chat_template(self) -> Any:
        return self.config_fields.get("chat_template")

    def chat(self, text: str) -> list[int]:
        if self.chat_template is None:
            return super().chat(text)
        named = {name: value for name, value in self.config_fields.items() if name.endswith("_token")}
        for name, number in (("eos_token", self.eos), ("unk_token", self.unknown)):
            if number is not None:
                named.setdefault(name, str(self._model.id_to_token(number)))
        tokens = {name: value for name, value in named.items() if isinstance(value, str)}
        return self._with_special(rendered(self.chat_template, [{"role": "user", "content": text}], tokens))

    def _with_special(self, text: str) -> list[int]:
        self._model.encode_special_tokens = False
        try:
            ids: list[int] = self._model.encode(text, add_special_tokens=False).ids
        finally:
            self._model.encode_special_tokens = True
        return ids

    def _decode(self, ids: Ids) -> str:
        return str(self._model.decode(ids.tolist(), skip_special_tokens=True))

    def _content(self) -> dict[str, Any]:
        return {"special": dict(self.special), "bos": self.bos}

    def hugging_face(self) -> dict[str, bytes]:
        eos, unknown = (
            None if number is None else self._model.id_to_token(number) for number in (self.eos, self.unknown)
        )
        files = hugging_face_files(json.loads(self._model.to_str()), eos, unknown, self.config_fields)
        ids: dict[str, Any] = dict(self._ids)
        if len(self._stops) > 1 or (ids and self._stops):
            ids["eos_token_id"] = list(self._stops) if len(self._stops) > 1 else self._stops[0]
        return files | ({GENERATION_CONFIG: json.dumps(ids, indent=2).encode()} if ids else {})

    def unused(self, size: int) -> list[int]:
        return [number for number in range(size) if number not in self._numbers]


def check_size(vocab_size: int) -> None:
    """`InvalidInput` where `Pieces.train` cannot learn a vocabulary of this size."""
    if vocab_size < SMALLEST:
        raise InvalidInput(
            f"vocab_size must be at least {SMALLEST}: 256 bytes, {len(SPECIAL)} special tokens; not {vocab_size}",
            field="vocab_size",
            value=vocab_size,
            allowed=f"at least {SMALLEST}",
        )


def _gpt2_cuts() -> pre_tokenizers.PreTokenizer:
    """Cuts a text as GPT-2 does, into runs of letters, of digits, of white space and of other characters, as bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _token(model: HuggingFace, stated: Stated, name: str, names: Sequence[str] = ()) -> int | None:
    """The number of the token in this role; that of the first of `names` that there is where nothing is stated."""
    if name in stated.tokens:
        number: int | None = model.token_to_id(stated.tokens[name])
        if number is not None:
            return number
    number = stated.ids.get(f"{name}_id")
    if number is not None and _is_token(model, number):
        return number
    return _first(model, names)


def _is_token(model: HuggingFace, number: int) -> bool:
    """Also of numbers that the package cannot take."""
    return number < 1 << 32 and model.id_to_token(number) is not None


def _adds(model: HuggingFace, stated: Stated, bos: int | None, eos: int | None) -> tuple[int | None, bool] | None:
    """The token that is put before a text, and whether `eos` is put after it; None where neither is so, or where others
    are put there, as BERT's. What is stated decides, flag by flag, and the model is made to do so.
    """
    before, after = _put_around(model)
    around = (before[0] if len(before) == 1 else None, after == [eos])
    is_other = len(before) > 1 or after not in ([], [eos]) or bool(before and after and before[0] != bos)
    if not stated.adds and (is_other or around == (None, False)):
        return None
    begin = around[0] if stated.adds.get("add_bos_token", True) else None
    if stated.adds.get("add_bos_token") and bos is not None:
        begin = bos
    end = eos if stated.adds.get("add_eos_token", around[1]) else None
    if is_other or around != (begin, end is not None):
        names = [None if number is None else model.id_to_token(number) for number in (begin, end)]
        model.post_processor = processors.TemplateProcessing(
            single=[name for name in (names[0], "$A", names[1]) if name is not None],
            special_tokens=list({name: (name, model.token_to_id(name)) for name in names if name is not None}.values()),
        )
    return begin, end is not None


def _put_around(model: HuggingFace) -> tuple[list[int], list[int]]:
    """The tokens that are put before and after a text."""
    if model.post_processor is None:
        return [], []
    encoding = model.encode("a")
    marks: list[int] = encoding.special_tokens_mask
    if 0 not in marks:
        return [], []
    return encoding.ids[: marks.index(0)], encoding.ids[len(marks) - marks[::-1].index(0) :]


def _first(model: HuggingFace, names: Sequence[str]) -> int | None:
    """The number of the first of these tokens that there is."""
    numbers: list[int | None] = [model.token_to_id(name) for name in names]
    return next((number for number in numbers if number is not None), None)

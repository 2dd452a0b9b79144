"""Byte-level byte-pair encoding, implemented with the library `tokenizers` of Hugging Face."""

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
from edgefront.core.data.tokenizers.tokenizer_config import TokenizerConfig, read_tokenizer_config
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
"""A chat template in Jinja, or several chat templates by name."""


def render_chat(template: Template, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str:
    """Renders messages as a prompt, with special tokens written out, up to the start of the answer.

    `tokens` maps names in templates to tokens: bos_token, eos_token … Raises `InvalidInput` if the
    template is invalid or refuses the messages, or if several templates have no default.
    """
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Jinja tag `{% generation %}`, which marks answers of the assistant; the tag's body is rendered unchanged."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> list[nodes.Node]:
            next(parser.stream)
            body: list[nodes.Node] = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return body

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def to_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Returns JSON without HTML escapes, unlike Jinja's filter `tojson`."""
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    if not isinstance(template, str):
        by_name = {entry.get("name"): entry.get("template", "") for entry in template}
        if "default" not in by_name:
            raise InvalidInput(
                f"the model has chat templates {', '.join(map(str, by_name))}, but no default template",
                field="chat",
                allowed="--no-chat, which continues the text",
            )
        template = by_name["default"]
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    environment.filters["tojson"] = to_json
    environment.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": lambda form: datetime.now().astimezone().strftime(form),
    }
    try:
        return environment.from_string(template).render(
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


SPECIAL = (EOS, BOS, MASK, CLS, SEP)
# Names of the special tokens in other vocabularies.
_NAMES = {
    EOS: EOS_NAMES,
    BOS: (BOS, "<s>"),
    MASK: (MASK, "[MASK]"),
    CLS: (CLS, "[CLS]"),
    SEP: (SEP, "[SEP]"),
}
SMALLEST = 256 + len(SPECIAL)
"""Size of a byte-level vocabulary without merges."""
MAX_TRAINED_BYTES = 1024
"""Maximum length of a run of bytes without a cut, for training; longer runs (DNA, a line of dashes) are split.

The trainer's time grows with the square of a run's length. On Python's standard library, whose longest run has 96
bytes, the bound changes no token.
"""


class BPETokenizer(Tokenizer):
    """Byte-pair encoding of any text; `<eos>` ends a document.

    A tokenizer from Hugging Face may also have, as `config` says: a token before each document (as Llama's), several
    tokens that end a generation, unused ids, and a chat template.
    """

    level = "bpe"

    def __init__(self, model: HuggingFace, special: Mapping[str, int], config: TokenizerConfig | None = None) -> None:
        config = config or TokenizerConfig()
        # "<mask>" in a text means these six characters.
        model.encode_special_tokens = True
        self._model = model
        self._vocabulary = frozenset(model.get_vocab(with_added_tokens=True).values())
        self.vocab_size = max(self._vocabulary, default=-1) + 1
        self.special = dict(special)
        self.eos = self.special.get(EOS)
        self.unknown = _token(model, config, "unk_token", UNKNOWN_NAMES)
        bos, pad = (_token(model, config, f"{name}_token") for name in ("bos", "pad"))
        added = _set_added_tokens(model, config, bos, self.eos)
        if added is not None and added[0] is not None:
            self.bos = bos = added[0]
        eos_ids = [eos for eos in config.eos_ids if eos in self._vocabulary and eos != self.eos]
        self._stops = tuple(eos for eos in (self.eos, *eos_ids) if eos is not None)
        configured = [("eos_token_id", eos) for eos in config.eos_ids] + list(config.ids.items())
        self.ignored_ids = tuple(
            (role, token_id, config.ids_file) for role, token_id in configured if token_id not in self._vocabulary
        )
        """Role, id and file of each configured token that is missing from the vocabulary."""
        ids = {"bos_token_id": bos, "pad_token_id": pad}
        self._ids = {name: token_id for name, token_id in ids.items() if token_id is not None}
        fields: dict[str, Any] = {
            name.removesuffix("_id"): model.id_to_token(token_id) for name, token_id in self._ids.items()
        }
        if added is not None:
            fields |= {"add_bos_token": added[0] is not None, "add_eos_token": added[1]}
        if self.eos is not None and self.eos != _first(model, EOS_NAMES):
            fields["eos_token"] = model.id_to_token(self.eos)
        if config.chat_template is not None:
            fields["chat_template"] = config.chat_template
        self.config_fields = fields

    @property
    def stops(self) -> tuple[int, ...]:
        return self._stops

    @classmethod
    def train(cls, texts: Iterator[str], vocab_size: int) -> BPETokenizer:
        """Creates a tokenizer by learning at most `vocab_size` tokens; the same texts give the same tokens."""
        check_size(vocab_size)
        model = HuggingFace(models.BPE())
        model.pre_tokenizer = pre_tokenizers.Sequence(
            [_gpt2_pre_tokenizer(), pre_tokenizers.FixedLength(MAX_TRAINED_BYTES)]
        )
        model.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            special_tokens=list(SPECIAL),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        model.train_from_iterator(texts, trainer)
        model.pre_tokenizer = _gpt2_pre_tokenizer()
        return cls(model, {name: token_id for token_id, name in enumerate(SPECIAL)})

    @classmethod
    def from_file(cls, path: Path) -> BPETokenizer:
        """Reads a Hugging Face `tokenizer.json`, such as GPT-2's or BERT's, and the configuration in the same folder.

        Raises `InvalidInput` for a file of another format.
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
                f"{path} is not a Hugging Face tokenizer.json: {error}",
                field="vocabulary",
                value=str(path),
                allowed="a tokenizer.json",
            ) from None
        model.no_padding()
        model.no_truncation()
        config = read_tokenizer_config(path.parent) if path.name == TOKENIZER else TokenizerConfig()
        ids = {name: _first(model, aliases) for name, aliases in _NAMES.items()}
        eos = _token(model, config, "eos_token")
        if eos is None:
            eos = next((eos for eos in config.eos_ids if _is_token(model, eos)), None)
        ids[EOS] = ids[EOS] if eos is None else eos
        special = {name: token_id for name, token_id in ids.items() if token_id is not None}
        # Further special tokens, such as [PAD].
        own = {token.content: token_id for token_id, token in model.get_added_tokens_decoder().items() if token.special}
        own = {name: token_id for name, token_id in own.items() if token_id not in special.values()}
        return cls(model, special | own, config)

    @classmethod
    def load(cls, path: Path, content: Mapping[str, Any]) -> BPETokenizer:
        """Restores a saved tokenizer from the Hugging Face file `path` and the other fields `content`."""
        text, special, bos = path.read_text(encoding="utf-8"), content["special"], content["bos"]
        try:
            model, config = HuggingFace.from_str(text), read_tokenizer_config(path.parent)
            tokens: dict[str, str] = {} if bos is None else {"bos_token": str(model.id_to_token(bos))}
            adds = {**config.adds, "add_bos_token": bos is not None} if bos is not None or config.adds else {}
            return cls(model, special, replace(config, tokens={**config.tokens, **tokens}, adds=adds))
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
        fields = {name: value for name, value in self.config_fields.items() if name.endswith("_token")}
        for name, token_id in (("eos_token", self.eos), ("unk_token", self.unknown)):
            if token_id is not None:
                fields.setdefault(name, str(self._model.id_to_token(token_id)))
        tokens = {name: value for name, value in fields.items() if isinstance(value, str)}
        return self._with_special(render_chat(self.chat_template, [{"role": "user", "content": text}], tokens))

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
            None if token_id is None else self._model.id_to_token(token_id) for token_id in (self.eos, self.unknown)
        )
        files = hugging_face_files(json.loads(self._model.to_str()), eos, unknown, self.config_fields)
        ids: dict[str, Any] = dict(self._ids)
        if len(self._stops) > 1 or (ids and self._stops):
            ids["eos_token_id"] = list(self._stops) if len(self._stops) > 1 else self._stops[0]
        return files | ({GENERATION_CONFIG: json.dumps(ids, indent=2).encode()} if ids else {})

    def unused(self, size: int) -> list[int]:
        return [token_id for token_id in range(size) if token_id not in self._vocabulary]


def check_size(vocab_size: int) -> None:
    """Raises `InvalidInput` if the vocabulary is too small for `BPETokenizer.train`."""
    if vocab_size < SMALLEST:
        raise InvalidInput(
            f"vocab_size must be at least {SMALLEST} (256 bytes and {len(SPECIAL)} special tokens), not {vocab_size}",
            field="vocab_size",
            value=vocab_size,
            allowed=f"at least {SMALLEST}",
        )


def _gpt2_pre_tokenizer() -> pre_tokenizers.PreTokenizer:
    """Splits a text into runs of letters, digits, white space and other characters, as bytes."""
    return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _token(model: HuggingFace, config: TokenizerConfig, role: str, names: Sequence[str] = ()) -> int | None:
    """Returns the id of the configured token for this role, else of the first of `names` in the vocabulary."""
    if role in config.tokens:
        token_id: int | None = model.token_to_id(config.tokens[role])
        if token_id is not None:
            return token_id
    token_id = config.ids.get(f"{role}_id")
    if token_id is not None and _is_token(model, token_id):
        return token_id
    return _first(model, names)


def _is_token(model: HuggingFace, token_id: int) -> bool:
    return token_id < 1 << 32 and model.id_to_token(token_id) is not None  # the package takes 32 bits


def _set_added_tokens(
    model: HuggingFace, config: TokenizerConfig, bos: int | None, eos: int | None
) -> tuple[int | None, bool] | None:
    """Returns a pair: the token before a text, and whether `eos` ends a text. Changes the model's post-processor.

    If the configuration has no flags: None without tokens to add, or if other tokens are added (BERT). Each flag of the
    configuration overrides `tokenizer.json`.
    """
    before, after = [], list[int]()
    if model.post_processor is not None:
        encoding = model.encode("a")
        mask: list[int] = encoding.special_tokens_mask
        if 0 in mask:
            before = encoding.ids[: mask.index(0)]
            after = encoding.ids[len(mask) - mask[::-1].index(0) :]
    current = (before[0] if len(before) == 1 else None, after == [eos])
    is_other = len(before) > 1 or after not in ([], [eos]) or bool(before and after and before[0] != bos)
    if not config.adds and (is_other or current == (None, False)):
        return None
    begin = current[0] if config.adds.get("add_bos_token", True) else None
    if config.adds.get("add_bos_token") and bos is not None:
        begin = bos
    end = eos if config.adds.get("add_eos_token", current[1]) else None
    if is_other or current != (begin, end is not None):
        names = [None if token_id is None else model.id_to_token(token_id) for token_id in (begin, end)]
        model.post_processor = processors.TemplateProcessing(
            single=[name for name in (names[0], "$A", names[1]) if name is not None],
            special_tokens=list({name: (name, model.token_to_id(name)) for name in names if name is not None}.values()),
        )
    return begin, end is not None


def _first(model: HuggingFace, names: Sequence[str]) -> int | None:
    """Id of the first of `names` that the vocabulary contains."""
    ids: list[int | None] = [model.token_to_id(name) for name in names]
    return next((token_id for token_id in ids if token_id is not None), None)

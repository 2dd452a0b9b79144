"""Small tokenizers in the form in which Hugging Face's hub has those of known models, each in a folder of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = (
    "Once upon a time, 12 345 naïve café-goers (ages 7–99) said: “Γειά σου, κόσμε!” It's 3.14 €; don't they'LL  go?\n"
    "\tdef f(x):\r\n    return x**2  # квадрат 二乗 🙂👍🏽 é\n\n  the end   "
)
SAMPLE = [TEXT, "the quick brown fox isn't there, in 2024 or 1999\n" * 3, "κόσμε квадрат 二乗 naïve café " * 4]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CHAT = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
_SPACE = "▁"


def split(pattern: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


DIGITS = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)


def of_bytes(pre: Any, special: list[str], normalizer: Any = None, **model: Any) -> Tokenizer:
    """Byte-level BPE of 400 tokens, and the special ones after them, without merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        SAMPLE, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    )
    described = json.loads(tokenizer.to_str())
    described["model"] |= model
    tokenizer = Tokenizer.from_str(json.dumps(described))
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    return tokenizer


def merges_of(ranked: list[str], vocabulary: Mapping[str, int]) -> list[tuple[str, str]]:
    """Every way to split each of these tokens in two, as transformers makes merges of SentencePiece's scores."""
    return [
        (token[:end], token[end:])
        for token in ranked
        for end in range(1, len(token))
        if token[:end] in vocabulary and token[end:] in vocabulary
    ]


def of_pieces(*, metaspace: str | None = None) -> Tokenizer:
    """SentencePiece's BPE with byte fallback; `metaspace`: where a space is put before a text, by a pre-tokenizer."""
    learnt = Tokenizer(models.BPE())
    learnt.normalizer = normalizers.Replace(" ", _SPACE)
    learnt.pre_tokenizer = pre_tokenizers.Split(_SPACE, "merged_with_next")
    learnt.train_from_iterator(
        [text.replace("🙂", "").replace("二", "") for text in SAMPLE],
        trainers.BpeTrainer(vocab_size=420, show_progress=False),
    )
    ranked = sorted(learnt.get_vocab(), key=learnt.get_vocab().__getitem__)
    runs = [_SPACE * count for count in (2, 4)]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *runs, *ranked]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys(names))}
    merges = merges_of([*(piece for piece in ranked if len(piece) > 1), *runs], vocabulary)
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    if metaspace is None:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(_SPACE, metaspace, split=False)
    strip = [] if metaspace == "never" else [decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in ("<unk>", "<s>", "</s>")]
    )
    return tokenizer


def _begins(tokenizer: Tokenizer, token: str) -> Tokenizer:
    template = processors.TemplateProcessing(
        single=[token, "$A"], special_tokens=[(token, tokenizer.token_to_id(token))]
    )
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def _token(content: str) -> dict[str, Any]:
    return {"__type": "AddedToken", "content": content, "lstrip": False, "rstrip": False, "special": True}


def _llama2() -> tuple[Tokenizer, dict[str, Any]]:
    config = {"bos_token": _token("<s>"), "eos_token": _token("</s>"), "unk_token": _token("<unk>")}
    return _begins(of_pieces(), "<s>"), {
        "tokenizer_config.json": {**config, "pad_token": None, "tokenizer_class": "LlamaTokenizer"},
        "generation_config.json": {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0},
    }


def _mistral(metaspace: str) -> tuple[Tokenizer, dict[str, Any]]:
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "add_bos_token": True}
    return of_pieces(metaspace=metaspace), {"tokenizer_config.json": {**config, "add_eos_token": False}}


def _llama3() -> tuple[Tokenizer, dict[str, Any]]:
    special = ["<|begin_of_text|>", "<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]
    tokenizer = of_bytes(split(LLAMA3), special, ignore_merges=True)
    start = len(tokenizer.get_vocab()) - 4
    config = {"bos_token": special[0], "eos_token": special[3], "added_tokens_decoder": {}}
    return _begins(tokenizer, special[0]), {
        "tokenizer_config.json": config,
        "special_tokens_map.json": {"bos_token": special[0], "eos_token": special[1]},
        "generation_config.json": {"bos_token_id": start, "eos_token_id": [start + 1, start + 2, start + 3]},
    }


def _qwen2() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = of_bytes(split(QWEN2), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    config = {"bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None}
    start = tokenizer.token_to_id("<|endoftext|>")
    return tokenizer, {
        "tokenizer_config.json": {**config, "add_bos_token": False, "chat_template": "of an earlier version"},
        "chat_template.jinja": CHAT,
        "generation_config.json": {"eos_token_id": [start + 2, start], "pad_token_id": start, "temperature": 0.7},
    }


def _smollm2() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = of_bytes(DIGITS, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer, {
        "tokenizer_config.json": {"chat_template": CHAT, "add_prefix_space": False},
        "special_tokens_map.json": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>"},
    }


def _lfm2() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = of_bytes(split(LLAMA3), ["<|pad|>", "<|startoftext|>", "<|im_start|>", "<|im_end|>"])
    config = {"bos_token": "<|startoftext|>", "eos_token": "<|im_end|>", "pad_token": "<|pad|>"}
    return _begins(tokenizer, "<|startoftext|>"), {"tokenizer_config.json": config, "chat_template.jinja": CHAT}


def _gpt2(add_bos: bool) -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = of_bytes(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    config = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    return tokenizer, {"tokenizer_config.json": {**config, "add_bos_token": add_bos}}


FOREIGN: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "llama2": _llama2,
    "mistral": lambda: _mistral("first"),
    "no space before": lambda: _mistral("never"),
    "llama3": _llama3,
    "qwen2": _qwen2,
    "smollm2": _smollm2,
    "lfm2": _lfm2,
    "gpt2": lambda: _gpt2(add_bos=False),
    "gpt2 that begins": lambda: _gpt2(add_bos=True),
    "gpt2 by its pattern": lambda: (of_bytes(split(GPT2), ["<|endoftext|>"]), {}),
}


def foreign(name: str, folder: Path) -> Path:
    """Writes the tokenizer's files into the folder and returns it."""
    tokenizer, files = FOREIGN[name]()
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    for file, content in files.items():
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder

"""Tokenizers that were made elsewhere: the same tokens here, in transformers and in llama.cpp, special ones too."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from foreign_models import transformers
from foreign_tokenizers import CHAT, FOREIGN, QWEN2, TEXT, foreign, of_bytes, of_pieces, split
from imported import imported, in_transformers, shipped
from in_llama_cpp import generated, server
from tiny_models import tiny_llama
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.load import load_tokenizer, same_tokens
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.gguf_vocabulary import vocabulary_of
from edgefront.core.training.evaluation.generate import Sampling, TextStream, generate, generate_text
from edgefront.core.training.evaluation.package import Package
from edgefront.core.training.evaluation.scoring import TextScorer

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)
BEGIN = {"llama2": "<s>", "mistral": "<s>", "no space before": "<s>", "llama3": "<|begin_of_text|>"} | {
    "lfm2": "<|startoftext|>",
    "gpt2 that begins": "<|endoftext|>",
}
TEXTS = [
    TEXT,
    "",
    "Once upon",
    "κόσμε 二乗🙂",
    "a </s> b<s><|im_start|>user\nthe end<|im_end|>\n<|endoftext|> <tool_call> <0x0A> [UNUSED]",
    "1999 2024 12345678",
]
SPACES = [" ", "  the end", "   \n\t  x", " the", "▁the▁ end"]
"""Texts before which transformers puts no space by way of Metaspace, but SentencePiece and llama.cpp do."""


@pytest.mark.parametrize("name", FOREIGN)
def test_tokens_are_the_same_everywhere(tmp_path: Path, name: str) -> None:
    found = imported(name, tmp_path, more=3)
    ours = found.tokenizer
    original = Tokenizer.from_file(str(tmp_path / "theirs" / "tokenizer.json"))
    original.encode_special_tokens = True
    gguf, folder = shipped(found, tmp_path)
    theirs, running = in_transformers(folder), server(gguf)

    def in_llama_cpp(text: str, add: bool, parse: bool) -> list[int]:
        asked = {"content": text, "add_special": add, "parse_special": parse}
        answer = httpx.post(f"{running.listening_address}/tokenize", json=asked, trust_env=False)
        tokens: list[int] = answer.raise_for_status().json()["tokens"]
        return tokens

    begin = [] if name not in BEGIN else [original.token_to_id(BEGIN[name])]
    texts = [*TEXTS, *(SPACES if name != "mistral" else [])]
    for text in texts:
        wanted = original.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == wanted
        assert in_llama_cpp(text, add=False, parse=False) == wanted, text
        assert ours.prompt(text) == [*begin, *wanted]
        assert in_llama_cpp(text, add=True, parse=False) == [*begin, *wanted]
        assert theirs(text, split_special_tokens=True)["input_ids"] == [*begin, *wanted]
        if name != "mistral":  # it puts no space after a special token in a text
            assert in_llama_cpp(text, add=True, parse=True) == theirs(text)["input_ids"]
    assert ours.decode(ours.encode(TEXT)) == TEXT


def test_special_tokens_and_chat_templates_are_in_the_gguf_file(tmp_path: Path) -> None:
    import gguf

    def fields(name: str) -> tuple[dict[str, Any], Package]:
        found = imported(name, tmp_path / name, more=5)
        path, _ = shipped(found, tmp_path / name)
        read = gguf.GGUFReader(path).fields
        keys = {key.removeprefix("tokenizer.ggml."): read[key].contents() for key in read if "tokenizer" in key}
        return keys, found

    llama2, found = fields("llama2")
    assert [llama2[f"{role}_token_id"] for role in ("bos", "eos", "unknown", "padding")] == [1, 2, 0, 0]
    assert (llama2["model"], llama2["add_bos_token"], llama2["add_space_prefix"]) == ("llama", True, True)
    kinds = gguf.TokenType
    known = found.tokenizer.vocab_size
    assert llama2["token_type"][:4] == [kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, kinds.BYTE]
    assert llama2["token_type"][known:] == [kinds.UNUSED] * 5
    assert llama2["suppress_tokens"] == list(range(known, known + 5))
    assert "tokenizer.chat_template" not in llama2
    qwen2, found = fields("qwen2")
    names = {token: number for number, token in enumerate(qwen2["tokens"])}
    assert qwen2["eos_token_id"] == found.tokenizer.eos == names["<|im_end|>"]
    assert qwen2["padding_token_id"] == qwen2["eot_token_id"] == names["<|endoftext|>"]
    assert found.tokenizer.stops == (names["<|im_end|>"], names["<|endoftext|>"])
    assert "bos_token_id" not in qwen2
    assert qwen2["add_bos_token"] is False
    assert qwen2["token_type"][names["<tool_call>"]] == kinds.USER_DEFINED
    assert qwen2["tokenizer.chat_template"] == CHAT
    llama3, found = fields("llama3")
    assert [llama3["tokens"][llama3[f"{role}_token_id"]] for role in ("bos", "eos", "eot", "eom")] == [
        "<|begin_of_text|>", "<|eot_id|>", "<|end_of_text|>", "<|eom_id|>",
    ]  # fmt: skip
    assert fields("smollm2")[0]["pre"] == "smollm"


@pytest.mark.parametrize("name", ["qwen2", "smollm2", "lfm2", "llama2", "llama3"])
def test_the_folder_of_transformers_has_the_template_and_special_tokens(tmp_path: Path, name: str) -> None:
    found = imported(name, tmp_path, more=2)
    _, folder = shipped(found, tmp_path)
    theirs, original = in_transformers(folder), in_transformers(tmp_path / "theirs")
    for role in ("bos_token", "eos_token", "pad_token", "unk_token"):
        if name != "llama2" or role != "pad_token":  # of which only generation_config.json says it
            assert getattr(theirs, role) == getattr(original, role), role
    assert len(theirs) == found.tokenizer.vocab_size
    if name in ("qwen2", "smollm2", "lfm2"):
        messages = [{"role": "user", "content": "the end"}]
        asked = theirs.apply_chat_template(messages, tokenize=False)
        assert (
            asked == "<|im_start|>user\nthe end<|im_end|>\n" == original.apply_chat_template(messages, tokenize=False)
        )
    generation = json.loads((folder / "generation_config.json").read_text())
    stops = found.tokenizer.stops
    assert generation["eos_token_id"] == (list(stops) if len(stops) > 1 else stops[0])
    # The package is the same when it is read and saved again.
    again = BPETokenizer.from_file(tmp_path / "mine" / "tokenizer.json")
    assert again.hugging_face() == found.tokenizer.hugging_face()
    assert (again.bos, again.stops) == (found.tokenizer.bos, stops)


def test_rows_that_are_no_token_are_never_drawn(tmp_path: Path) -> None:
    found = imported("qwen2", tmp_path, more=4, lively=2)
    known = found.tokenizer.vocab_size
    prompt = found.tokenizer.prompt("the end")
    greedy = Sampling(temperature=0)
    assert max(generate(found.model(), prompt, 8, greedy)) >= known  # where nothing excludes them
    drawn = generate_text(found, "the end", 8, greedy, stop_at_end=False).tokens
    assert max(drawn) < known
    assert max(generate_text(found, "the end", 20, Sampling(seed=1), stop_at_end=False).tokens) < known
    assert "UNUSED" not in TextScorer(found).write("the end", 8, [], greedy)
    gguf, folder = shipped(found, tmp_path)
    tokens, _ = generated(gguf, prompt, 8)
    assert tuple(tokens) == drawn
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder)
    theirs.generation_config.eos_token_id = None
    written = theirs.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False)
    assert tuple(written[0, len(prompt) :].tolist()) == drawn


def test_a_generation_ends_at_each_end_and_begins_as_the_original_does(tmp_path: Path) -> None:
    found = imported("llama3", tmp_path)
    tokenizer = found.tokenizer
    assert generate_text(found, "", 2).prompt_tokens == 1  # the token that begins a text
    drawn = generate_text(found, "the end", 4, Sampling(temperature=0), stop_at_end=False)
    assert drawn.prompt_tokens == len(tokenizer.encode("the end")) + 1
    scorer = TextScorer(found)
    assert scorer.begin == tokenizer.bos
    assert scorer.encoded("the", " end")[0] == tokenizer.prompt("the")
    assert len(tokenizer.stops) == 3


def test_prepared_documents_begin_as_the_original_does(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / "texts" / str(number)).mkdir(parents=True)
        (tmp_path / "texts" / str(number) / "a.txt").write_text("the quick brown fox\n" * 40)
    digests = set()
    for name in ("llama3", "qwen2"):
        path = foreign(name, tmp_path / name) / "tokenizer.json"
        settings = Preparation(level="bpe", vocabulary=str(path), valid_percent=30, test_percent=30)
        prepared = prepare(str(tmp_path / "texts"), tmp_path / "home", settings=settings)
        tokenizer = prepared.tokenizer()
        train = prepared.splits["train"].tokens.tolist()
        assert train[-1] == tokenizer.eos
        begins = 0 if tokenizer.bos is None else train.count(tokenizer.bos)
        assert begins == (0 if name == "qwen2" else train.count(tokenizer.eos))
        if name == "llama3":
            assert train[0] == tokenizer.bos
        imported(name, tmp_path / "models" / name)
        assert same_tokens(tmp_path / "models" / name / "mine", prepared.folder)
        digests.add(prepared.folder.name)
        alone = tmp_path / name / "alone.json"  # without what is beside it
        alone.write_bytes(path.read_bytes())
        settings = Preparation(level="bpe", vocabulary=str(alone), valid_percent=30, test_percent=30)
        digests.add(prepare(str(tmp_path / "texts"), tmp_path / "home", settings=settings).folder.name)
    assert len(digests) == 4


def test_a_stream_of_pieces_keeps_the_space_after_a_line(tmp_path: Path) -> None:
    ours = BPETokenizer.from_file(foreign("llama2", tmp_path) / "tokenizer.json")
    for text in ("the end\n  the end", "a\n b\n\n c", TEXT):
        ids = ours.encode(text)
        stream = TextStream(ours)
        assert "".join(stream.add(token) for token in ids) + stream.rest() == text
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").prompt("the") == ours.prompt("the")


def changed(tokenizer: Tokenizer, **parts: Any) -> bytes:
    described = json.loads(tokenizer.to_str())
    for name, part in parts.items():
        described[name] = {**described[name], **part} if isinstance(part, dict) and described[name] else part
    return json.dumps(described).encode()


def single_merges() -> bytes:
    """SentencePiece's form, but with the merges of a trainer: one for each token."""
    described = json.loads(of_pieces().to_str())
    model = described["model"]
    for token in ("q", "z", "j", "qz", "zj", "qzj"):
        model["vocab"].setdefault(token, len(model["vocab"]))
    model["merges"] += [["q", "z"], ["z", "j"], ["qz", "j"]]
    return json.dumps(described).encode()


def without_byte() -> bytes:
    described = json.loads(of_pieces().to_str())
    vocabulary = described["model"]["vocab"]
    vocabulary["another"] = vocabulary.pop("<0x07>")
    return json.dumps(described).encode()


def special_of(tokenizer: Tokenizer, **how: bool) -> bytes:
    tokenizer.add_special_tokens([AddedToken("<|user|>", special=True, **how)])
    return str(tokenizer.to_str()).encode()


def unmade() -> bytes:
    """A whole word without merges, which Llama 3's way takes from the vocabulary."""
    tokenizer = of_bytes(split(r"\s+|\S+"), [])
    described = json.loads(tokenizer.to_str())
    described["model"]["vocab"]["xyzzy"] = 400
    described["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2
    described["model"]["ignore_merges"] = True
    return json.dumps(described).encode()


SPACED = pre_tokenizers.ByteLevel(add_prefix_space=True)
BERT = processors.BertProcessing(("</s>", 2), ("<s>", 1))


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (single_merges, "unlike those of"),
        (without_byte, "without the token <0x07>"),
        (lambda: changed(of_pieces(), normalizer={"type": "Lowercase"}), "treatment of spaces"),
        (lambda: changed(of_pieces(), model={"ignore_merges": True}), "model.ignore_merges True"),
        (lambda: changed(of_pieces(), post_processor=json.loads(BERT.__getstate__())), "post_processor BertProcessing"),
        (lambda: special_of(of_pieces(), rstrip=True), "'<|user|>' with rstrip"),
        (unmade, "merges do not make 'xyzzy'"),
        (lambda: changed(of_bytes(split(r"\w+|\W+"), [])), "--format transformers takes any"),
        (lambda: changed(of_bytes(split(QWEN2), []), model={"dropout": 0.1}), r"model\.dropout 0\.1"),
        (
            lambda: changed(of_bytes(split(QWEN2), []), normalizer={"type": "Lowercase"}),
            "normalizer Lowercase",
        ),
        (lambda: changed(of_bytes(SPACED, [])), "without an added space"),
    ],
)
def test_what_gguf_cannot_express_is_refused(tmp_path: Path, made: Any, said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        write_gguf(tiny_llama(600), 1, tmp_path / "model.gguf", files={"tokenizer.json": made()})
    assert said.replace("\\", "") in f"{refused.value.detail} {refused.value.allowed}"
    assert not list(tmp_path.iterdir())


def test_numbers_without_a_token_get_names_of_their_own(tmp_path: Path) -> None:
    described = json.loads(of_bytes(split(QWEN2), []).to_str())
    described["model"]["vocab"]["[UNUSED401]"] = 405
    (tmp_path / "tokenizer.json").write_text(json.dumps(described))
    ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    assert ours.vocab_size == 406
    assert ours.unused(408) == [*range(400, 405), 406, 407]
    found = vocabulary_of(ours.hugging_face(), 408)
    assert found is not None
    assert found.unused == tuple(ours.unused(408))
    assert len(set(found.tokens)) == 408
    write_gguf(tiny_llama(408), 1, tmp_path / "model.gguf", files=ours.hugging_face())
    tokens, _ = generated(tmp_path / "model.gguf", "the", 3)
    assert len(tokens) == 3


def test_data_and_models_that_begin_otherwise_have_the_same_tokens(tmp_path: Path) -> None:
    begin = imported("llama3", tmp_path).tokenizer.bos
    assert begin is not None
    shutil.copytree(tmp_path / "mine", tmp_path / "data")
    stored = json.loads((tmp_path / "mine" / "edgefront_tokenizer.json").read_text())
    (tmp_path / "data" / "edgefront_tokenizer.json").write_text(json.dumps({**stored, "bos": None}))
    found = load_tokenizer(tmp_path / "data")
    assert found.prompt("the end") == found.encode("the end")
    assert same_tokens(tmp_path / "mine", tmp_path / "data")
    assert same_tokens(tmp_path / "data", tmp_path / "mine")
    found.save(tmp_path / "data")
    config = json.loads((tmp_path / "data" / "tokenizer_config.json").read_text())
    assert (config["add_bos_token"], config["bos_token"]) == (False, "<|begin_of_text|>")
    assert in_transformers(tmp_path / "data")("the end")["input_ids"] == found.encode("the end")
    vocabulary = vocabulary_of(found.hugging_face(), found.vocab_size)
    assert vocabulary is not None
    assert not vocabulary.add_bos


def test_only_added_tokens_and_the_end_are_control_tokens_in_gguf(tmp_path: Path) -> None:
    import gguf

    ends = [f"<|end{number}|>" for number in range(4)]
    tokenizer = of_bytes(split(QWEN2), ends)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    numbers = [tokenizer.token_to_id(end) for end in ends]
    config = {"bos_token": "a", "pad_token": "!", "eos_token": ends[0]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": numbers}))
    ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    found = vocabulary_of(ours.hugging_face(), ours.vocab_size)
    assert found is not None
    roles = {"bos": ours.encode("a")[0], "pad": ours.encode("!")[0]}
    assert found.special == {**roles, "eos": numbers[0], "eot": numbers[1], "eom": numbers[2]}
    kinds = gguf.TokenType
    assert [found.types[number] for number in roles.values()] == [kinds.NORMAL] * 2
    assert [found.types[number] for number in numbers] == [kinds.CONTROL] * 4
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "eos_token": "a"}))
    ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    found = vocabulary_of(ours.hugging_face(), ours.vocab_size)
    assert found is not None
    assert found.types[roles["bos"]] == kinds.CONTROL

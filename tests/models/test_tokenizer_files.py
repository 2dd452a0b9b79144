"""Files beside a tokenizer that was made elsewhere: which tokens they name, and what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from foreign_tokenizers import foreign, of_pieces
from imported import in_transformers
from tokenizers import Tokenizer, processors

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.load import load_tokenizer

BEYOND = (1 << 31, 1 << 32, 1 << 70)


@pytest.mark.parametrize("end", [None, -1, [-1], [], [-1, 5], [5, *BEYOND], *BEYOND], ids=str)
def test_numbers_below_zero_mean_no_token_and_those_beyond_are_named(tmp_path: Path, end: Any) -> None:
    path = foreign("qwen2", tmp_path) / "tokenizer.json"
    (tmp_path / "tokenizer_config.json").unlink()
    stated = {"eos_token_id": end, "pad_token_id": -1, "bos_token_id": -(1 << 70)}
    (tmp_path / "generation_config.json").write_text(json.dumps(stated))
    ours = BPETokenizer.from_file(path)
    given = end if isinstance(end, list) else [end]
    assert ours.ignored_ids == tuple(
        ("eos_token_id", number, "generation_config.json") for number in given if number in BEYOND
    )
    assert (5 in ours.stops) == (5 in given)
    assert not {"bos_token", "pad_token"} & ours.config_fields.keys()
    for role in ("bos_token_id", "pad_token_id"):
        (tmp_path / "generation_config.json").write_text(json.dumps({role: BEYOND[1]}))
        assert BPETokenizer.from_file(path).ignored_ids == ((role, BEYOND[1], "generation_config.json"),)


def test_without_a_generation_config_the_model_s_own_names_its_tokens(tmp_path: Path) -> None:
    path = foreign("qwen2", tmp_path) / "tokenizer.json"
    (tmp_path / "tokenizer_config.json").unlink()
    generation = tmp_path / "generation_config.json"
    stated = {"eos_token_id": [5, 6, BEYOND[0]], "pad_token_id": 7, "bos_token_id": -1}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", **stated}))
    generation.write_text("{}")
    before = BPETokenizer.from_file(path)
    assert not {5, 6} & set(before.stops)
    assert "pad_token" not in before.config_fields
    generation.unlink()
    ours = BPETokenizer.from_file(path)
    assert {5, 6} <= set(ours.stops)
    assert ours.config_fields["pad_token"] == Tokenizer.from_file(str(path)).id_to_token(7)
    assert ours.ignored_ids == (("eos_token_id", BEYOND[0], "config.json"),)
    (tmp_path / "mine").mkdir()
    ours.save(tmp_path / "mine")
    assert load_tokenizer(tmp_path / "mine").stops == ours.stops
    (tmp_path / "config.json").write_text('{"eos_token_id": "5"}')
    with pytest.raises(InvalidInput, match=r"/config\.json has eos_token_id .5., which is not a token id"):
        BPETokenizer.from_file(path)


@pytest.mark.parametrize("wrong", [1.5, "5", True, {"id": 5}, [[5]], float("inf")], ids=str)
def test_what_is_no_number_of_a_token_is_refused(tmp_path: Path, wrong: Any) -> None:
    path = foreign("qwen2", tmp_path) / "tokenizer.json"
    for role in ("eos_token_id", "bos_token_id", "pad_token_id"):
        (tmp_path / "generation_config.json").write_text(json.dumps({role: wrong}))
        with pytest.raises(InvalidInput, match=rf"generation_config\.json has {role} .* is not a token id"):
            BPETokenizer.from_file(path)


def test_pointers_of_git_lfs_are_called_so(tmp_path: Path) -> None:
    path = foreign("qwen2", tmp_path) / "tokenizer.json"
    for name in ("tokenizer_config.json", "generation_config.json", "tokenizer.json"):
        (tmp_path / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
        with pytest.raises(InvalidInput, match=f"{name} is a pointer of Git LFS"):
            BPETokenizer.from_file(path)
        (tmp_path / name).write_text("{}")


def test_broken_files_beside_a_tokenizer_are_named(tmp_path: Path) -> None:
    path = foreign("qwen2", tmp_path) / "tokenizer.json"
    for name in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        kept = (tmp_path / name).read_bytes() if (tmp_path / name).exists() else b"{}"
        for content in ("{", "[]"):
            (tmp_path / name).write_text(content)
            with pytest.raises(InvalidInput, match=f"{name} is not a JSON object"):
                BPETokenizer.from_file(path)
        (tmp_path / name).write_bytes(kept)
    BPETokenizer.from_file(path)
    (tmp_path / "chat_template.jinja").write_bytes("naïve".encode("latin-1"))
    with pytest.raises(InvalidInput, match=r"chat_template\.jinja is not UTF-8 at byte 2"):
        BPETokenizer.from_file(path)


@pytest.mark.parametrize(
    ("around", "flags", "added"),
    [
        ("<s> $A", {"add_eos_token": False}, (True, False)),
        ("<s> $A", {"add_eos_token": True}, (True, True)),
        ("<s> $A </s>", {"add_bos_token": True}, (True, True)),
        ("<s> $A </s>", {"add_bos_token": False}, (False, True)),
        ("$A </s>", {"add_eos_token": False}, (False, False)),
        ("$A", {"add_bos_token": True}, (True, False)),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_a_flag_that_is_not_stated_is_as_the_tokenizer_puts_it(
    tmp_path: Path, around: str, flags: dict[str, bool], added: tuple[bool, bool], named: bool
) -> None:
    original = of_pieces()
    original.post_processor = processors.TemplateProcessing(around, special_tokens=[("<s>", 1), ("</s>", 2)])
    original.save(str(tmp_path / "tokenizer.json"))
    names = {"bos_token": "<s>", "eos_token": "</s>"} if named else {"eos_token": "</s>"}
    class_name = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**names, **flags, **class_name}))
    ours = BPETokenizer.from_file(tmp_path / "tokenizer.json")
    begins, ends = added
    if around == "$A" and not named:  # nothing says which token that would be
        begins = False
    tokens = ours.encode("the end")
    assert ours.prompt("the end") == [1] * begins + tokens
    (tmp_path / "ours").mkdir()
    ours.save(tmp_path / "ours")
    wanted = [1] * begins + tokens + [2] * ends
    assert in_transformers(tmp_path / "ours")("the end")["input_ids"] == wanted
    if around == " ".join(["<s>"] * begins + ["$A"] + ["</s>"] * ends):  # beside it, transformers reads no flag
        assert in_transformers(tmp_path)("the end")["input_ids"] == wanted

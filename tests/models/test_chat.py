"""Prompts of a chat and special tokens in a prompt: the tokens are those of transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from foreign_tokenizers import foreign
from transformers import AutoTokenizer
from typer.testing import CliRunner

from edgefront.cli.main import app
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.bpe import BPETokenizer, render_chat
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer

SMOLLM = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You help<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = (
    SMOLLM,
    "{{ bos_token }}{% for m in messages %}\n    {% if m.role == 'user' %}\nQ: {{ m.content | tojson }}\n"
    "    {% endif %}\n{% break %}{% endfor %}{{ eos_token }}",
    "{% for m in messages %}{% if m.role == 'user' %}{% generation %}\nA: {{ m.content }}\n"
    "{% endgeneration %}{% endif %}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }} of "
    "{{ strftime_now('%Y') | length }} {{ messages[0]['content'] | trim }}",
)
USER = [{"role": "user", "content": "  the end <b>“κόσμε” & it's\n"}]


def of(template: object, folder: Path) -> Path:
    """A tokenizer with this template."""
    place = foreign("smollm2", folder)
    config = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps({**config, "chat_template": template}))
    return place


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_chat_has_the_tokens_of_transformers(tmp_path: Path, template: str) -> None:
    place = of(template, tmp_path / "theirs")
    theirs = AutoTokenizer.from_pretrained(place)
    expected = theirs.apply_chat_template(USER, add_generation_prompt=True, tokenize=True, return_dict=True)[
        "input_ids"
    ]
    assert BPETokenizer.from_file(place / "tokenizer.json").chat(USER[0]["content"]) == expected


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": SMOLLM}]
    ours = BPETokenizer.from_file(of(named, tmp_path / "a") / "tokenizer.json")
    assert ours.chat("hi") == BPETokenizer.from_file(of(SMOLLM, tmp_path / "b") / "tokenizer.json").chat("hi")
    with pytest.raises(InvalidInput, match="chat templates tool_use, but no default template"):
        render_chat(named[:1], USER, {})


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{% for %}", "Expected an expression"),
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_a_template_that_fails_is_one_clear_error(template: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as raised:
        render_chat(template, USER, {})
    assert "--no-chat" in raised.value.extra["allowed"]


def test_special_tokens_are_meant_only_where_that_is_asked_for(tmp_path: Path) -> None:
    place = foreign("smollm2", tmp_path)
    ours, theirs = BPETokenizer.from_file(place / "tokenizer.json"), AutoTokenizer.from_pretrained(place)
    text = "<|im_start|>user\nthe end<|im_end|>\n"
    assert ours.prompt_with_special(text) == theirs(text)["input_ids"]
    assert ours.prompt_with_special(text) != ours.prompt(text)
    assert ours.prompt(text) == theirs(text, split_special_tokens=True)["input_ids"]
    llama = BPETokenizer.from_file(foreign("llama3", tmp_path / "llama3") / "tokenizer.json")
    begin = llama.prompt("")
    assert llama.prompt_with_special("the") == [*begin, *llama.encode("the")]
    assert llama.prompt_with_special("<|begin_of_text|>the") == [*begin, *llama.encode("the")]  # once
    with pytest.raises(InvalidInput, match="recognises no special tokens"):
        ByteTokenizer(list(range(256))).prompt_with_special(text)
    with pytest.raises(InvalidInput, match="no chat template"):
        ByteTokenizer(list(range(256))).chat(text)


@pytest.mark.slow
def test_generate_chats_where_the_model_does(tmp_path: Path) -> None:
    from imported import imported

    imported("smollm2", tmp_path)
    folder = str(tmp_path / "mine")

    def generated(*words: str, model: str = folder) -> dict[str, object]:
        done = CliRunner().invoke(app, ["generate", model, "--temperature", "0", "--tokens", "5", "--json", *words])
        assert done.exit_code == 0, (done.output, done.exception)
        document: dict[str, object] = json.loads(done.stdout)
        return document

    chat, plain = generated("--prompt", "the end"), generated("--prompt", "the end", "--no-chat")
    assert (chat["chat"], plain["chat"]) == (True, False)
    assert int(str(chat["prompt_tokens"])) > int(str(plain["prompt_tokens"]))
    written = "<|im_start|>user\nthe end<|im_end|>\n"
    special = generated("--prompt", written, "--special")
    assert special["chat"] is False
    assert (special["tokens"], special["text"]) == (chat["tokens"], chat["text"])
    assert generated()["chat"] is False  # nothing is said
    assert generated("--prompt", "the end", "--chat")["text"] == chat["text"]

"""GGUF files are read: the same description, weights and tokens come back, and what is not known is refused by name."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from foreign_tokenizers import TEXT
from gguf_models import STACKS, attention, inner, stack
from imported import imported, shipped
from tiny_models import lively_weights

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.gguf import KIND_RULES
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.gguf_reading import GgufFile
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.training.evaluation.package import import_gguf, read_package

pytestmark = pytest.mark.skipif(find_spec("gguf") is None, reason="gguf is not installed")

FOREIGN = {
    name: model
    for name, model in STACKS.items()
    # Of these a file of another program does not tell the description: how positions are stretched, and what is padded.
    # Nor does it tell which GELU its model was trained with.
    if "stretched" not in name
    and name != "gptneox"
    and name not in ("deci without a feed_forward", "deci that begins with a feed_forward")
}


def rewritten(
    path: Path, changed: dict[str, Any], left_out: tuple[str, ...] = ("edgefront.",), without: tuple[str, ...] = ()
) -> Path:
    """The file as another program would have written it: without our description, with other fields, and without some
    tensors.
    """
    import gguf

    reader, target = gguf.GGUFReader(path), path.with_suffix(".foreign.gguf")
    kind = str(reader.fields["general.architecture"].contents())
    writer = gguf.GGUFWriter(target, kind)
    for name, field in reader.fields.items():
        if name.startswith(("GGUF.", "general.architecture", *left_out)) or name in changed:
            continue
        sub = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub)
    for name, value in changed.items():
        writer.add_key_value(name, value, gguf.GGUFValueType.get_type(value))
    for tensor in reader.tensors:
        if tensor.name not in without:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def same_weights(file: GgufFile, weights: dict[str, Any]) -> None:
    read = file.weights()
    assert set(read) == set(weights)
    for name, values in read.items():
        np.testing.assert_array_equal(values, weights[name], err_msg=name)


@pytest.mark.parametrize("name", STACKS)
def test_a_file_of_ours_comes_back(tmp_path: Path, name: str) -> None:
    model = STACKS[name]
    weights = lively_weights(model, 5)
    write_gguf(model, GivenValues(weights, {}), tmp_path / "model.gguf")
    file = GgufFile(tmp_path / "model.gguf")
    assert file.architecture == model
    same_weights(file, weights)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_has_the_same_description(tmp_path: Path, name: str) -> None:
    weights = lively_weights(FOREIGN[name], 5)
    write_gguf(FOREIGN[name], GivenValues(weights, {}), tmp_path / "model.gguf")
    file = GgufFile(rewritten(tmp_path / "model.gguf", {}))
    assert file.architecture == FOREIGN[name]
    same_weights(file, weights)


def test_the_context_and_numbers_of_a_file_of_another_program(tmp_path: Path) -> None:
    write_gguf(stack(attention(), inner()), 1, tmp_path / "model.gguf")
    changed = {
        "llama.context_length": 8192,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 5e5,
    }
    read = GgufFile(rewritten(tmp_path / "model.gguf", changed)).architecture.canonical
    assert (read["context_length"], read["norm_eps"], read["positions"]["theta"]) == (8192, "1e-6", 500_000)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "has the unknown field llama.rope.scaling.type"),
        ({"llama.expert_count": 8}, "has the unknown field llama.expert_count"),
        ({"llama.attention.value_length": 4}, "attention.value_length 4, not the width 16 of its heads"),
        ({"llama.block_count": 100_000}, "has llama.block_count 100000; it must be 1 to 512"),
        ({"llama.block_count": "two"}, "has llama.block_count 'two'"),
        ({"llama.attention.head_count": 0}, "has llama.attention.head_count 0; it must be 1 to"),
        ({"llama.attention.key_length": 0}, "has llama.attention.key_length 0"),
        ({"llama.rope.freq_base": float("inf")}, "has llama.rope.freq_base inf; it must be a positive number"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon nan; it must be a positive"),
        ({"llama.context_length": 0}, "has llama.context_length 0"),
        ({"llama.block_count": 1}, "has blk.1.attn_k.weight, which is not a parameter"),
        ({"llama.block_count": 5}, "lacks blk.2.attn_norm.weight"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, r"has token_embd.weight of shape .*, not \(2, "),
        ({"llama.attention.head_count_kv": 0}, "has llama.attention.head_count_kv 0 in layer 0; a layer with"),
        ({"llama.rope.freq_base_swa": 10000.0}, "has llama.rope.freq_base_swa 10000.0; only"),
        ({"llama.feed_forward_length": 128}, r"has blk.0.ffn_gate.weight of shape \(96, 64\), not \(128, 64\)"),
    ],
)
def test_what_is_not_known_is_refused_by_name(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    write_gguf(stack(*[attention(), inner()] * 2), 1, tmp_path / "model.gguf")
    with pytest.raises(InvalidInput, match=said):
        GgufFile(rewritten(tmp_path / "model.gguf", changed)).weights()


@pytest.mark.parametrize("widths", [None, [96, 0, 32]])
def test_weights_of_a_part_that_is_not_declared_are_refused(tmp_path: Path, widths: list[int] | None) -> None:
    write_gguf(STACKS["deci"], 1, tmp_path / "model.gguf")
    name = "deci.feed_forward_length"
    changed, left_out = ({}, (name,)) if widths is None else ({name: widths}, ())
    with pytest.raises(InvalidInput, match=r"has blk\.\d\.ffn_\w+\.weight, which is not a parameter"):
        GgufFile(rewritten(tmp_path / "model.gguf", changed, ("edgefront.", *left_out))).weights()


@pytest.mark.parametrize("name", FOREIGN)
def test_a_tensor_that_is_missing_is_named(tmp_path: Path, name: str) -> None:
    """One of each kind; llama.cpp takes the embedding where there is no output, and StableLM's norm says how it is."""
    import gguf

    write_gguf(FOREIGN[name], 1, tmp_path / "model.gguf")
    kind = GgufFile(tmp_path / "model.gguf").header.kind
    tensors = gguf.GGUFReader(tmp_path / "model.gguf").tensors
    for tensor in {re.sub(r"^blk\.\d+", "", tensor.name): tensor for tensor in tensors}.values():
        path = rewritten(tmp_path / "model.gguf", {}, without=(tensor.name,))
        if tensor.name == "output.weight" and True in KIND_RULES[kind].tied:
            assert GgufFile(path).architecture.output.tied
            continue
        with pytest.raises(InvalidInput, match=rf"lacks {tensor.name}"):
            GgufFile(path).weights()


def test_a_file_states_the_name_and_the_licence_of_its_model(tmp_path: Path) -> None:
    model, about = stack(attention(), inner()), {"name": "Ada's", "licence": "apache-2.0"}
    write_gguf(model, GivenValues(lively_weights(model, 5), about), tmp_path / "Ada-1.5.gguf")
    import_gguf(tmp_path / "Ada-1.5.gguf", tmp_path / "mine")
    facts = read_package(tmp_path / "mine").facts
    assert (facts["name"], facts["licence"]) == ("Ada's", "apache-2.0")
    others = {"general.license": "other", "general.license.name": "Lab 1"}
    path = rewritten(tmp_path / "Ada-1.5.gguf", others, ("edgefront.", "general.name"))
    import_gguf(path.rename(tmp_path / "Ada-1.5-00001-of-00001.gguf"), tmp_path / "other")
    facts = read_package(tmp_path / "other").facts
    assert (facts["name"], facts["licence"]) == ("Ada-1.5", "Lab-1")


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("gptneox", "use_parallel_residual"),
        ("granite", "logit_scale"),
        ("llama", "context_length"),
        *((name, "attention.layer_norm_rms_epsilon") for name in ("llama", "deci", "olmo2", "gemma3")),
        *((name, "attention.layer_norm_epsilon") for name in ("stablelm", "phi2")),
    ],
)
def test_a_field_that_llama_cpp_needs_is_needed(tmp_path: Path, name: str, field: str) -> None:
    write_gguf(STACKS[name], 1, tmp_path / "model.gguf")
    kind = GgufFile(tmp_path / "model.gguf").header.kind
    with pytest.raises(InvalidInput, match=rf"lacks {kind}\.{field}"):
        GgufFile(rewritten(tmp_path / "model.gguf", {}, ("edgefront.", f"{kind}.{field}")))


@pytest.mark.parametrize("name", ["gemma3", "stablelm", "phi2", "olmo2", "deci"])
def test_a_field_that_llama_cpp_does_not_need_has_its_default(tmp_path: Path, name: str) -> None:
    """As many heads of keys, of d_model / n_head features, all of which turn, by 10,000."""
    described = STACKS[name].canonical
    for block in described["blocks"][::2]:
        block |= {"n_head": 4, "n_kv_head": 4, "d_head": 16}
    described["positions"] = {"kind": "rotary"}
    model = Architecture.parse(described)
    write_gguf(model, 1, tmp_path / "model.gguf")
    fields = ("rope.", "attention.head_count_kv", "attention.key_length", "attention.value_length", "vocab_size")
    left_out = ("edgefront.", *(f"{name}.{field}" for field in fields))
    assert GgufFile(rewritten(tmp_path / "model.gguf", {}, left_out)).architecture == model


def test_gemma_3_without_a_window_is_refused(tmp_path: Path) -> None:
    """Which llama.cpp would run without windows, and divide by the missing cap of its scores."""
    write_gguf(STACKS["gemma3"], 1, tmp_path / "model.gguf")
    path = rewritten(tmp_path / "model.gguf", {}, ("edgefront.", "gemma3.attention.sliding_window"))
    with pytest.raises(InvalidInput, match=r"blocks\.0\.window None: gemma3 needs a window in all layers"):
        GgufFile(path).weights()


def test_todays_gemma_3_states_the_base_of_its_local_layers(tmp_path: Path) -> None:
    write_gguf(STACKS["gemma3"], 1, tmp_path / "model.gguf")
    same = GgufFile(rewritten(tmp_path / "model.gguf", {"gemma3.rope.freq_base_swa": 10_000.0}))
    assert same.architecture == STACKS["gemma3"]
    with pytest.raises(InvalidInput, match=r"freq_base_swa 5000\.0; only 10000 in Gemma 3"):
        GgufFile(rewritten(tmp_path / "model.gguf", {"gemma3.rope.freq_base_swa": 5000.0}))


def test_numbers_that_are_not_finite_are_refused_by_the_files_own_name(tmp_path: Path) -> None:
    model = stack(attention(), inner())
    write_gguf(model, 1, tmp_path / "model.gguf")
    with (tmp_path / "model.gguf").open("r+b") as file:
        file.seek(GgufFile(tmp_path / "model.gguf").header.tensors["blk.0.ffn_up.weight"].start)
        file.write(np.float32("nan").tobytes())
    with pytest.raises(InvalidInput, match=r"numbers in blk\.0\.ffn_up\.weight that are not finite"):
        import_gguf(tmp_path / "model.gguf", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_what_is_no_gguf_file_is_said(tmp_path: Path) -> None:
    write_gguf(STACKS["llama"], 1, tmp_path / "model.gguf")
    whole = (tmp_path / "model.gguf").read_bytes()
    for content in (b"GGUF", whole[:500], whole[: len(whole) // 2]):
        (tmp_path / "cut.gguf").write_bytes(content)
        with pytest.raises(InvalidInput, match=r"cut\.gguf"):
            GgufFile(tmp_path / "cut.gguf").weights()


@pytest.mark.parametrize("name", ["gpt2", "llama3", "qwen2", "smollm2", "llama2", "mistral", "no space before"])
def test_its_tokenizer_makes_the_same_tokens(tmp_path: Path, name: str) -> None:
    package = imported(name, tmp_path)
    gguf, _ = shipped(package, tmp_path)
    read = import_gguf(gguf, tmp_path / "again")
    ours, theirs = package.tokenizer, read_package(tmp_path / "again").tokenizer
    assert read is not None
    assert (theirs.encode(TEXT), theirs.prompt(TEXT)) == (ours.encode(TEXT), ours.prompt(TEXT))
    assert theirs.decode(theirs.encode(TEXT)) == ours.decode(ours.encode(TEXT))
    assert set(theirs.stops) == set(ours.stops)
    assert theirs.chat_template == ours.chat_template


def test_a_file_without_a_tokenizer_is_read(tmp_path: Path) -> None:
    model = stack(attention(), inner())
    write_gguf(model, 1, tmp_path / "model.gguf")
    path = rewritten(tmp_path / "model.gguf", {}, ("edgefront.", "tokenizer."))
    assert import_gguf(path, tmp_path / "mine") is None
    package = read_package(tmp_path / "mine")
    assert (package.architecture, package.tokenizer_if_any) == (model, None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tokenizer.ggml.eos_token_id": "end"}, "has tokenizer.ggml.eos_token_id 'end'; it must be a token id"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "has 2 token types for"),
        ({"tokenizer.ggml.pre": None}, "splits text by the unknown pattern 'default'"),
        ({"tokenizer.ggml.merges": None}, "lacks tokenizer.ggml.merges"),
    ],
)
def test_a_tokenizer_with_wrong_fields_is_refused(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    gguf, _ = shipped(imported("smollm2", tmp_path), tmp_path)
    missing = tuple(name for name, value in changed.items() if value is None)
    path = rewritten(gguf, {} if missing else changed, ("edgefront.", *missing))
    with pytest.raises(InvalidInput, match=said):
        import_gguf(path, tmp_path / "again")


def test_a_tokenizer_of_another_kind_is_refused(tmp_path: Path) -> None:
    gguf, _ = shipped(imported("llama2", tmp_path), tmp_path)
    for changed, said in (
        (
            {"tokenizer.ggml.model": "t5"},
            "has a tokenizer t5; it must be byte-level bpe .gpt2. or bpe of pieces .llama.",
        ),
        ({"tokenizer.ggml.scores": [0.0, -1.0]}, "has 2 token scores for"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "has tokenizer.ggml.tokens that is not a list of str"),
    ):
        with pytest.raises(InvalidInput, match=said):
            import_gguf(rewritten(gguf, changed), tmp_path / "again")


def test_positions_that_are_stretched_as_llama_31_does_are_read(tmp_path: Path) -> None:
    model = stack(*[attention(), inner()] * 2, scaling={"factor": 32})
    write_gguf(model, 1, tmp_path / "model.gguf")
    assert GgufFile(rewritten(tmp_path / "model.gguf", {})).architecture.positions == model.positions
    other = stack(*[attention(), inner()] * 2, scaling={"factor": 8, "length": 16})
    write_gguf(other, 1, tmp_path / "model.gguf")
    with pytest.raises(InvalidInput, match=r"rope_freqs\.weight that differs from Llama 3\.1"):
        GgufFile(rewritten(tmp_path / "model.gguf", {}))

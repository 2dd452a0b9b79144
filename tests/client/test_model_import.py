"""Trained models as folders of transformers and back: weights, tokenizer, card."""

from __future__ import annotations

import json
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.numpy
import torch
from command_line import edgefront
from packages import lively

from edgefront.cli import exits
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Conflict, InvalidInput, NotFound
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from edgefront.core.model_files.model_file import write_model
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.given_model import architecture_of
from edgefront.core.training.evaluation.package import import_gguf, import_transformers, read_package, write_package

with warnings.catch_warnings():
    # transformers' own modules use what newer versions of their dependencies deprecate.
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", FutureWarning)
    import transformers

SAMPLE = "the cat sat on the mat\nthe end of the cat é"
TEXT = "the end\nthe mat"
LEVELS = {
    "bytes": ByteTokenizer,
    "some bytes": lambda: ByteTokenizer.of_texts([SAMPLE]),
    "characters": lambda: CharacterTokenizer.of_texts([SAMPLE]),
    "words": lambda: WordTokenizer.of_texts([SAMPLE], None),
    "bpe": lambda: BPETokenizer.train(iter([SAMPLE]), 270),
}


def model_of(vocabulary: int) -> LanguageModel:
    layer = [
        {"kind": "attention", "n_head": 2, "n_kv_head": 1, "bias": "none"},
        {"kind": "feed_forward", "d_inner": 24, "gated": True, "bias": False},
    ]
    ends = {"positions": {"kind": "rotary"}, "norm_kind": "rms", "activation": "silu"}
    return lively({**ends, "embedding": {"vocab_size": vocabulary}, "blocks": layer * 2}, seed=3)


@pytest.mark.parametrize("level", LEVELS)
def test_a_trained_model_brings_its_tokenizer_and_card(tmp_path: Path, level: str) -> None:
    ours: Tokenizer = LEVELS[level]()
    model = model_of(ours.vocab_size)
    write_package(tmp_path / "trained", model, ours, {"name": "Ada's", "dataset": "sample"})
    done = edgefront(
        "model build --format transformers --json", str(tmp_path / "trained"), "-o", str(tmp_path), code=exits.OK
    )
    archive = Path(json.loads(done.stdout)["path"])
    assert archive.name == f"edgefront-{model.architecture.digest[:12]}-trained-transformers.tar"
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    folder = tmp_path / f"edgefront-{model.architecture.digest[:12]}"
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    ids = theirs(TEXT, add_special_tokens=False)["input_ids"]
    assert ids == ours.encode(TEXT)
    assert theirs.eos_token_id == ours.eos
    assert theirs.decode(ids).split() == ours.decode(ids).replace("\n", " <eos> " if level == "words" else "\n").split()
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder)
    assert loaded.generation_config.eos_token_id == ours.eos
    tokens = torch.tensor([ids])
    with torch.inference_mode():
        torch.testing.assert_close(loaded(tokens).logits, model(tokens), rtol=1e-5, atol=1e-5)
    card = (folder / "README.md").read_text()
    assert card.startswith("---\nlicense: unknown\nlibrary_name: transformers\npipeline_tag: text-generation\n")
    assert "# Ada's" in card
    assert "AutoTokenizer" in card
    assert "`tokenizer.json`, in Hugging Face's form" in (tmp_path / "trained" / "README.md").read_text()


def their_folder(folder: Path, vocabulary: int) -> Any:
    """A random Qwen3 with the tokenizer of the sample, as transformers saves them."""
    config = transformers.Qwen3Config(
        vocab_size=vocabulary, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    theirs = transformers.Qwen3ForCausalLM(config).eval()
    theirs.save_pretrained(folder)
    for name, content in LEVELS["bpe"]().hugging_face().items():
        (folder / name).write_bytes(content)
    return theirs


def test_an_imported_folder_is_a_model_like_any_trained_one(tmp_path: Path) -> None:
    theirs = their_folder(tmp_path / "theirs", 280)  # padded: the tokenizer has fewer
    shown = edgefront("model import", str(tmp_path / "theirs"), code=exits.OK)
    out = tmp_path / "mine"
    done = edgefront("model import --json", str(tmp_path / "theirs"), "-o", str(out), code=exits.OK)
    result = json.loads(done.stdout)
    package = read_package(out)
    assert package.architecture == Architecture.parse(shown.stdout) == Architecture.parse(result["architecture"])
    assert (result["tokenizer"], result["path"], result["digest"]) == (True, str(out), package.architecture.digest)
    tokens = torch.tensor([package.tokenizer.encode(TEXT)])
    with torch.inference_mode():
        torch.testing.assert_close(package.model()(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)
    write_model(package.architecture, "onnx", package.weights, tmp_path / "model.onnx")
    write_model(
        package.architecture, "transformers", package.weights, tmp_path / "a.tar", files=package.hugging_face_files()
    )
    refused = edgefront("model import", str(tmp_path / "theirs"), "-o", str(out))
    assert refused.returncode != exits.OK
    assert "exists; choose a folder that does not exist" in refused.stderr


def test_every_file_of_an_imported_model_states_its_context(tmp_path: Path) -> None:
    import gguf

    their_folder(tmp_path / "theirs", 280)
    config = tmp_path / "theirs" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "max_position_embeddings": 1234}))
    import_transformers(tmp_path / "theirs", tmp_path / "mine")
    package = read_package(tmp_path / "mine")
    assert package.architecture.context_length == 1234
    assert "for up to 1,234 of them at once" in (tmp_path / "mine" / "README.md").read_text()
    files = package.hugging_face_files()
    write_model(package.architecture, "transformers", package.weights, tmp_path / "a.tar", files=files)
    write_model(package.architecture, "gguf", package.weights, tmp_path / "a.gguf", files=files)
    write_model(package.architecture, "onnx", package.weights, tmp_path / "a.onnx")
    with tarfile.open(tmp_path / "a.tar") as file:
        file.extractall(tmp_path, filter="data")
    folder = tmp_path / f"edgefront-{package.architecture.digest[:12]}"
    assert transformers.AutoConfig.from_pretrained(folder).max_position_embeddings == 1234
    assert transformers.AutoTokenizer.from_pretrained(folder).model_max_length == 1234
    fields = gguf.GGUFReader(tmp_path / "a.gguf").fields
    assert fields["qwen3.context_length"].contents() == 1234
    described = {entry.key: entry.value for entry in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert Architecture.parse(described["architecture"]).context_length == 1234


def test_an_end_that_is_no_token_is_left_out_and_said(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 280)
    (tmp_path / "theirs" / "generation_config.json").write_text('{"eos_token_id": [0, 128009], "pad_token_id": -1}')
    done = edgefront("model import", str(tmp_path / "theirs"), "-o", str(tmp_path / "mine"), code=exits.OK)
    assert "without eos_token_id 128009 of generation_config.json" in done.stderr
    assert read_package(tmp_path / "mine").tokenizer.stops == (0,)


@pytest.mark.parametrize(
    ("place", "name"),
    [("Llama-3.2-1B", "Llama-3.2-1B"), (f"models--lab--tiny-1.5/snapshots/{'0a' * 20}", "tiny-1.5")],
)
def test_a_model_is_called_as_its_folder_or_its_repository(tmp_path: Path, place: str, name: str) -> None:
    their_folder(tmp_path / place, 280)
    import_transformers(tmp_path / place, tmp_path / "mine")
    assert read_package(tmp_path / "mine").facts["name"] == name


def test_a_tokenizer_of_another_form_is_said(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 280)
    (tmp_path / "theirs" / "tokenizer.json").rename(tmp_path / "theirs" / "vocab.json")
    done = edgefront("model import", str(tmp_path / "theirs"), "-o", str(tmp_path / "mine"), code=exits.OK)
    assert "without a tokenizer: vocab.json cannot be read" in done.stderr


def test_a_byte_order_mark_and_an_empty_file_are_no_riddle(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 280)
    path = tmp_path / "theirs" / "tokenizer.json"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert import_transformers(tmp_path / "theirs", tmp_path / "mine")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(InvalidInput, match=r"empty\.gguf is empty"):
        architecture_of(tmp_path / "empty.gguf")


def test_weights_that_are_not_finite_are_refused_by_the_files_own_name(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 280)
    path, name = tmp_path / "theirs" / "model.safetensors", "model.layers.0.mlp.up_proj.weight"
    tensors = safetensors.numpy.load_file(path)
    tensors[name][3, 3] = np.nan
    safetensors.numpy.save_file(tensors, path, {"format": "pt"})
    with pytest.raises(InvalidInput, match=f"numbers in {name} that are not finite"):
        import_transformers(tmp_path / "theirs", tmp_path / "mine")
    assert not (tmp_path / "mine").exists()
    path.rename(path.with_name("model-00001-of-00001.safetensors"))
    with pytest.raises(NotFound, match=r"model-00001-of-00001\.safetensors needs model\.safetensors\.index"):
        import_transformers(tmp_path / "theirs", tmp_path / "mine")


def test_a_folder_that_cannot_be_imported_leaves_nothing(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 200)
    with pytest.raises(InvalidInput, match="has 270 tokens, but the model has 200"):
        import_transformers(tmp_path / "theirs", tmp_path / "mine")
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    assert not import_transformers(tmp_path / "theirs", tmp_path / "mine")
    with pytest.raises(Conflict, match="exists"):
        import_transformers(tmp_path / "theirs", tmp_path / "mine")
    path = tmp_path / "theirs" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InvalidInput, match="cut short"):
        import_transformers(tmp_path / "theirs", tmp_path / "other")
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    (tmp_path / "theirs" / "config.json").write_text(json.dumps({**config, "head_dim": 4}))
    with pytest.raises(InvalidInput, match="of shape"):
        import_transformers(tmp_path / "theirs", tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "theirs"]


def test_a_licence_survives_every_file_of_a_model(tmp_path: Path) -> None:
    their_folder(tmp_path / "theirs", 280)
    (tmp_path / "theirs" / "README.md").write_text("---\nlicense: other\nlicense_name: Lab 1\n---\n")
    import_transformers(tmp_path / "theirs", tmp_path / "mine")
    package = read_package(tmp_path / "mine")
    assert package.facts["licence"] == "Lab-1"
    files = package.hugging_face_files()
    write_model(package.architecture, "gguf", package.weights, tmp_path / "a.gguf", files=files)
    write_model(package.architecture, "onnx", package.weights, tmp_path / "a.onnx")
    described = {entry.key: entry.value for entry in onnx.load(tmp_path / "a.onnx").metadata_props}
    assert (described["name"], described["licence"]) == ("theirs", "Lab-1")
    import_gguf(tmp_path / "a.gguf", tmp_path / "again")
    facts = read_package(tmp_path / "again").facts
    assert (facts["name"], facts["licence"]) == ("theirs", "Lab-1")

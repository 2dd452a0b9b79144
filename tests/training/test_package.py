"""A trained model's folder: what is written is read again, in torch and in ONNX Runtime, and damage is told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import safetensors.numpy
import torch
import yaml
from built_graphs import build
from huggingface_hub import ModelCard
from packages import DESCRIPTIONS, lively, package
from translators import translator
from typer.testing import CliRunner

from edgefront.cli.main import app
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from edgefront.core.model_files.model_file import file_name, write_model
from edgefront.core.model_files.parameter_values import StoredValues
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.weights import load_safetensors
from edgefront.core.training.evaluation.model_card import front_matter, licence_in, model_card, task_of
from edgefront.core.training.evaluation.package import read_package, write_package
from edgefront.core.training.recipes.recipe import Recipe

FACTS: dict[str, Any] = {
    "training": "01TRAINING",
    "dataset": "wikitext-103",
    "data_digest": "d" * 64,
    "level": "words",
    "recipe": Recipe(name="quick", source="nowhere").model_dump(mode="json"),
    "seed": 3,
    "steps": 4000,
    "best_step": 3000,
    "tokens": 123_456_789,
    "seconds": 5400.0,
    "valid": {"loss": 3.1, "tokens": 217_645, "perplexity": 22.198, "bpc": None, "word_perplexity": 22.2},
    "test": {"loss": 3.2, "tokens": 245_568, "perplexity": 24.53, "bpc": None, "word_perplexity": 24.5},
}


def session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_what_is_written_is_read_again(name: str, tmp_path: Path) -> None:
    model = lively(DESCRIPTIONS[name])
    write_package(tmp_path / "model", model, ByteTokenizer(), FACTS)
    found = read_package(tmp_path / "model")
    assert found.architecture == model.architecture
    assert found.recipe == Recipe(name="quick", source="nowhere")
    assert found.facts == {**FACTS, "digest": model.architecture.digest}
    assert found.tokenizer.encode("hé") == ByteTokenizer().encode("hé")
    loaded = found.model()
    assert not loaded.training
    for parameter, (key, other) in zip(model.parameters(), loaded.named_parameters(), strict=True):
        assert torch.equal(parameter, other), key
    # The weights' own file says what it is, wherever it goes.
    about = found.weights.about
    assert about["weights"] == "trained"
    assert (about["training"], about["dataset"], about["recipe"]) == ("01TRAINING", "wikitext-103", "quick")
    assert load_safetensors(found.weights.path).architecture == model.architecture
    assert json.loads((found.folder / "architecture.json").read_text()) == model.architecture.canonical


def test_the_same_training_leaves_the_same_bytes(tmp_path: Path) -> None:
    first, second = (package(tmp_path / name, **FACTS) for name in "ab")
    for path in first.folder.iterdir():
        assert path.read_bytes() == (second.folder / path.name).read_bytes(), path.name


def test_a_translation_model_has_both_tokenizers(tmp_path: Path) -> None:
    model = translator(vocabulary=6)
    words = WordTokenizer(["<eos>", "<unk>", "a", "b", "c", "d"])
    write_package(tmp_path, model, words, {}, CharacterTokenizer("abcdefghi"))
    found = read_package(tmp_path)
    assert found.tokenizer.decode([2, 5]) == "a d"
    assert found.source_tokenizer.decode([2, 5]) == "cf"
    with pytest.raises(InvalidInput, match="has no source"):
        _ = package(tmp_path / "other").source_tokenizer


@pytest.mark.parametrize("numbers", ["float32", "float16", "bfloat16", "int8"])
@pytest.mark.parametrize("name", ["gpt2", "srupp"])
def test_trained_weights_are_those_of_the_builder(name: str, numbers: NumberFormat, tmp_path: Path) -> None:
    found = package(tmp_path / "model", name, **FACTS)
    path = tmp_path / file_name(found.architecture.digest, None, "onnx")
    assert "-trained" in path.name
    write_model(found.architecture, "onnx", found.weights, path, numbers)
    read = onnx.load(path)
    about = {entry.key: entry.value for entry in read.metadata_props}
    assert (about["weights"], about["training"]) == ("trained", "01TRAINING")
    written = {item.name: onnx.numpy_helper.to_array(item) for item in read.graph.initializer}
    arrays = {key: value.detach().numpy() for key, value in found.model().named_parameters()}
    if numbers == "bfloat16":
        for key, array in arrays.items():
            rounded = torch.from_numpy(array).to(torch.bfloat16).float().numpy()
            np.testing.assert_array_equal(np.asarray(written[key], np.float32), rounded)
        return
    options = GraphOptions(quantisation="int8") if numbers == "int8" else GraphOptions(dtype=numbers)
    built = build(found.architecture, options, weights=arrays).graph.initializer
    for item in built:
        np.testing.assert_array_equal(written[item.name], onnx.numpy_helper.to_array(item), err_msg=item.name)
    tokens = np.random.default_rng(2).integers(0, 256, (1, 12))
    (scores,) = session(path).run(None, {"tokens": tokens})
    with torch.inference_mode():
        wanted = np.asarray(found.model()(torch.from_numpy(tokens)))
    assert np.abs(scores.astype(np.float32) - wanted).max() < 0.05 * np.abs(wanted).max()


def test_onnx_of_a_package_needs_no_torch(tmp_path: Path) -> None:
    found = package(tmp_path / "model")
    program = (
        "import sys; from pathlib import Path; from edgefront.core.training.evaluation.package import read_package\n"
        "from edgefront.core.model_files.model_file import write_model\n"
        "found = read_package(sys.argv[1]); found.tokenizer; found.recipe\n"
        "write_model(found.architecture, 'onnx', found.weights, Path(sys.argv[2]))\n"
        "assert 'torch' not in sys.modules"
    )
    path = tmp_path / "model.onnx"
    subprocess.run([sys.executable, "-c", program, str(found.folder), str(path)], check=True)
    assert path.stat().st_size > 0


def test_the_command_builds_files_of_trained_models(tmp_path: Path) -> None:
    found = package(tmp_path / "model", "srupp", **FACTS)
    arguments = ["model", "build", str(found.folder), "--format", "onnx-decode", "--numbers", "int8", "--json"]
    done = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert done.exit_code == 0, done.output
    output = json.loads(done.stdout)
    assert (output["weights"], output["seed"], output["digest"]) == ("trained", None, found.architecture.digest)
    wanted = tmp_path / "wanted.onnx"
    write_model(found.architecture, "onnx-decode", found.weights, wanted, "int8")
    assert Path(output["path"]).read_bytes() == wanted.read_bytes()
    assert "trained-decode-int8" in output["path"]
    refused = CliRunner().invoke(app, ["model", "build", str(tmp_path)])
    assert isinstance(refused.exception, NotFound)


def test_the_card_tells_what_is_known_and_what_is_not(tmp_path: Path) -> None:
    measured = {"device": "Pi | 5", "protocol": "forward 192", "latency_ms": 12.345, "peak_bytes": 3 << 20}
    measured |= {"vocab_size": 50264}
    card = (package(tmp_path / "a", **FACTS, measurements=[measured]).folder / "README.md").read_text()
    for text in ("wikitext-103", "123,456,789", "24.53", "22.2", "| steps | 4,000 |", "1.50", "adamw, lr 0.001"):
        assert text in card
    assert "| Pi \\| 5 | forward 192 | 12.3 | 3.1 | 50,264 |" in card
    assert "The published data set wikitext-103 is under CC BY-SA 3.0 and GFDL" in card
    assert "bits per character" not in card
    bare = model_card(lively(DESCRIPTIONS["bert"]).architecture, {"licence": "CC BY-SA 4.0"})
    assert "pipeline_tag: fill-mask" in bare
    assert "nothing was recorded" in bare
    assert "CC BY-SA 4.0" in bare
    assert "not recorded here" in bare
    assert "edgefront generate" not in bare
    assert "None: this model reads and writes the numbers of tokens." in bare


def test_the_head_of_the_card_is_what_the_hub_reads(tmp_path: Path) -> None:
    model = lively(DESCRIPTIONS["gpt2"])
    write_package(tmp_path, model, ByteTokenizer(), {**FACTS, "name": 'a "small": one', "licence": "CC-BY-SA-4.0"})
    card = ModelCard.load(tmp_path / "README.md")
    data = card.data.to_dict()
    assert {name: data[name] for name in ("license", "language", "datasets", "pipeline_tag", "library_name")} == {
        "license": "cc-by-sa-4.0",
        "language": ["en"],
        "datasets": ["Salesforce/wikitext"],
        "pipeline_tag": "text-generation",
        "library_name": "edgefront",
    }
    assert card.data.model_name == 'a "small": one'
    found = {
        (eval_result.dataset_split, eval_result.metric_type): eval_result
        for eval_result in card.data.eval_results or []
    }
    assert sorted(found) == [
        (split, metric) for split in ("test", "validation") for metric in ("perplexity", "word_perplexity")
    ]
    one = found["test", "perplexity"]
    assert (one.metric_value, one.dataset_type, one.dataset_name) == (24.53, "Salesforce/wikitext", "wikitext-103")
    assert (one.task_type, one.task_name) == ("text-generation", "Text Generation")
    for facts, expected in (
        ({}, {"license": "unknown"}),
        ({"licence": "Lab-1.0", "dataset": "mine"}, {"license": "other", "license_name": "lab-1.0"}),
    ):
        matter = yaml.safe_load(front_matter(model.architecture, facts, "x", "edgefront").split("---")[1])
        assert expected.items() <= matter.items()
        assert not {"language", "datasets", "model-index"} & matter.keys()
    assert task_of(translator(vocabulary=6).architecture) == "translation"


def test_a_card_is_written_again_with_what_became_known(tmp_path: Path) -> None:
    folder = package(tmp_path / "a", "gpt2", **FACTS).folder
    done = CliRunner().invoke(app, ["model", "card", str(folder), "--licence", "mit", "--name", "Ada's"])
    assert done.exit_code == 0, done.output
    assert read_package(folder).facts["licence"] == "mit"
    arguments = ["--sequence-length", "8", "--launches", "1", "--repeats", "1", "--record"]
    done = CliRunner().invoke(app, ["measure", str(folder), *arguments, "--json"])
    assert done.exit_code == 0, done.output
    output = json.loads(done.stdout)
    (item,) = read_package(folder).facts["measurements"]
    assert (item["latency_ms"], item["peak_bytes"]) == (output["latency_ms"], output["memory"]["peak_bytes"])
    card = (folder / "README.md").read_text()
    assert "forward pass of 8 tokens with onnxruntime, 1 thread" in card
    assert "Measured with untrained weights" in card
    assert "license: mit" in card
    assert "# Ada's" in card
    refused = CliRunner().invoke(app, ["model", "card", str(folder), "--licence", "do as you like"])
    assert isinstance(refused.exception, InvalidInput)


def test_missing_and_damaged_packages_are_reported(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="not a trained model"):
        read_package(tmp_path / "nowhere")
    for name in ("result.json", "model.safetensors"):
        folder = package(tmp_path / name).folder
        (folder / name).unlink()
        with pytest.raises(NotFound, match=f"{name} is missing"):
            read_package(folder)
    folder = package(tmp_path / "json").folder
    (folder / "result.json").write_text("{")
    with pytest.raises(InvalidInput, match="is not JSON"):
        read_package(folder)
    folder = package(tmp_path / "cut").folder
    whole = (folder / "model.safetensors").read_bytes()
    for size in (4, 200, len(whole) - 1):
        (folder / "model.safetensors").write_bytes(whole[:size])
        with pytest.raises(InvalidInput, match="cut short"):
            read_package(folder)
    mixed = package(tmp_path / "mixed").folder
    (mixed / "model.safetensors").write_bytes(
        (package(tmp_path / "sru", "sru").folder / "model.safetensors").read_bytes()
    )
    with pytest.raises(InvalidInput, match=r"result\.json is of architecture"):
        read_package(mixed)
    ByteTokenizer(range(100)).save(package(tmp_path / "tokens").folder)
    with pytest.raises(InvalidInput, match="has 100 tokens, but the model has 256"):
        _ = read_package(tmp_path / "tokens").tokenizer


def test_weights_that_are_wrong_are_named(tmp_path: Path) -> None:
    found = package(tmp_path / "model", "sru")
    path, arrays = found.weights.path, safetensors.numpy.load_file(found.weights.path)
    with safetensors.safe_open(path, "np") as file:
        about = file.metadata()
    first = min(arrays)
    for changed, said in (
        ({key: value for key, value in arrays.items() if key != first}, f"lacks the parameter {first}"),
        ({**arrays, "extra": np.zeros(1, np.float32)}, "has extra, which is not a parameter"),
        ({**arrays, first: arrays[first].astype(np.float16)}, f"has {first} as F16"),
    ):
        safetensors.numpy.save_file(changed, path, about)
        with pytest.raises(InvalidInput, match=said):
            StoredValues(path)
    safetensors.numpy.save_file(arrays, path, {**about, "digest": "0"})
    with pytest.raises(InvalidInput, match="names digest 0"):
        StoredValues(path)
    arrays[first] = np.full_like(arrays[first], np.nan)
    safetensors.numpy.save_file(arrays, path, about)
    with pytest.raises(InvalidInput, match=f"{first} that are not finite"):
        read_package(found.folder).model()
    wrong = read_package(found.folder)
    for format_ in ("safetensors", "onnx"):
        with pytest.raises(InvalidInput, match=f"{first} that are not finite"):
            write_model(wrong.architecture, format_, wrong.weights, tmp_path / f"a.{format_}")
        assert not (tmp_path / f"a.{format_}").exists()
    arrays[first] = np.full_like(arrays[first], 1e5)
    safetensors.numpy.save_file(arrays, path, about)
    with pytest.raises(InvalidInput, match="float16 cannot represent the weight 100000"):
        write_model(wrong.architecture, "onnx", read_package(found.folder).weights, tmp_path / "a.onnx", "float16")


def test_a_package_that_could_not_be_written_is_none(tmp_path: Path) -> None:
    model = lively(DESCRIPTIONS["sru"])
    write_package(tmp_path, model, ByteTokenizer(), {})
    (tmp_path / "architecture.json").unlink()
    (tmp_path / "architecture.json").mkdir()
    with pytest.raises(OSError, match=r"architecture\.json"):
        write_package(tmp_path, model, ByteTokenizer(), {})
    with pytest.raises(NotFound):  # neither the old model's facts nor half a new one
        read_package(tmp_path)


@pytest.mark.parametrize(
    ("head", "licence"),
    [
        ("---\nlicense: apache-2.0\nlanguage:\n- en\n---\n# A model\n", "apache-2.0"),
        ("---\r\nlicense: mit\r\n---\r\n", "mit"),
        ("---\nlicense: other\nlicense_name: lab-1\n---\n", "lab-1"),
        ("---\nlicense: unknown\n---\n", None),
        ("---\nlicense: [mit, apache-2.0]\n---\n", "mit-and-apache-2.0"),
        ("\ufeff---\nlicense: other\nlicense_name: Llama 3.2 Community Licence\n---\n", "Llama-3.2-Community-Licence"),
        ("---\nlanguage: [en\n---\n", None),
        ("# A model\n\nlicense: mit\n", None),
        ("", None),
    ],
)
def test_the_licence_that_a_readme_states(tmp_path: Path, head: str, licence: str | None) -> None:
    (tmp_path / "README.md").write_bytes(head.encode())
    assert licence_in(tmp_path / "README.md") == licence
    assert licence_in(tmp_path / "none.md") is None

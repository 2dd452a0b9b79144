"""From a trained model to a smaller one that llama.cpp runs: study, cut, heal, write, generate."""

from __future__ import annotations

import threading
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from trained_parent import RECIPE, TrainedParent, trained_parent

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.model_file import write_model
from edgefront.core.training.evaluation.package import WEIGHTS, describe, read_package
from edgefront.core.training.pruning.study import read_pruning_study, write_submodel
from edgefront.core.training.pruning.submodel import explicit_blocks, narrow_block, submodel
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.run import run
from edgefront.core.training.run_folder import EXIT_DONE, RESULT, SPEC, RunSpec

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="llama.cpp is not installed"
    ),
]


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> TrainedParent:
    return trained_parent(tmp_path_factory.mktemp("parent"))


def child_of(parent: Architecture) -> Architecture:
    """Three of its six blocks, two thirds of the inner units, half of the heads."""
    return submodel(parent, [narrow_block(block, 0.6) for block in explicit_blocks(parent)[:3]], parent.d_model)


def test_a_part_is_cut_healed_and_generates_in_llama_cpp(parent: TrainedParent, tmp_path: Path) -> None:
    from in_llama_cpp import generated

    whole = parent.package
    described = describe(whole.folder, licence="mit", name="counter")
    child = child_of(whole.architecture)
    cut = write_submodel(described, child, tmp_path / "cut")
    assert cut.facts["licence"] == "mit"
    assert cut.facts["parent"]["name"] == "counter"
    assert "inner width 96" in cut.facts["cut"]["sentence"]
    card = (tmp_path / "cut" / "README.md").read_text()
    assert cut.facts["cut"]["sentence"] in card

    healing = recipe("distil").overridden(
        {
            "steps": 120,
            "rows": 8,
            "segment": 32,
            "optimizer": {"lr": 0.003},
            "checkpoint_every": 1000,
            "evaluation": RECIPE["evaluation"],
        }
    )
    weights = str(whole.folder / WEIGHTS)
    spec = RunSpec(
        architecture=dict(child.canonical),
        data=str(parent.data.folder),
        recipe=healing.model_dump(mode="json"),
        start=weights,
        inherit=True,
        teacher=weights,
        threads=1,
    )
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / SPEC).write_text(spec.model_dump_json())
    assert run(folder, threading.Event()) == EXIT_DONE
    healed = read_package(folder / RESULT)
    text = parent.held_out()
    after = text.loss(healed.model())
    assert after < text.loss(cut.model()) - 0.2
    assert after < text.loss(whole.model()) + 0.5

    path = tmp_path / "model.gguf"
    write_model(child, "gguf", healed.weights, path, "float32", healed.hugging_face_files())
    prompt = healed.tokenizer.encode("7 and 8 make ")
    tokens, _ = generated(path, prompt, 3)
    model, ours = healed.model(), list(prompt)
    with torch.inference_mode():
        for _ in range(3):
            ours.append(int(model(torch.tensor([ours]))[0, -1].argmax()))
    assert tokens == ours[len(prompt) :]


def test_a_part_is_not_written_over_a_folder_or_against_a_licence(parent: TrainedParent, tmp_path: Path) -> None:
    whole, child = parent.package, child_of(parent.package.architecture)
    forbidding = describe(whole.folder, licence="cc-by-nc-nd-4.0")
    with pytest.raises(InvalidInput, match="forbids derivatives"):
        write_submodel(forbidding, child, tmp_path / "part")
    free = describe(whole.folder, licence="apache-2.0")
    too_few = Architecture.parse({**child.canonical, "embedding": {"vocab_size": 100}})
    with pytest.raises(InvalidInput, match="but the tokenizer has 256"):
        write_submodel(free, too_few, tmp_path / "part")
    (tmp_path / "part").mkdir()
    with pytest.raises(Exception, match="exists"):
        write_submodel(free, child, tmp_path / "part")
    assert read_pruning_study(whole.folder).law.parent == whole.architecture

"""The YAML at the head of a model card, in the format of the Hugging Face Hub: licence, language, data, task, metrics.

The fields are those of the Hub's `modelcard.md`; huggingface_hub reads them (`ModelCard`, `EvalResult`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from edgefront.core.data.sources.catalogue import data_sets
from edgefront.core.data.sources.data_set import DataSet
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.architecture import Architecture

Library = Literal["edgefront", "transformers"]
LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
MAX_HEAD = 64 << 10
"""Characters of a README in which its head is looked for."""
SPLITS = ("valid", "test")
_METRICS = {
    "perplexity": ("perplexity", "perplexity"),
    "word_perplexity": ("word_perplexity", "perplexity per word"),
    "bpc": ("bits_per_character", "bits per character"),
    "bleu": ("bleu", "BLEU"),
}
"""A score of ours → its type on the Hub, and its name for people."""
_TASKS = {"text-generation": "Text Generation", "fill-mask": "Fill-Mask", "translation": "Translation"}
_NO_LICENCE, _OTHER = "unknown", "other"
# https://huggingface.co/docs/hub/repositories-licenses
_LICENCES = frozenset(
    """
    apache-2.0 mit openrail bigscience-openrail-m creativeml-openrail-m bigscience-bloom-rail-1.0 bigcode-openrail-m
    afl-3.0 artistic-2.0 bsl-1.0 bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear c-uda cc cc0-1.0 cc-by-2.0 cc-by-2.5
    cc-by-3.0 cc-by-4.0 cc-by-sa-3.0 cc-by-sa-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0 cc-by-nd-4.0 cc-by-nc-nd-3.0
    cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cdla-sharing-1.0 cdla-permissive-1.0
    cdla-permissive-2.0 wtfpl ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 agpl-3.0 gfdl gpl gpl-2.0 gpl-3.0 lgpl
    lgpl-2.1 lgpl-3.0 isc lppl-1.3c ms-pl mpl-2.0 odc-by odbl openrail++ osl-3.0 postgresql ofl-1.1 ncsa unlicense zlib
    pddl lgpl-lr deepfloyd-if-license llama2 gemma unknown
    """.split()  # noqa: SIM905
)


def front_matter(architecture: Architecture, facts: Mapping[str, Any], name: str, library: Library) -> str:
    """The YAML between its two lines `---`. `facts`: see `model_card.model_card`."""
    import yaml

    task, data = task_of(architecture), data_of(facts)
    fields: dict[str, Any] = {
        **_licence(facts.get("licence")),
        "library_name": library,
        "pipeline_tag": task,
        "tags": ["edgefront", *(["translation"] if task == "translation" else [])],
    }
    if data is not None and data.languages:
        fields["language"] = list(data.languages)
    if data is not None and data.hub is not None:
        fields["datasets"] = [data.hub]
    results = _results(task, facts, data)
    if results:
        types = [metric["type"] for result in results for metric in result["metrics"]]
        fields |= {"metrics": list(dict.fromkeys(types)), "model-index": [{"name": name, "results": results}]}
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)}---\n"


def task_of(architecture: Architecture) -> str:
    """The Hub's name for what the model does."""
    return "translation" if architecture.source else "text-generation" if architecture.causal else "fill-mask"


def data_of(facts: Mapping[str, Any]) -> DataSet | None:
    """The published data set of the name that is recorded; None for data of the user's own."""
    return data_sets().get(str(facts.get("dataset")))


def check_licence(given: str) -> str:
    """The name of a licence as a card states it; `InvalidInput` for a sentence."""
    if LICENCE.fullmatch(given) is None:
        allowed = "an identifier of SPDX or the Hugging Face Hub, such as apache-2.0"
        raise InvalidInput(f"licence {given!r} is no identifier: give {allowed}", field="licence", allowed=allowed)
    return given


def licence_in(card: Path) -> str | None:
    """The licence that the head of a Hugging Face folder's README states; None where there is no such file or head, or
    it states none.
    """
    import yaml

    try:
        with card.open(encoding="utf-8-sig") as file:
            head = file.read(MAX_HEAD)
        _, _, rest = head.partition("---\n")
        fields = yaml.safe_load(rest.partition("\n---")[0]) if head.startswith("---\n") else None
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None
    if not isinstance(fields, dict):
        return None
    return as_licence(fields.get("license"), fields.get("license_name"))


def as_licence(stated: Any, name: Any = None) -> str | None:
    """The identifier of a licence as cards and GGUF files state it; `name` is that of one that is `other`. Several
    become one identifier. None where none is stated.
    """
    if isinstance(stated, list):
        stated = "-and-".join(str(entry) for entry in stated)
    if stated == _OTHER and isinstance(name, str) and name.strip():
        stated = name
    if not isinstance(stated, str) or stated in ("", _NO_LICENCE):
        return None
    plain = re.sub(r"[^A-Za-z0-9.+_]+", "-", stated).strip("-.+_")[:64]
    return plain or None


def forbids_derivatives(licence: str) -> bool:
    """Whether its name says so, as those of Creative Commons do: cc-by-nd-4.0, cc-by-nc-nd-4.0."""
    return "nd" in licence.lower().split("-")


def _licence(stated: str | None) -> dict[str, str]:
    """`unknown` where none was stated: the Hub's own word for it."""
    if not stated:
        return {"license": _NO_LICENCE}
    slug = "-".join(str(stated).lower().split())
    return {"license": slug} if slug in _LICENCES else {"license": _OTHER, "license_name": slug}


def _results(task: str, facts: Mapping[str, Any], data: DataSet | None) -> list[dict[str, Any]]:
    name = str(facts.get("dataset") or "unnamed data")
    results = []
    for split in SPLITS:
        scores = facts.get(split) or {}
        metrics = [
            {"type": kind, "value": scores[ours], "name": label}
            for ours, (kind, label) in _METRICS.items()
            if scores.get(ours) is not None
        ]
        if metrics:
            dataset = {
                "type": name if data is None or data.hub is None else data.hub,
                "name": name,
                "split": "validation" if split == "valid" else split,
            }
            results.append({"task": {"type": task, "name": _TASKS[task]}, "dataset": dataset, "metrics": metrics})
    return results

"""Writes a trained model's README: architecture, training, scores, measurements and licence.

The YAML head has the format of the Hugging Face Hub's `modelcard.md`: licence, language, data, task, metrics.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.hugging_face import TOKENIZER
from edgefront.core.common.units import MB
from edgefront.core.data.sources.data_set import DataSet, data_sets
from edgefront.core.data.tokenizers.tokenizers import FILE, Tokenizer

Library = Literal["edgefront", "transformers"]
LICENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
MAX_HEAD = 64 << 10
"""Number of characters of a README that are searched for the YAML head."""
SPLITS = ("valid", "test")
_METRICS = {
    "perplexity": ("perplexity", "perplexity"),
    "word_perplexity": ("word_perplexity", "perplexity per word"),
    "bpc": ("bits_per_character", "bits per character"),
    "bleu": ("bleu", "BLEU"),
}
"""Name of a score here → type of the metric on the Hub, and name of the metric in words."""
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
    """Returns the YAML head of a README, including its lines `---`. `facts` are described in `model_card`."""
    import yaml

    task, data = task_of(architecture), data_of(facts)
    name_of_licence = "-".join(str(facts.get("licence") or _NO_LICENCE).lower().split())
    is_known = name_of_licence in _LICENCES
    fields: dict[str, Any] = {
        **({"license": name_of_licence} if is_known else {"license": _OTHER, "license_name": name_of_licence}),
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
    """Returns the Hub's name for the model's task."""
    return "translation" if architecture.source else "text-generation" if architecture.causal else "fill-mask"


def data_of(facts: Mapping[str, Any]) -> DataSet | None:
    """Returns the data set in `facts` if the data set is published; None for a user's own data."""
    return data_sets().get(str(facts.get("dataset")))


def check_licence(given: str) -> str:
    """Returns the given licence. Raises `InvalidInput` if the text does not have the form of an identifier."""
    if LICENCE.fullmatch(given) is None:
        allowed = "an identifier of SPDX or the Hugging Face Hub, such as apache-2.0"
        raise InvalidInput(f"licence {given!r} is not an identifier. Give {allowed}", field="licence", allowed=allowed)
    return given


def licence_in(card: Path) -> str | None:
    """Reads the licence in the head of a Hugging Face folder's README; None if there is none."""
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


def as_licence(licence: Any, name: Any = None) -> str | None:
    """Returns the identifier of a licence in a model card or GGUF file; None without a licence.

    Several licences become one identifier. `name` is used if the licence is `other`.
    """
    if isinstance(licence, list):
        licence = "-and-".join(str(entry) for entry in licence)
    if licence == _OTHER and isinstance(name, str) and name.strip():
        licence = name
    if not isinstance(licence, str) or licence in ("", _NO_LICENCE):
        return None
    return re.sub(r"[^A-Za-z0-9.+_]+", "-", licence).strip("-.+_")[:64] or None


def forbids_derivatives(licence: str) -> bool:
    """Whether the licence forbids derivatives, because its name contains nd, such as cc-by-nd-4.0."""
    return "nd" in licence.lower().split("-")


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


_TOKENS = {
    "bytes": "Its tokens are bytes.",
    "characters": "Its tokens are characters.",
    "words": "Its tokens are words between white space; a line's end and unknown words have tokens of their own.",
    "bpe": "Its tokens are pieces of words (BPE).",
}
_IN_TRANSFORMERS = """\
```python
from transformers import AutoModelForCausalLM, AutoTokenizer

model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")
tokens = model.generate(**tokenizer("Once upon a time", return_tensors="pt"), max_new_tokens=50)
print(tokenizer.decode(tokens[0]))
```
"""


def model_card(
    architecture: Architecture,
    facts: Mapping[str, Any],
    library: Library = "edgefront",
    tokenizer: Tokenizer | None = None,
) -> str:
    """Returns the README, in Markdown, of a model folder for the library `library`.

    `tokenizer` is the folder's tokenizer. `facts` are statements about the model from `result.json`, all optional:
    name, training (id), dataset, data_digest, level, recipe (complete), seed, steps, best_step, tokens, seconds,
    licence (of the weights: an identifier of SPDX or the Hub); valid and test: loss, tokens, perplexity, bpc,
    word_perplexity, bleu; measurements: of a model with this architecture or with equal blocks, each with device,
    protocol, latency_ms, latency_half_width_ms, peak_bytes and vocab_size.
    """
    parameters, kinds = count(architecture), Counter(block.kind for block in architecture.blocks)
    blocks = ", ".join(f"{number} {kind.replace('_', '-')}" for kind, number in kinds.items())
    purpose = "" if architecture.causal else " with bidirectional attention"
    purpose = " that translates" if architecture.source else purpose
    length = architecture.max_length or architecture.context_length
    within = f", for up to {length:,} of them at once" if length else ""
    name = _plain(facts.get("name") or f"Language model {architecture.digest[:12]}")
    parts = [
        front_matter(architecture, facts, str(facts.get("name") or architecture.digest[:12]), library),
        f"# {name}\n",
        f"A model{purpose} of width {architecture.d_model} with {blocks} "
        f"block{'s' * (len(architecture.blocks) > 1)}; {parameters.decoder:,} parameters in its blocks, "
        f"{sum(parameters):,} in all, over {architecture.embedding.vocab_size:,} tokens{within}. "
        f"Architecture `{architecture.digest}`.\n",
        "## Training\n",
        _table(("", ""), _training(facts)),
        "## Evaluation\n",
        _evaluation(facts),
        "## Measured on devices\n",
        _measurements(facts.get("measurements") or (), architecture.embedding.vocab_size, library),
        "## Tokenizer\n",
        _tokenizer(architecture, tokenizer),
        "## Licence\n",
        _licence(facts, library),
        "## Use\n",
        _IN_TRANSFORMERS if library == "transformers" else _use(architecture),
    ]
    return "\n".join(parts)


def _training(facts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    recipe = facts.get("recipe") or {}
    optimizer = recipe.get("optimizer") or {}
    rows: tuple[tuple[str, Any], ...] = (
        ("training", facts.get("training")),
        ("parent", _named(facts.get("parent"))),
        ("what was cut of it", (facts.get("cut") or {}).get("sentence")),
        ("teacher", _named(facts.get("teacher"))),
        ("data set", facts.get("dataset")),
        ("data digest", facts.get("data_digest")),
        ("kind of tokens", facts.get("level")),
        ("recipe", recipe.get("name")),
        ("source of the recipe", recipe.get("source")),
        ("optimiser", f"{optimizer['name']}, lr {optimizer['lr']:g}" if {"name", "lr"} <= optimizer.keys() else None),
        ("batch", f"{recipe['rows']} × {recipe['segment']} tokens" if {"rows", "segment"} <= recipe.keys() else None),
        ("steps", _number(facts.get("steps"))),
        ("weights of step", _number(facts.get("best_step"))),
        ("tokens trained on" + " since the cut" * bool(facts.get("parent")), _number(facts.get("tokens"))),
        ("hours", None if facts.get("seconds") is None else f"{facts['seconds'] / 3600:.2f}"),
        ("seed", facts.get("seed")),
    )
    return [(name, _plain(value)) for name, value in rows if value not in (None, "")] or [("", "nothing was recorded")]


def _named(origin: Mapping[str, Any] | None) -> str:
    """Describes a parent or teacher model in words, by name, training and digest of the weights."""
    if not origin:
        return ""
    phrases = [str(origin[name]) for name in ("name", "training") if origin.get(name)]
    phrases += [f"weights of SHA-256 {origin['sha256']}"] if origin.get("sha256") else []
    return ", ".join(phrases)


def _evaluation(facts: Mapping[str, Any]) -> str:
    scores = [(split, facts[split]) for split in SPLITS if facts.get(split)]
    if not scores:
        return "None was recorded.\n"
    names = {
        "loss": "loss (nats per token)",
        "perplexity": "perplexity",
        "bpc": "bits per character",
        "word_perplexity": "perplexity per word",
        "bleu": "BLEU",
    }
    present = [name for name in names if any(score.get(name) is not None for _, score in scores)]
    rows = [
        (split, *(_number(score.get(name), ".4g") for name in present), _number(score.get("tokens")))
        for split, score in scores
    ]
    table = _table(("split", *(names[name] for name in present), "tokens"), rows)
    evaluation = (facts.get("recipe") or {}).get("evaluation")
    if not evaluation:
        return table
    phrases = [f"{evaluation['segment']} tokens at a time after {evaluation['memory']} of the past"]
    if evaluation.get("same_length"):
        phrases.append("the same number of keys for every token")
    if evaluation.get("clamp") is not None:
        phrases.append(f"distances clamped at {evaluation['clamp']}")
    return f"{table}\nRead {', '.join(phrases)}; {evaluation['rows']} streams in parallel.\n"


def _measurements(measured: Iterable[Mapping[str, Any]], vocabulary: int, library: Library) -> str:
    rows = []
    for item in measured:
        latency, half, peak = item.get("latency_ms"), item.get("latency_half_width_ms"), item.get("peak_bytes")
        rows.append(
            (
                _plain(item.get("device", "")),
                _plain(item.get("protocol", "")),
                "" if latency is None else f"{latency:.3g}" + ("" if half is None else f" ± {half:.2g}"),
                "" if peak is None else f"{peak / MB:,.1f}",
                f"{item.get('vocab_size') or vocabulary:,}",
            )
        )
    if rows:
        table = _table(("device", "pass", "latency (ms)", "peak memory (MB)", "vocabulary"), rows)
        return f"{table}\nMeasured with untrained weights: neither latency nor memory depends on their values.\n"
    how = "" if library == "transformers" else " `edgefront measure . --record` measures this model and adds it here."
    return f"This architecture's latency and memory are not recorded here.{how}\n"


def _tokenizer(architecture: Architecture, tokenizer: Tokenizer | None) -> str:
    if tokenizer is None:
        return "None: this model reads and writes the numbers of tokens.\n"
    expressed = tokenizer.hugging_face()
    if not expressed:
        return f"In edgefront's own form, `{FILE}`: it cannot be expressed as Hugging Face's `{TOKENIZER}`.\n"
    return (
        f"`{TOKENIZER}`, in Hugging Face's form (`AutoTokenizer.from_pretrained`). {_TOKENS[tokenizer.level]}"
        + " That of the text to translate is in `source/`." * (architecture.source is not None)
        + "\n"
    )


def _licence(facts: Mapping[str, Any], library: Library) -> str:
    parents = (facts.get("parent") or {}).get("licence")
    if facts.get("licence"):
        of = "" if not parents else ", as its parent" if parents == facts["licence"] else f"; its parent: {parents}"
        return f"{_plain(facts['licence'] + of)}\n"
    data = data_of(facts)
    sources = (
        "Look up the licence of the data named above before you pass the weights on."
        if data is None or data.licence is None
        else f"The published data set {data.name} is under {data.licence}: look up what that asks of models."
    )
    how = "" if library == "transformers" else " State one with `edgefront model card . --licence NAME`."
    return f"Not stated. {sources}{how}\n"


def _use(architecture: Architecture) -> str:
    lines = []
    if architecture.causal:
        lines.append('edgefront generate . --prompt "Once upon a time"')
    if architecture.causal and architecture.output.kind == "tokens":
        lines.append("edgefront evaluate . --data PREPARED --split test")
    lines.append("edgefront model build . --format onnx --output model.onnx")
    return "```sh\n" + "\n".join(lines) + "\n```\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _number(value: Any, form: str = ",") -> str:
    return "" if value is None else format(value, form)


def _plain(value: Any) -> str:
    """Escapes a user's text for one cell of a Markdown table."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")

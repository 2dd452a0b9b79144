"""Learns the quality laws that come with the product, from the tables in tests/golden.

    python scripts/make_quality_laws.py

Takes half a minute. The same tables give the same laws.
"""

from __future__ import annotations

from pathlib import Path

from edgefront.core.proxies.table import quality_of, read_table, where
from edgefront.core.proxies.trained import trained_models
from edgefront.core.quality.law import Origin, QualityLaw
from edgefront.core.quality.stored import to_text

ROOT = Path(__file__).parent.parent
TABLES = ROOT / "tests" / "golden"
LAWS = ROOT / "core" / "quality" / "laws"

_LTS = (
    "logs of 200 randomly drawn models by Javaheripi et al., LiteTransformerSearch (arXiv 2203.02094, microsoft/archai)"
)
_LTS_RECIPE = "to the end of 40,000 steps of 256 sequences with LAMB at 0.01 (Table 2 of the paper)"

ORIGINS = {
    "gpt2": Origin(
        name="lts-gpt2-wikitext103",
        title="GPT-2 with its own heads and inner width in every layer, on WikiText-103",
        family="gpt2",
        data="WikiText-103",
        split="validation",
        tokens="BPE token (vocabulary of 50,264)",
        trained=_LTS_RECIPE,
        source=_LTS,
        licence="MIT",
    ),
    "txl": Origin(
        name="lts-transformer-xl-wikitext103",
        title="Transformer-XL with its own heads and inner width in every layer, on WikiText-103",
        family="transformer-xl",
        data="WikiText-103",
        split="validation",
        tokens="word (vocabulary of 267,736)",
        trained=_LTS_RECIPE,
        source=_LTS,
        licence="MIT",
    ),
}
HWGPT = Origin(
    name="hwgpt-gpt2-openwebtext",
    title="GPT-2 S with its own heads and inner width in every layer, on OpenWebText",
    family="gpt2",
    data="OpenWebText",
    split="validation",
    tokens="BPE token (vocabulary of 50,254, by its configuration)",
    trained=(
        "not on their own: weights are inherited from one supernet, trained by the sandwich rule (its configuration "
        "says 800,000 steps of 32 sequences of 1,024 tokens a GPU on 4 GPUs)"
    ),
    source="Sukthanker et al., HW-GPT-Bench (arXiv 2405.10299, automl/HW-GPT-Bench), 1,500 models",
    licence="Apache-2.0",
)


def learn(table: str, origin: Origin, backbone: str | None = None) -> None:
    rows = read_table(TABLES / table)
    if backbone is not None:
        rows = where(rows, {"backbone": backbone})
    found = trained_models(rows, quality_of(rows))
    law = QualityLaw.fit(found.shapes, found.log_perplexity, origin)
    path = LAWS / f"{origin.name}.json"
    path.write_text(to_text(law), encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {law.models} models, noise {law.kernel.noise:.2%} of perplexity")  # noqa: T201


def main() -> None:
    LAWS.mkdir(exist_ok=True)
    for backbone, origin in ORIGINS.items():
        learn("lts_trained_wt103.jsonl", origin, backbone)
    learn("hwgpt_owt_perplexity_s.csv.gz", HWGPT)


if __name__ == "__main__":
    main()

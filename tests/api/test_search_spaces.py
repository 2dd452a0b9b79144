"""Search spaces over HTTP: what the catalogue says of them, and jobs on each."""

from __future__ import annotations

from databases import ON_SQLITE
from running_api import Service, problem
from simulated_agent import CLASS

from edgefront.core.quality.shipped import NAMES
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.wire.jobs import JobView
from edgefront.core.wire.service import QualityLawView, SpaceView

TINY = {"d_model": 128, "n_block": [2, 3], "n_layer": [2, 3], "pairs": [2, 3], "d_inner": 512, "n_head": 4}
"""What each space is narrowed to, so far as it has these genes and values."""


def tiny(space: SearchSpace) -> dict[str, object]:
    genes = {gene.name: gene.options for gene in space.gene_list}
    narrowed = {name: value if isinstance(value, list) else [value] for name, value in TINY.items()}
    return {name: values for name, values in narrowed.items() if set(values) <= set(genes.get(name, ()))}


@ON_SQLITE
def test_the_catalogue_says_size_and_caveat(service: Service) -> None:
    views = [SpaceView.model_validate(item) for item in service.client("user").get("/v1/catalogue/spaces").json()]
    assert [view.name for view in views] == list(spaces())
    for view in views:
        space = spaces()[view.name]
        assert int(view.size) == space.size()
        assert view.genes == space.genes()
        assert view.loads_in == space.loaders()
        assert view.caveat == space.caveat
    par = service.client("user").get("/v1/catalogue/spaces/par-32").json()
    assert "252.9 without attention" in par["caveat"]
    assert par["genes"]["kind"] == {"values": ["attention", "feed_forward", "identity"], "per_layer": True}
    assert par["genes"]["min_attention_percent"]["values"] == [20]
    problem(service.client("user").get("/v1/catalogue/spaces/par-33"), 404)


def test_quality_laws_say_what_they_predict(service: Service) -> None:
    client = service.client("user")
    views = [QualityLawView.model_validate(item) for item in client.get("/v1/quality/laws").json()]
    assert [view.name for view in views] == list(NAMES)
    law = QualityLawView.model_validate(client.get("/v1/quality/laws/lts-gpt2-wikitext103").json())
    assert (law.data, law.table_models, law.blocks) == ("WikiText-103", 200, ("attention", "feed_forward"))
    assert law in views
    assert "40,000 steps" in law.trained
    problem(client.get("/v1/quality/laws/none"), 404)


def test_a_job_on_each_space_is_planned_with_its_baselines(service: Service) -> None:
    service.enrol("board", CLASS)
    client = service.client("user", "bob")
    for name, space in spaces().items():
        narrow = tiny(space)
        space_asked = {"name": name, "narrow": narrow}
        asked = service.submit(client, space=space_asked, baseline_layers=[1, 2], proxy="decoder_parameters")
        view = JobView.model_validate_json(client.get(f"/v1/jobs/{asked['id']}").content)
        assert asked["proxy_trust"]["caveat"] == view.proxy_trust.caveat == space.caveat
        assert (view.targets[0].state, view.targets[0].candidates) == ("baselines", 2)
        shown = client.get(f"/v1/jobs/{view.id}/candidates").json()["items"]
        expected = space.narrow(narrow).baselines([1, 2])
        assert sorted(item["digest"] for item in shown) == sorted(model.digest for model in expected)

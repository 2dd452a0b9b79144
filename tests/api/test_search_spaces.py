"""Search spaces and quality laws over HTTP: what the catalogue says of them."""

from __future__ import annotations

from databases import ON_SQLITE
from running_api import Service, problem

from edgefront.core.quality.shipped import NAMES
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.wire.service import QualityLawView, SpaceView


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

"""A job on each search space: baselines, generations, frontier, and what is said of its proxy."""

from __future__ import annotations

from typing import Any

import pytest
from simulated_agent import CLASS, SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space, spaces
from edgefront.core.schemas.jobs import JobView
from edgefront.core.store.tables import Candidate, Target

pytestmark = pytest.mark.slow

NARROW: dict[str, dict[str, Any]] = {
    "lts-transformer-xl": {"n_layer": {"max": 3}, "d_model": [128, 192], "d_embed": [128]},
    "par-32": {"n_block": {"max": 8}, "d_model": [128, 256], "d_inner": 512, "n_head": 4, "min_attention_percent": 25},
    "srupp": {"n_layer": {"max": 4}, "d_model": [256, 320], "attends": ["self", "none"]},
    "bert": {"n_block": {"max": 6}, "d_model": [128, 192], "kind": ["attention", "feed_forward", "identity"]},
    "hybrid": {"n_block": {"max": 6}, "d_model": [128, 192], "min_mixing_percent": 50},
    "llama": {"n_layer": {"max": 4}, "d_model": [128, 192], "vocab_size": 8192, "output": ["tied", "untied"]},
    "lfm": {"n_layer": {"max": 4}, "d_model": [128, 192], "vocab_size": 8192, "window": [0, 128]},
}


def finished(service: Service, name: str, narrow: dict[str, Any]) -> JobView:
    asked = request(
        space={"name": name, "narrow": narrow},
        algorithm={"name": "lts", "settings": {"iterations": 3, "population": 10}},
        targets=[{"device_class": CLASS}],
        budget={"refinement": 0},
    )
    return service.finish(SimulatedAgent(service.database, by_size()), asked)


@pytest.mark.parametrize("name", list(spaces()))
def test_a_job_on_each_space_runs_to_its_end(service: Service, name: str) -> None:
    narrowed = space(name).narrow(NARROW.get(name, {"n_layer": [3, 4], "d_model": [512], "d_inner": {"max": 2048}}))
    narrow = {gene.name: list(gene.values) for gene in narrowed.gene_list}
    job = finished(service, name, narrow)
    (target,) = job.targets
    assert target.note.startswith("The search ended: ")
    assert job.proxy_trust.caveat == space(name).caveat
    assert target.reference is not None
    assert target.frontier_size > 0
    with service.database.read() as session:
        assert session.scalars(select(Target.generation)).one() == 2
        rows = session.scalars(select(Candidate).order_by(Candidate.number)).all()
    baselines = [row for row in rows if row.role == "baseline"]
    assert [row.architecture for row in baselines] == [baseline.canonical for baseline in narrowed.baselines()]
    searched = [row for row in rows if row.role == "search"]
    assert len(searched) == len({row.digest for row in searched}) == target.candidates - len(baselines)
    for row in searched:
        assert row.state == "measured"
        architecture = Architecture.parse(row.architecture)
        assert narrowed.contains(architecture)
        assert narrowed.architecture(row.genome) == architecture
    # A generation beyond the first descends from what was found, and says so.
    known = {row.id: row for row in searched}
    children = [row for row in searched if row.parents]
    assert children
    assert all(known[parent].generation < row.generation for row in children for parent in row.parents)

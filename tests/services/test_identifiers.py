"""What a part of an identifier stands for, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_BOTH

from edgefront.core.common.errors import Forbidden, InvalidInput, NotFound
from edgefront.core.services.access.identifiers import find
from edgefront.core.services.access.keys import Principal
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Device, Job

ADMIN = Principal(key_id="key_1", name="root", owner="root", role="admin")
ANN, BEN = (Principal(key_id=f"key_{name}", name=name, owner=name, role="user") for name in ("ann", "ben"))
JOBS = {
    "job_01m83780s1q9eqevd0p7rkmhs2": "ann",
    "job_01m83780s1q9eqevd0p7rkmhs3": "ann",
    "job_01m8378zzzq9eqevd0p7rk_hs4": "ben",  # an underscore is no wildcard
}


@pytest.fixture
def stored(database: Database) -> Database:
    with database.write() as session:
        now = database.now(session)
        for job, owner in JOBS.items():
            session.add(
                Job(id=job, name="search", owner=owner, state="running", request={}, request_digest="", created_at=now,
                    updated_at=now)
            )  # fmt: skip
        session.add(
            Device(
                id="dev_01m83778t5b7s5s8k18kqyv5f7", name="last", device_class="board", owner="ann", state="active",
                facts={}, enrolled_at=now, busy_s=0.0, measuring_s=0.0,
            )
        )  # fmt: skip
    return database


@ON_BOTH
@pytest.mark.parametrize(
    ("asker", "text", "found"),
    [
        (ANN, "kmhs2", "job_01m83780s1q9eqevd0p7rkmhs2"),
        (ANN, "KMHS3", "job_01m83780s1q9eqevd0p7rkmhs3"),
        (ANN, "job_01m83780s1q9eqevd0p7rkmhs3", "job_01m83780s1q9eqevd0p7rkmhs3"),
        (ANN, "last", "job_01m83780s1q9eqevd0p7rkmhs3"),
        (BEN, "last", "job_01m8378zzzq9eqevd0p7rk_hs4"),
        (BEN, "01m8378", "job_01m8378zzzq9eqevd0p7rk_hs4"),
        (BEN, "job_01m", "job_01m8378zzzq9eqevd0p7rk_hs4"),
        (ADMIN, "hs4", "job_01m8378zzzq9eqevd0p7rk_hs4"),
        (ADMIN, "k_hs4", "job_01m8378zzzq9eqevd0p7rk_hs4"),
    ],
)
def test_a_part_that_one_has_is_enough(stored: Database, asker: Principal, text: str, found: str) -> None:
    with stored.read() as session:
        assert find(session, asker, "job", text) == found


@ON_BOTH
def test_what_is_not_there_and_what_several_have(stored: Database) -> None:
    with stored.read() as session:
        for asker, text in (
            (BEN, "kmhs2"),
            (ANN, "hs4"),
            (ADMIN, "%"),
            (ADMIN, "_hs2"),
            (ADMIN, "\udcff"),
            (ADMIN, "x"),
        ):
            with pytest.raises(NotFound, match="edgefront job list"):
                find(session, asker, "job", text)
        with pytest.raises(InvalidInput, match="rkmhs3, job_01m83780s1q9eqevd0p7rkmhs2"):
            find(session, ANN, "job", "01m83780")
        with pytest.raises(NotFound, match="no training 'last'"):
            find(session, ANN, "training", "last")
        with pytest.raises(Forbidden):
            find(session, ANN, "token", "last")


@ON_BOTH
def test_a_device_has_a_name_too_and_kinds_are_those_of_tables(stored: Database) -> None:
    with stored.read() as session:
        for text in ("last", "v5f7", "dev_01m837"):
            assert find(session, BEN, "device", text) == "dev_01m83778t5b7s5s8k18kqyv5f7"
        with pytest.raises(NotFound, match="there are last"):
            find(session, BEN, "device", "first")
        kinds: list[Any] = ["job", "candidate", "training", "device", "token", "key"]
        for kind in kinds:
            with pytest.raises(NotFound):
                find(session, ADMIN, kind, "nothing")

"""The log of `edgefront up`."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from edgefront.cli.workflows.up import log_to


def test_a_full_disk_does_not_fill_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "service.log"
    path.symlink_to("/dev/full")
    with log_to(path, verbose=False):
        logging.getLogger("edgefront.test").info("nobody needs to see this")
        logging.getLogger("edgefront.test").warning("the disk is full")
    assert capfd.readouterr().err == "WARNING: the disk is full\n"
    assert logging.raiseExceptions

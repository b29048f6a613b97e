"""Locks by which end-to-end tests of several processes take turns on one cluster."""

import fcntl
from pathlib import Path

import pytest

from harness import cluster


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "FOLDER", tmp_path / "e2e")


def free(name: str, how: int) -> bool:
    """Return whether another process would get the lock at once."""
    with (cluster.FOLDER / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_files_that_share_the_cluster_run_together_and_keep_out_who_must_be_alone() -> None:
    with cluster.locked("running", shared=True):
        assert free("running", fcntl.LOCK_SH)
        assert not free("running", fcntl.LOCK_EX)
    assert free("running", fcntl.LOCK_EX)


def test_who_is_alone_keeps_out_all_others() -> None:
    with cluster.locked("running"):
        assert not free("running", fcntl.LOCK_SH)
    assert free("running", fcntl.LOCK_SH)

import os
from dataclasses import replace
from pathlib import Path

import pytest

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.workers.cores import Machine, default_workers, read_machine
from support.wire import settings_for

PLAIN = replace(settings_for(Path("t.json")), max_body_bytes=16 * 2**20, body_memory_bytes=256 * 2**20)
GIB = 2**30


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (Machine(present=64, allowed=64), 1),  # others may use the cores as well
        (Machine(present=64, allowed=64, quota=4.0), 4),
        (Machine(present=64, allowed=64, quota=2.9), 2),
        (Machine(present=64, allowed=64, quota=0.5), 1),
        (Machine(present=64, allowed=64, quota=40.0), 8),
        (Machine(present=64, allowed=3), 3),
        (Machine(present=64, allowed=2, quota=4.0), 2),
        (Machine(present=64, allowed=64, quota=4.0, memory=GIB), 1),
        (Machine(present=64, allowed=64, quota=4.0, memory=2 * GIB), 4),
        (Machine(present=64, allowed=64, quota=4.0, memory=GIB // 4), 1),
    ],
)
def test_workers_are_as_many_as_there_surely_are_cores_and_memory_for(machine, expected):
    assert default_workers(machine, PLAIN) == expected


def test_among_peers_each_worker_has_a_port_and_one_is_spare():
    machine = Machine(present=64, allowed=64, quota=16.0)
    assert default_workers(machine, replace(PLAIN, peers=(PeerName("routers"),), peer_ports=4)) == 3
    assert default_workers(machine, replace(PLAIN, peers=(PeerName("routers"),), peer_ports=1)) == 1


def cgroups(folder, own, **files):
    membership = folder / "membership"
    membership.write_text(f"0::{own}\n")
    for name, text in files.items():
        path = folder / "cgroup" / name.replace("__", "/").replace("_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_machine(folder / "cgroup", membership)


def test_a_container_sees_its_own_limit_at_the_root(tmp_path):
    found = cgroups(tmp_path, "/", cpu_max="250000 100000\n", memory_max="1073741824\n")
    assert (found.quota, found.memory) == (2.5, GIB)
    assert found.allowed == len(os.sched_getaffinity(0))


def test_the_tightest_limit_of_all_groups_above_counts(tmp_path):
    found = cgroups(
        tmp_path, "/pods/one", pods__cpu_max="200000 100000\n", pods__one__cpu_max="max 100000\n",
        pods__memory_max="max\n", pods__one__memory_max="5000\n",
    )  # fmt: skip
    assert (found.quota, found.memory) == (2.0, 5000)


def test_the_first_version_of_cgroups_is_read(tmp_path):
    (tmp_path / "cgroup" / "cpu").mkdir(parents=True)
    (tmp_path / "cgroup" / "cpu" / "cpu.cfs_quota_us").write_text("300000\n")
    (tmp_path / "cgroup" / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert read_machine(tmp_path / "cgroup", tmp_path / "none").quota == 3.0


@pytest.mark.parametrize("text", ["", "max 100000", "-1 100000", "many few", "100000", "100000 0", "\xff"])
def test_what_is_no_limit_is_none(tmp_path, text):
    assert cgroups(tmp_path, "/../..", cpu_max=text, memory_max=text).quota is None

import os
import socket
import subprocess
import sys
import threading

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import PromptRef
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.nodes.worker_template import DEFAULT_GRACE, worker_template
from promptgroup_operator.plan import desired
from promptgroup_operator.world.snapshot import CONTAINER
from support.builders import FINGERPRINT, group

NODES = {"nodes": 2, "args": ["--tensor-parallel-size=2"]}


def templates(**engine):
    of = group(engine=NODES | engine)
    made = desired.deployment(of, FINGERPRINT, 1, PromptRef("ConfigMap", "x"), records={})
    leader = made["spec"]["template"]
    return leader, worker_template(leader, DIALECTS[of.spec.engine.type], of.spec.engine)


def container(template):
    return next(each for each in template["spec"]["containers"] if each["name"] == CONTAINER)


def test_a_worker_is_the_leader_without_all_that_serves():
    leader, worker = templates()
    left_out = {"ports", "startupProbe", "readinessProbe", "livenessProbe"}
    assert left_out <= container(leader).keys()
    assert container(leader).keys() - container(worker).keys() == left_out
    assert container(worker)["args"] == [*container(leader)["args"], "--headless"]
    assert "readinessGates" in leader["spec"]
    assert "readinessGates" not in worker["spec"]
    kept = leader["spec"].keys() - {"readinessGates", "containers"}
    assert {key: worker["spec"][key] for key in kept} == {key: leader["spec"][key] for key in kept}


def test_nothing_takes_a_worker_for_a_replica():
    leader, worker = templates(template={"metadata": {"labels": {"team": "search"}}})
    assert leader["metadata"]["labels"][names.LABEL_GROUP] == "support"
    assert worker["metadata"]["labels"] == {"team": "search", names.LABEL_WORKER: "support"}


def test_other_containers_of_a_pod_stay_as_they_are():
    sidecar = {"name": "log", "image": "log", "ports": [{"containerPort": 1}]}
    leader, worker = templates(template={"spec": {"containers": [sidecar]}})
    assert sidecar in worker["spec"]["containers"]
    assert sidecar in leader["spec"]["containers"]


def test_a_worker_waits_for_its_leader_as_long_as_its_grace_period_lasts():
    leader, worker = templates()
    hook = container(worker)["lifecycle"]["preStop"]["exec"]["command"]
    assert hook[-2:] == ["8000", str(leader["spec"]["terminationGracePeriodSeconds"])]
    _, worker = templates(template={"spec": {"terminationGracePeriodSeconds": "malformed"}})
    assert container(worker)["lifecycle"]["preStop"]["exec"]["command"][-1] == str(DEFAULT_GRACE)


@pytest.fixture
def hook():
    """Run a worker's hook against an address."""
    _, worker = templates()
    program = container(worker)["lifecycle"]["preStop"]["exec"]["command"][4]

    def run(address, port, seconds="60"):
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", program, str(port), seconds],
            env={**os.environ, "LWS_LEADER_ADDRESS": address},
        )

    return run


def test_the_hook_ends_once_the_leader_listens_no_more(hook):
    leader = socket.create_server(("127.0.0.1", 0))
    accepted = threading.Event()

    def accept():
        leader.accept()[0].close()
        accepted.set()

    threading.Thread(target=accept, daemon=True).start()
    running = hook("127.0.0.1", leader.getsockname()[1])
    assert accepted.wait(60)
    assert running.poll() is None
    leader.close()
    assert running.wait(60) == 0


def test_the_hook_ends_where_the_leader_has_no_address_any_more(hook):
    assert hook("leader.invalid", 8000).wait(60) == 0


def test_the_hook_ends_with_its_time(hook):
    with socket.create_server(("127.0.0.1", 0)) as leader:
        assert hook("127.0.0.1", leader.getsockname()[1], "0").wait(60) == 0

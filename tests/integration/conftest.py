"""One cluster a session, one namespace a test."""

import itertools
from collections.abc import Iterator

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support import audit
from support.controlplane import IMAGES, processes_of
from support.life import Life, lives, living
from support.operators import NAME, REPLICAS, SYSTEM, operator_process, set_operators
from support.sized import Sized

numbers = itertools.count(1)

LONGEST = (
    *(
        "nodes",
        "diagnosis",
        "sizing",
        "release_figures",
        "availability",
        "promptgroup",
        "caller_limits",
        "api_faults",
        "outages",
    ),
    *("canary", "fuzz", "traffic", "install", "scale", "retirement", "drill", "fault_table", "manifests", "samples"),
    *(
        "flux",
        "proxy_states",
        "life",
        "releases",
        "tiers",
        "cli_view",
        "rights",
        "cross_caller",
        "autoscaler",
        "reconcile",
    ),
)
"""Files that take more than a minute, longest first: they begin before all others, so that none ends alone."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let all that lies here run in `make integration`: `make check` does not look at it."""
    if item.get_closest_marker("slow") is None:
        item.add_marker(pytest.mark.integration)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; workers take them in this order (`--no-loadscope-reorder`)."""
    order = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    flags = (*audit.flags(folder / "audit"), "--enable-admission-plugins=OwnerReferencesPermissionEnforcement")
    with LocalCluster(folder, images=IMAGES, api_flags=flags) as cluster:
        yield cluster
        assert audit.refused(cluster.kubectl(), folder / "audit", audit.user(SYSTEM, NAME)) == []
    assert processes_of(folder) == []


@pytest.fixture
def namespace(cluster: LocalCluster) -> Iterator[str]:
    """A fresh namespace; its objects are on their way out when the test has ended."""
    name = f"test-{next(numbers)}"
    everywhere = cluster.kubectl()
    everywhere.make_namespace(name)
    wait_for(lambda: cluster.kubectl(name).get("serviceaccount", "default"), "the default service account")
    yield name
    everywhere.delete("namespace", name, wait=False)


@pytest.fixture
def kube(cluster: LocalCluster, namespace: str) -> Kubectl:
    return cluster.kubectl(namespace)


@pytest.fixture(scope="session")
def crds(cluster: LocalCluster) -> None:
    lab.install_operator(cluster.kubectl())


@pytest.fixture
def operator(cluster: LocalCluster, crds: None) -> None:
    """The operator runs in the cluster, as its manifests say."""
    set_operators(cluster, REPLICAS)


@pytest.fixture(scope="module")
def operators_come_back(cluster: LocalCluster, crds: None) -> Iterator[None]:
    """The operator runs again when the module has ended: between its tests without one it need not start and end."""
    yield
    set_operators(cluster, REPLICAS)


@pytest.fixture
def no_operator(cluster: LocalCluster, operators_come_back: None) -> None:
    """No operator of the cluster's, until a test of the module asks for it."""
    set_operators(cluster, 0)


@pytest.fixture
def operated(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> Iterator[Sized]:
    """A namespace with a router, and an operator of its own that reads engines and routers itself."""
    lab.install_router(kube)
    with operator_process(cluster, kube.namespace):
        yield Sized(cluster, kube)


@pytest.fixture
def quickly_operated(cluster: LocalCluster, kube: Kubectl, no_operator: None) -> Iterator[Sized]:
    """The same, with windows half as long."""
    lab.install_router(kube)
    with operator_process(cluster, kube.namespace, quick=True):
        yield Sized(cluster, kube)


@pytest.fixture(scope="module")
def living_group(cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[Life]:
    """A group under load for a whole module, in a namespace of the module's name."""
    with living(cluster, request.module.__name__.rpartition("test_")[2]) as life:
        yield life


@pytest.fixture
def life(living_group: Life) -> Life:
    """The group at rest, whatever the test before made of it."""
    living_group.kube.apply(lives())
    living_group.rolled()
    return living_group

"""README: an upgrade from the commit before, under load, without a failed request."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness import cluster as kind
from harness.before import source
from harness.clients import Plan, clients, service
from harness.cluster import Cluster
from harness.group import group, prompt
from harness.images import Images, build
from harness.install import install, install_routers, team
from harness.outcomes import unharmed
from promptgroup_local.kubectl import Kubectl

pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The source tree of the commit before."""
    with ExitStack() as stack:
        try:
            tree = stack.enter_context(source(tmp_path_factory.mktemp("before") / "tree"))
        except LookupError as error:
            pytest.skip(str(error))
        yield tree


@pytest.fixture(scope="module")
def old(cluster: Cluster, before: Path) -> Images:
    made = build(before)
    kind.load(cluster, made.names)
    return made


@pytest.fixture(scope="module")
def grown(cluster: Cluster, images: Images, old: Images, before: Path) -> Iterator[Kubectl]:
    """A team that was there before: groups and routers of the commit before."""
    kubectl = cluster.kubectl("e2e-upgrade")
    kubectl.run("delete", "namespace", kubectl.namespace, "--ignore-not-found")
    install(cluster.kubectl(), old, before)
    team(kubectl)
    install_routers(kubectl, old, before)
    kubectl.apply(group("old", images, prompt("a"), replicas=3))
    kubectl.wait_warm("old", "3/3")
    yield kubectl
    install(cluster.kubectl(), images)
    kubectl.delete("namespace", kubectl.namespace, wait=False)


def test_an_upgrade_under_load_fails_no_request(cluster: Cluster, grown: Kubectl, images: Images) -> None:
    plan = Plan((service(grown.namespace),), "old")
    with clients(cluster, images, grown, "old", plan) as running, running.watched(settle=36) as seen:
        install(cluster.kubectl(), images)
        install_routers(grown, images)
        grown.scale("promptgroup", "old", 4)
        grown.wait_warm("old", "4/4")
    assert unharmed(seen)

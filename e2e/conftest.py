"""One kind cluster for all files, the images of this source tree on it, and what failed kept in e2e-artifacts/."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import artifacts
from harness import cluster as kind
from harness.cluster import Cluster
from harness.images import ROOT, Images, build
from harness.install import install, install_routers, team
from promptgroup_local.kubectl import Kubectl

NEEDED = ("docker", "kind", "kubectl", "git")


def pytest_configure() -> None:
    """Say in one line what is missing."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        pytest.exit(f"e2e needs {', '.join(missing)} in PATH: see e2e/README.md", returncode=2)


@pytest.fixture(scope="session")
def images() -> Images:
    """Of this source tree; of the one that E2E_SOURCE names, when a broken build is tested."""
    return build(Path(os.environ.get("E2E_SOURCE", ROOT)))


@pytest.fixture(scope="session")
def cluster(images: Images) -> Iterator[Cluster]:
    made = kind.create()
    kind.load(made, images.names)
    yield made
    if not os.environ.get("E2E_KEEP"):
        kind.delete()


@pytest.fixture(scope="module")
def installed(cluster: Cluster, images: Images) -> None:
    """manifests/ as on a laptop's kind cluster."""
    install(cluster.kubectl(), images)


@pytest.fixture(scope="module")
def kubectl(request: pytest.FixtureRequest, cluster: Cluster, images: Images, installed: None) -> Iterator[Kubectl]:
    """A team's namespace with routers, named after the file."""
    own = cluster.kubectl("e2e-" + request.path.stem.removeprefix("test_").replace("_", "-"))
    own.run("delete", "namespace", own.namespace, "--ignore-not-found")
    team(own)
    install_routers(own, images)
    yield own
    own.run("delete", "namespace", own.namespace, "--wait=false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep what the cluster says at the moment of a failure."""
    report = yield
    found = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(found, Cluster):
        folder = ROOT / "e2e-artifacts" / item.name
        artifacts.keep(found, folder)
        report.sections.append(("artifacts", str(folder)))
    return report

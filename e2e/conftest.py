"""One kind cluster for all files, the images of this source tree on it, and what failed kept in e2e-artifacts/.

Several processes may run files at the same time, each in namespaces of its own (`--numprocesses=2 --dist=loadfile`). A
file that disturbs the cluster is marked `alone`: such files come last, and nothing runs beside them.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import artifacts
from harness import cluster as kind
from harness.cluster import Cluster
from harness.images import ROOT, Images, forget
from harness.install import install, install_routers, team
from harness.made import made as make
from promptgroup_local.kubectl import Kubectl

NEEDED = ("docker", "kind", "kubectl", "git")
LONGEST = ("sizing", "gateway", "endless_load", "release", "drain", "warm_before_ready", "replacement", "tenants")
"""Files that take minutes, longest first: they begin before others, so that none runs on when the rest has ended."""

ON_REQUEST = ("test_hard_day.py", "test_equal_prompts.py")
"""Files that take ten minutes, and hold together or twenty times what others hold one by one."""


def pytest_configure() -> None:
    """Say in one line what is missing."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        pytest.exit(f"e2e needs {', '.join(missing)} in PATH: see e2e/README.md", returncode=2)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what runs only where it is named."""
    name = collection_path.name
    return True if name in ON_REQUEST and not any(name in argument for argument in config.args) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first, and those that disturb the cluster last."""
    places = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: (
            item.get_closest_marker("alone") is not None,
            places.get(item.path.name, len(places)),
        )
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what tests measured (`record_property`)."""
    for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name}: {value}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Remove the cluster and the names of its images once all processes have ended."""
    worker = hasattr(session.config, "workerinput")
    if not (worker or session.config.option.collectonly or os.environ.get("E2E_KEEP")):
        kind.delete()
        forget()


@pytest.fixture(scope="session")
def made(request: pytest.FixtureRequest) -> tuple[Images, Cluster | None]:
    """The images, and the cluster where a test needs one: it comes up while they are built and loaded.

    They are of this source tree, or of the one that E2E_SOURCE names, when a broken build is tested. The first process
    makes them, the others find them.
    """
    needed = any("cluster" in getattr(item, "fixturenames", ()) for item in request.session.items)
    return make(Path(os.environ.get("E2E_SOURCE", ROOT)), with_cluster=needed)


@pytest.fixture(scope="session")
def images(made: tuple[Images, Cluster | None]) -> Images:
    return made[0]


@pytest.fixture(scope="session")
def cluster(made: tuple[Images, Cluster | None]) -> Cluster:
    assert made[1] is not None
    return made[1]


@pytest.fixture(scope="module", autouse=True)
def _turn(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run this file beside others, or alone."""
    with kind.locked("running", shared=request.node.get_closest_marker("alone") is None):
        yield


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
    own.delete("namespace", own.namespace, wait=False)


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

"""Installed, installed again, upgraded and removed, by kubectl and by Helm, on control planes of their own."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster import binaries
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.controlplane import IMAGES
from support.differences import wait_no_difference
from support.install import (
    CHART,
    MANIFESTS,
    RELEASE,
    SYSTEM,
    TEAM,
    VARIANTS,
    Helm,
    Identity,
    identity,
    kustomized,
    replica_sets,
    standing,
    versions,
)

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GROUP = MANIFESTS / "overlays/kind/support.yaml"
WHOLE = ("-k", str(MANIFESTS))
OTHER = "chat"
"""Another team's namespace, which no manifest knows of."""
ALWAYS_SENT = "poddisruptionbudget.policy/"
"""kubectl's own merge sends a selector that is replaced as a whole even where it is the same; nothing changes by it."""
TUTORIAL = lab.ROOT / "docs/tutorial/cluster.md"
CRDS = ("promptgroups.promptgroup.dev", "promptroutes.promptgroup.dev")


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(tmp_path_factory.mktemp("install"), images=IMAGES) as plane:
        yield plane


@pytest.fixture
def kubectl(plane: LocalCluster) -> Kubectl:
    return plane.kubectl("")  # the install is of two namespaces


@pytest.fixture
def whole() -> list[Identity]:
    """All objects of the install but its CRDs."""
    return [key for key in kustomized() if key[0] != "CustomResourceDefinition"]


def rolled_out(kubectl: Kubectl) -> None:
    for namespace, name in ((SYSTEM, "promptgroup-operator"), (TEAM, "promptgroup-router")):
        kubectl.within(namespace).rolled_out(name)


def warm_group(kubectl: Kubectl, namespace: str = TEAM) -> None:
    """A group, by default where the restricted profile is enforced."""
    team = kubectl.within(namespace)
    team.run("apply", "-f", str(GROUP))
    team.wait_warm("support", "2/2")


def engine_sets(kubectl: Kubectl, namespace: str = TEAM) -> list[str]:
    found = kubectl.within(namespace).list("deployments", "promptgroup.dev/group")
    return [each["metadata"]["name"] for each in found]


def nothing_left(kubectl: Kubectl, whole: list[Identity]) -> None:
    wait_for(
        lambda: True if not standing(kubectl, whole) else None, "all objects to go", lambda: standing(kubectl, whole)
    )
    assert kubectl.list("crds") == []


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_a_second_apply_changes_nothing_and_a_delete_leaves_nothing(
    kubectl: Kubectl, whole: list[Identity], how: tuple[str, ...]
) -> None:
    kubectl.run("apply", *how, *WHOLE)
    rolled_out(kubectl)
    kubectl.run("create", "namespace", OTHER, check=False)
    for namespace in (TEAM, OTHER):
        warm_group(kubectl, namespace)
    before, sets = versions(kubectl, whole), replica_sets(kubectl)
    assert set(before) == set(whole)

    again = kubectl.run("apply", *how, *WHOLE).stdout.splitlines()
    changed = [line for line in again if not line.endswith(" serverside-applied" if how else " unchanged")]
    assert [line for line in changed if not line.startswith(ALWAYS_SENT)] == []
    wait_no_difference(kubectl, *how, *WHOLE)
    assert versions(kubectl, whole) == before
    assert replica_sets(kubectl) == sets

    # their engines first: the garbage collector does not find what an object owned whose CRD is gone
    kubectl.run("delete", "promptgroups", "--all", "--all-namespaces", "--cascade=foreground")
    kubectl.run("delete", *WHOLE)
    nothing_left(kubectl, whole)
    wait_for(lambda: True if engine_sets(kubectl, OTHER) == [] else None, "engines elsewhere to go")


def test_the_tutorial_leads_where_it_says(
    plane: LocalCluster, kubectl: Kubectl, whole: list[Identity], tmp_path: Path
) -> None:
    """Each command of the page is run, in its order; but images are programs here, and nodes forward no ports."""
    (tmp_path / "manifests").symlink_to(MANIFESTS)
    programs = (Path(sys.executable).parent, Path(binaries.kubectl(binaries.find(print))).parent, os.environ["PATH"])
    environment = os.environ | {"KUBECONFIG": str(plane.kubeconfig), "PATH": ":".join(map(str, programs))}

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return done.stdout

    page = re.sub(r"^```.*?^```$", "", TUTORIAL.read_text(), flags=re.MULTILINE | re.DOTALL)
    scripts = [textwrap.dedent(each) for each in re.findall(r"(?:^    .*\n)+", page, flags=re.MULTILINE)]
    build, install, first, request, look, plan, change, clean = scripts
    team = kubectl.within(TEAM)

    assert build.startswith("make images ")
    run(install)
    run(first)
    forward, ask = request.split("\n", 1)
    assert forward.endswith("port-forward service/promptgroup-router 8080:80 &")
    ask = ask.replace("http://127.0.0.1:8080", lab.router_url(team))
    wait_for(lambda: True if "200 OK" in run(ask) else None, "the router to know the group")
    answer = run(ask)
    assert re.search(rf"(?i)^x-promptgroup-served-by: {TEAM}/first/[0-9a-f]+/0\r?$", answer, re.MULTILINE), answer
    [cached, prompt] = (
        int(re.search(rf'"{field}": ?([0-9]+)', answer)[1])  # type: ignore[index]
        for field in ("cached_tokens", "prompt_tokens")
    )
    assert prompt > cached > prompt / 2
    assert " 1/1 " in run(look)
    before = (team.get("promptgroup", "first") or {})["status"]["revision"]

    assert "Deployment first-" in run(plan)
    watch = " -w\n"
    assert change.endswith(watch)
    run(change.removesuffix(watch))
    team.wait_warm("first", "1/1")
    assert (team.get("promptgroup", "first") or {})["status"]["revision"] != before
    wait_for(lambda: True if f"/first/{before}/" not in run(ask) else None, "new sessions to go to the new revision")

    run(clean)
    nothing_left(kubectl, whole)


def test_helm_installs_upgrades_nothing_and_leaves_what_is_the_users(
    kubectl: Kubectl, plane: LocalCluster, whole: list[Identity], tmp_path: Path
) -> None:
    helm = Helm(tmp_path, plane.kubeconfig)
    release = (RELEASE, str(CHART), f"--namespace={SYSTEM}", "--wait", "--timeout=170s")
    helm.run("install", *release, "--create-namespace")
    warm_group(kubectl)
    before, sets = versions(kubectl, whole), replica_sets(kubectl)
    assert set(before) == set(whole)

    helm.run("upgrade", *release)
    assert versions(kubectl, whole) == before
    assert replica_sets(kubectl) == sets
    rendered = tmp_path / "rendered.yaml"
    rendered.write_text(helm.run("get", "manifest", RELEASE, f"--namespace={SYSTEM}").stdout)
    wait_no_difference(kubectl, "-f", str(rendered))

    engines = engine_sets(kubectl)
    helm.run("uninstall", RELEASE, f"--namespace={SYSTEM}", "--wait")
    theirs = {("Namespace", "", TEAM), ("Namespace", "", SYSTEM)}
    assert set(standing(kubectl, whole)) == theirs
    assert {each["metadata"]["name"] for each in kubectl.list("crds")} == set(CRDS)
    assert kubectl.within(TEAM).get("promptgroup", "support") is not None
    assert engine_sets(kubectl) == engines

    helm.run("install", *release)
    kubectl.within(TEAM).wait_warm("support", "2/2")
    assert engine_sets(kubectl) == engines


def test_what_values_change_is_valid_to_the_api_server(kubectl: Kubectl, tmp_path: Path) -> None:
    helm = Helm(tmp_path)
    for values in VARIANTS.values():
        rendered = [
            each
            for each in helm.template(*values).values()
            if not each["apiVersion"].startswith("monitoring.coreos.com/")
        ]
        spaces = {identity(each)[1] for each in rendered if identity(each)[1]}
        for name in spaces:
            kubectl.run("create", "namespace", name, check=False)
        done = kubectl.run(
            *("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-"),
            stdin=yaml.safe_dump_all(rendered),
        )
        assert "Warning" not in done.stderr

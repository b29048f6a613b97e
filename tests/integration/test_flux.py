"""Flux's own controller applies the samples of manifests/gitops/flux as they are, on a control plane of its own.

It installs the operator, waits for warm groups, corrects drift, prunes, and leaves numbers of replicas to sizing and to
autoscalers.

Skipped where kustomize-controller is not built, which takes minutes: `make flux` builds it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.images import BUILT_IN
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.atrest import wait_unwritten
from support.controlplane import IMAGES
from support.flux import Flux, controller, tree
from support.gitops import specs, versions
from support.gotools import MissingToolError, program
from support.groups import PROMPTS, group
from support.sized import SIZING
from support.yamlfiles import written

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SAMPLES = lab.ROOT / "manifests/gitops/flux"
INSTALL = list(yaml.safe_load_all((SAMPLES / "install.yaml").read_text()))
[GROUPS] = yaml.safe_load_all((SAMPLES / "promptgroups.yaml").read_text())
INSTALLED, APPLIED, REPOSITORY = "promptgroup", "promptgroups", "platform"
TEAM = GROUPS["spec"]["targetNamespace"]
PULLED = {
    f"registry.example.com/promptgroup/{name}": BUILT_IN[f"promptgroup.invalid/{name}"]
    for name in ("operator", "router")
}
"""The images as install.yaml names them."""
SOURCE = {
    **copy.deepcopy(INSTALL[0]),
    "metadata": {**INSTALL[0]["metadata"], "name": REPOSITORY},
}
"""The GitRepository that promptgroups.yaml names and does not have, since it is the user's."""
QUICKLY = {"retireAfter": "1s"}
"""What was replaced gives its place up at once."""
FIRST = group("support", replicas=1, rollout=QUICKLY)


@pytest.fixture(scope="module")
def flux(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    """The controller, with the sample of an install and that of groups, which were applied at the same time."""
    try:
        path = program("kustomize-controller", build=False)
    except MissingToolError as missing:
        pytest.skip(f"FLUX IS NOT BUILT HERE: {missing}")
    with (
        LocalCluster(tmp_path_factory.mktemp("flux"), images=IMAGES | PULLED) as cluster,
        controller(cluster, path) as flux,
    ):
        flux.kube.apply(SOURCE, *INSTALL, GROUPS)
        flux.publish(REPOSITORY, written(support=FIRST))
        flux.wait_ready(APPLIED, "False", "DependencyNotReady")
        assert cluster.kubectl().run("get", "namespace", TEAM, check=False).returncode != 0
        flux.wait_applied(INSTALLED, flux.publish(INSTALLED, tree(lab.ROOT, "manifests", "crds")))
        yield flux


@pytest.fixture
def team(flux: Flux) -> Kubectl:
    """The groups' namespace, with nothing but the first group."""
    flux.kube.patch("kustomization", APPLIED, GROUPS)
    flux.wait_applied(APPLIED, flux.publish(REPOSITORY, written(support=FIRST)))
    team = flux.kube.within(TEAM)
    wait_for(lambda: True if len(team.list("promptgroups")) == 1 else None, "one group")
    return team


def test_the_samples_install_the_operator_and_then_its_groups(flux: Flux, team: Kubectl) -> None:
    assert flux.ready(INSTALLED)[0] == flux.ready(APPLIED)[0] == "True"
    support = team.get("promptgroup", "support") or {}
    assert support["status"]["warm"] == "1/1"
    assert support["metadata"].get("finalizers", []) == []
    assert len(team.list("deployments", "app.kubernetes.io/name=promptgroup-router")) == 1


@pytest.mark.parametrize("expressions", [None, GROUPS["spec"]["healthCheckExprs"]], ids=["kstatus", "expressions"])
def test_a_revision_is_applied_when_its_groups_are_warm(
    flux: Flux, team: Kubectl, expressions: list[dict[str, Any]] | None
) -> None:
    flux.kube.patch("kustomization", APPLIED, {"spec": {"healthCheckExprs": expressions}})
    prompt = PROMPTS["b" if expressions else "c"]
    revision = flux.publish(REPOSITORY, written(support=group("support", prompt, replicas=2, rollout=QUICKLY)))
    states = set()

    def applied() -> bool | None:
        # the group is read after the Kustomization: warmth that the controller has seen is still there
        done = flux.status(APPLIED).get("lastAppliedRevision") == revision
        support = team.get("promptgroup", "support") or {}
        new = support["spec"]["prompt"]["system"] == prompt
        warm = support["status"]["warm"] == "2/2" and team.condition("support", "Ready").get("status") == "True"
        states.add((done, new and warm))
        return True if done else None

    wait_for(applied, "the revision", lambda: flux.status(APPLIED), 180.0)
    assert (False, False) in states
    assert (True, False) not in states
    assert flux.ready(APPLIED) == ("True", "ReconciliationSucceeded")


def test_drift_and_a_deletion_are_corrected_and_a_group_that_leaves_the_source_is_pruned(
    flux: Flux, team: Kubectl
) -> None:
    other = group("other", PROMPTS["d"], replicas=1)
    flux.wait_applied(APPLIED, flux.publish(REPOSITORY, written(support=FIRST, other=other)))

    team.patch("promptgroup", "support", {"spec": {"prompt": {"system": PROMPTS["e"]}}})
    flux.reconcile(APPLIED)
    assert (team.get("promptgroup", "support") or {})["spec"]["prompt"]["system"] == PROMPTS["a"]

    team.delete("promptgroup", "support")
    flux.reconcile(APPLIED)
    team.wait_warm("support", "1/1")

    flux.wait_applied(APPLIED, flux.publish(REPOSITORY, written(support=FIRST)))
    assert team.get("promptgroup", "other") is None
    left = lambda: team.list("pods,deployments,promptroutes", "promptgroup.dev/group=other")  # noqa: E731
    wait_for(lambda: True if not left() else None, "what the group had to go", left)


def test_a_group_at_rest_is_not_written_to_by_the_operator_and_by_flux_in_turn(flux: Flux, team: Kubectl) -> None:
    team.wait_condition(
        "support", "CacheEffective", "Unknown", "NoTraffic"
    )  # the last write before the group is at rest

    def reconciled() -> None:
        for _ in range(3):
            flux.reconcile(APPLIED)

    wait_unwritten(lambda: versions(team), reconciled, "reconciliations that write nothing")


def test_a_number_that_sizing_or_an_autoscaler_sets_stays(flux: Flux, team: Kubectl) -> None:
    sized = group("sized", PROMPTS["f"], sizing=SIZING | {"minReplicas": 2})
    scaled = group("scaled", PROMPTS["g"])
    del sized["spec"]["replicas"], scaled["spec"]["replicas"]
    revision = flux.publish(REPOSITORY, written(support=FIRST, sized=sized, scaled=scaled))
    wait_for(lambda: team.get("promptgroup", "scaled"), "the group without a number")
    team.run("scale", "promptgroup/scaled", "--replicas=1")  # as docs/how-to/gitops.md has it: once, by hand
    flux.wait_applied(APPLIED, revision)
    team.scale("promptgroup", "scaled", 2)
    team.wait_warm("scaled", "2/2")
    team.wait_warm("sized", "2/2")
    before = specs(team)
    for _ in range(2):
        flux.reconcile(APPLIED)
    assert specs(team) == before
    assert before["scaled"]["replicas"] == 2
    assert "replicas" not in before["sized"]


@pytest.mark.parametrize(
    ("expressions", "spec"),
    [
        (None, {"engine": {"image": "registry.example.com/nowhere:1"}}),
        (
            GROUPS["spec"]["healthCheckExprs"],
            {"prompt": {"systemFrom": {"configMapKeyRef": {"name": "nowhere", "key": "text"}}}},
        ),
    ],
    ids=["kstatus, an image that cannot be pulled", "expressions, a prompt that is not there"],
)
def test_a_group_that_waits_for_a_user_fails_long_before_the_timeout(
    flux: Flux, team: Kubectl, expressions: list[dict[str, Any]] | None, spec: dict[str, Any]
) -> None:
    assert GROUPS["spec"]["timeout"] == "30m"
    flux.kube.patch("kustomization", APPLIED, {"spec": {"healthCheckExprs": expressions}})
    broken = group("broken", PROMPTS["h"], replicas=1)
    broken["spec"] |= spec
    flux.publish(REPOSITORY, written(support=FIRST, broken=broken))
    flux.wait_ready(APPLIED, "False", "HealthCheckFailed")
    assert team.condition("support", "Ready")["status"] == "True"

"""Argo CD's own controller applies the groups' Application of manifests/gitops/argocd, on a control plane of its own.

Its health is that of the sample's check, it corrects drift, prunes, and leaves numbers of replicas to sizing and to
autoscalers. The sample's install is not applied: Argo CD would run Kustomize's program for it.

Skipped where Argo CD is not built, which takes many minutes: `make argocd` builds it.
"""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from support.argocd import ArgoCd, argo_cd
from support.atrest import wait_unwritten
from support.controlplane import IMAGES
from support.gitops import specs, versions
from support.gotools import MissingToolError, program
from support.groups import PROMPTS, group
from support.redisserver import real
from support.sized import SIZING
from support.yamlfiles import written

pytestmark = [pytest.mark.integration, pytest.mark.slow, real]

SAMPLES = lab.ROOT / "manifests/gitops/argocd"
_, GROUPS = yaml.safe_load_all((SAMPLES / "applications.yaml").read_text())
APPLIED, TEAM = GROUPS["metadata"]["name"], GROUPS["spec"]["destination"]["namespace"]
HEALTH = "resource.customizations.health.promptgroup.dev_PromptGroup"
FIRST = group("support", replicas=1)


@pytest.fixture(scope="module")
def argo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoCd]:
    try:
        path = program("argocd", build=False)
    except MissingToolError as missing:
        pytest.skip(f"ARGO CD IS NOT BUILT HERE: {missing}")
    [component] = yaml.safe_load((SAMPLES / "kustomization.yaml").read_text())["configMapGenerator"]
    assert component["files"] == [f"{HEALTH}=health.lua"]
    settings = {HEALTH: (SAMPLES / "health.lua").read_text()}
    with LocalCluster(tmp_path_factory.mktemp("argocd"), images=IMAGES) as cluster:
        lab.install_operator(cluster.kubectl())
        cluster.kubectl().make_namespace(TEAM)
        with argo_cd(cluster, path, settings) as argo:
            application = copy.deepcopy(GROUPS)
            application["spec"]["source"]["repoURL"] = argo.repository
            commit = argo.publish(written(support=FIRST))
            argo.kube.apply(application)
            argo.wait_state(APPLIED, commit, "Synced", "Healthy")
            yield argo


@pytest.fixture
def team(argo: ArgoCd) -> Kubectl:
    """The groups' namespace, with nothing but the first group."""
    argo.wait_state(APPLIED, argo.publish(written(support=FIRST)), "Synced", "Healthy")
    return argo.kube.within(TEAM)


def test_groups_are_healthy_when_they_are_warm(argo: ArgoCd, team: Kubectl) -> None:
    commit = argo.publish(written(support=group("support", PROMPTS["b"], replicas=2)))
    states = set()

    def done() -> bool | None:
        # the group is read after the Application: warmth that the controller has seen is still there
        state = argo.state(APPLIED)
        support = team.get("promptgroup", "support") or {}
        new = support["spec"]["prompt"]["system"] == PROMPTS["b"]
        warm = support["status"]["warm"] == "2/2" and team.condition("support", "Ready").get("status") == "True"
        applied = state[:2] == (commit, "Synced")
        states.add((state[2] if applied else "", new and warm))
        return True if applied and state[2] == "Healthy" else None

    wait_for(done, "the commit", lambda: argo.status(APPLIED), 180.0)
    assert ("Progressing", False) in states
    assert ("Healthy", False) not in states


def test_drift_and_a_deletion_are_corrected_and_a_group_that_leaves_the_repository_is_pruned(
    argo: ArgoCd, team: Kubectl
) -> None:
    other = group("other", PROMPTS["d"], replicas=1)
    argo.wait_state(APPLIED, argo.publish(written(support=FIRST, other=other)), "Synced", "Healthy")

    team.patch("promptgroup", "support", {"spec": {"prompt": {"system": PROMPTS["e"]}}})
    spec = lambda: (team.get("promptgroup", "support") or {}).get("spec", {})  # noqa: E731
    wait_for(lambda: True if spec()["prompt"]["system"] == PROMPTS["a"] else None, "the prompt as it was", spec, 180.0)

    team.delete("promptgroup", "support")
    wait_for(lambda: team.get("promptgroup", "support"), "the group to be back", seconds=180.0)
    team.wait_warm("support", "1/1")

    argo.wait_state(APPLIED, argo.publish(written(support=FIRST)), "Synced", "Healthy")
    left = lambda: team.list("promptgroups,pods,deployments,promptroutes", "promptgroup.dev/group=other")  # noqa: E731
    wait_for(lambda: True if not left() else None, "what the group had to go", left)
    assert team.get("promptgroup", "other") is None


def test_a_group_at_rest_is_not_written_to_by_the_operator_and_by_argo_cd_in_turn(argo: ArgoCd, team: Kubectl) -> None:
    team.wait_condition(
        "support", "CacheEffective", "Unknown", "NoTraffic"
    )  # the last write before the group is at rest

    def reconciled() -> None:
        for _ in range(3):
            argo.reconcile(APPLIED)

    wait_unwritten(lambda: versions(team), reconciled, "reconciliations that write nothing")


def test_a_number_that_sizing_or_an_autoscaler_sets_is_in_sync(argo: ArgoCd, team: Kubectl) -> None:
    sized = group("sized", PROMPTS["f"], sizing=SIZING | {"minReplicas": 2})
    scaled = group("scaled", PROMPTS["g"])
    del sized["spec"]["replicas"], scaled["spec"]["replicas"]
    commit = argo.publish(written(support=FIRST, sized=sized, scaled=scaled))
    wait_for(lambda: team.get("promptgroup", "scaled"), "the group without a number", seconds=180.0)
    team.run("scale", "promptgroup/scaled", "--replicas=1")
    argo.wait_state(APPLIED, commit, "Synced", "Healthy")
    team.scale("promptgroup", "scaled", 2)
    team.wait_warm("scaled", "2/2")
    team.wait_warm("sized", "2/2")
    before = specs(team)
    argo.reconcile(APPLIED)
    argo.wait_state(APPLIED, commit, "Synced", "Healthy")
    assert specs(team) == before
    assert before["scaled"]["replicas"] == 2
    assert "replicas" not in before["sized"]


@pytest.mark.parametrize(
    ("health", "spec"),
    [
        ("Degraded", {"prompt": {"systemFrom": {"configMapKeyRef": {"name": "nowhere", "key": "text"}}}}),
        ("Suspended", {"replicas": 0}),
    ],
)
def test_the_health_of_a_group_that_waits_for_a_user(
    argo: ArgoCd, team: Kubectl, health: str, spec: dict[str, Any]
) -> None:
    other = group("other", PROMPTS["h"], replicas=1)
    other["spec"] |= spec
    commit = argo.publish(written(support=FIRST, other=other))
    argo.wait_state(APPLIED, commit, "Synced", health)

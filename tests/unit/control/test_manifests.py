"""What stands in manifests/ beside what the code says."""

from pathlib import Path

import pytest

from promptgroup_operator.base.settings import Settings
from promptgroup_operator.plan import status
from support.yamlfiles import document, documents

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "manifests"
HEALTH = (MANIFESTS / "gitops/argocd/health.lua").read_text()


def rules(folder):
    """(group, resource) → verbs, of the first role of a folder."""
    role = next(documents((MANIFESTS / folder / "rbac.yaml").read_text()))
    return {
        (group, resource): set(rule["verbs"])
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_one_namespaces_operator_has_the_same_rules_as_the_clusters_but_for_nodes():
    assert rules("operator-namespaced") | {("", "nodes"): {"list", "watch"}} == rules("operator")
    patches = (MANIFESTS / "operator-namespaced" / "kustomization.yaml").read_text()
    assert "value: --leaving-taints=\n" in patches


def test_the_operator_may_hold_the_lease_that_it_is_told_of():
    (deployment,) = documents((MANIFESTS / "operator/base/deployment.yaml").read_text())
    roles = documents((MANIFESTS / "operator/base/lease.yaml").read_text())
    named = next(roles)["rules"][1]["resourceNames"]
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [f"--lease=$(POD_NAMESPACE)/{name}" for name in named] == [
        each for each in arguments if each.startswith("--lease=")
    ]


def test_prometheus_finds_every_operator_at_its_metrics_port():
    (deployment,) = documents((MANIFESTS / "operator/base/deployment.yaml").read_text())
    (service,) = documents((MANIFESTS / "operator/base/service.yaml").read_text())
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == pod["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    (port,) = service["spec"]["ports"]
    served = {each["name"]: each["containerPort"] for each in pod["spec"]["containers"][0]["ports"]}
    assert served == {"health": Settings().health_port, "metrics": Settings().metrics_port}
    assert (port["targetPort"], port["port"]) == ("metrics", served["metrics"])


# --- Argo CD ---------------------------------------------------------------------------------------------------


def reported(golden):
    """The object with the status of a golden decision; its conditions are written `status, reason: message` there."""
    decided = document((ROOT / f"tests/golden/{golden}.out.yaml").read_text())["status"]
    conditions = []
    for kind, text in decided["conditions"].items():
        reason, _, message = text.partition(", ")[2].partition(": ")
        conditions.append({"type": kind, "status": text.partition(", ")[0], "reason": reason, "message": message})
    return {"metadata": {"generation": decided["observedGeneration"]}, "status": {**decided, "conditions": conditions}}


CASES = {
    "create": "Progressing",
    "new_prompt": "Progressing",
    "one_pod_warms": "Progressing",
    "crash_loop": "Degraded",
    "prompt_missing": "Degraded",
    "conflict": "Degraded",
    "name_taken": "Degraded",
    "scaled_to_nothing": "Suspended",
    "warm_pods_get_slots": "Healthy",
}


def health(thing):
    lupa = pytest.importorskip("lupa", reason="runs Lua")
    runtime = lupa.LuaRuntime(register_eval=False)
    runtime.globals().obj = runtime.table_from(thing, recursive=True)
    answer = runtime.execute(HEALTH)
    assert answer["message"]
    return answer["status"]


@pytest.mark.parametrize("golden", CASES)
def test_argo_cd_shows(golden):
    assert health(reported(golden)) == CASES[golden]


def test_argo_cd_waits_until_this_generation_was_looked_at():
    seen = reported("warm_pods_get_slots")
    seen["metadata"]["generation"] += 1
    assert health(seen) == "Progressing"
    assert health({"metadata": {"generation": 1}, "status": {"observedGeneration": -1}}) == "Progressing"
    assert health({"metadata": {"generation": 1}}) == "Progressing"


def test_the_conditions_that_other_tools_are_told_of_are_those_that_are_written():
    documented = {line.split()[0] for line in status.__doc__.splitlines()[3:] if line.strip()}
    flux = document((MANIFESTS / "gitops/flux/promptgroups.yaml").read_text())["spec"]["healthCheckExprs"][0]
    for text in (HEALTH, flux["failed"] + flux["current"]):
        named = {kind for kind in ("Accepted", "ResolvedRefs", "Ready", "Degraded") if kind in text}
        assert {"Accepted", "ResolvedRefs", "Ready"} <= named <= documented

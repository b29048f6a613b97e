"""The Helm chart: made of manifests/, equal to them with its defaults, and what its values change."""

import importlib.util
import json
from pathlib import Path

import pytest

from promptgroup_local import lab
from support.install import CHART, DIGEST, SYSTEM, TEAM, VARIANTS, Helm, Identity, Object, kustomized, without_helm

POLICY, ENGINES = "NetworkPolicy", ("promptgroup-engines", "promptgroup-engine-workers")

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return Helm(tmp_path_factory.mktemp("helm"))


def inside(things: dict[Identity, Object], namespace: str, release: str = "") -> dict[Identity, Object]:
    """Objects as `kubectl apply -n` puts them: in a namespace where they name none, and accounts of it with them."""
    for each in things.values():
        if not each["kind"].startswith(("Cluster", "CustomResource", "Namespace", "Validating")):
            each["metadata"].setdefault("namespace", namespace)
        for subject in each.get("subjects", ()):
            subject.setdefault("namespace", namespace)
        if each["kind"] == "NetworkPolicy":  # the operator of the release is in the release's namespace
            each["spec"] = json.loads(json.dumps(each["spec"]).replace(f'"{SYSTEM}"', f'"{release or namespace}"'))
    return {(kind, each["metadata"].get("namespace", ""), name): each for (kind, _, name), each in things.items()}


def test_the_chart_is_what_generate_makes_of_the_manifests() -> None:
    spec = importlib.util.spec_from_file_location("generate", lab.ROOT / "charts/generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    made = generate.files()
    stale = [str(path) for path, text in made.items() if not _is(CHART / path, text)]
    assert stale == [], "run `make generate`"
    by_hand = {
        Path(name) for name in ("Chart.yaml", "values.schema.json", "templates/_helpers.tpl", "templates/NOTES.txt")
    }
    assert {path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()} == by_hand | set(made)


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


def test_chart_and_kustomize_give_the_same_objects(helm: Helm) -> None:
    wanted = kustomized()
    del wanted["Namespace", "", SYSTEM]  # the release's own: it stands before the chart is installed
    assert without_helm(helm.template()) == wanted


def test_so_they_do_with_monitoring(helm: Helm) -> None:
    wanted = kustomized("overlays/monitoring")
    del wanted["Namespace", "", SYSTEM]
    assert without_helm(helm.template("monitoring.enabled=true")) == wanted


def test_so_they_do_for_one_namespace(helm: Helm) -> None:
    wanted = kustomized("../crds") | inside(kustomized("operator-namespaced") | kustomized("router"), "chat")
    assert without_helm(helm.template("operator.namespaced=true", namespace="chat")) == wanted


def test_so_they_do_with_pickers(helm: Helm) -> None:
    wanted = kustomized() | inside(kustomized("picker"), TEAM, release=SYSTEM)
    del wanted["Namespace", "", SYSTEM]
    assert without_helm(helm.template(*VARIANTS["behind gateways"])) == wanted
    wanted = kustomized("../crds") | inside(kustomized("operator-namespaced") | kustomized("picker"), "chat")
    routers = inside(kustomized("router"), "chat")
    wanted |= {(POLICY, "chat", name): routers[POLICY, "chat", name] for name in ENGINES}
    alone = ("operator.namespaced=true", "router.enabled=false", "picker.enabled=true")
    assert without_helm(helm.template(*alone, namespace="chat")) == wanted


def test_so_they_do_with_spans_but_for_the_programs_variables(helm: Helm) -> None:
    traced, plain = (without_helm(helm.template(*VARIANTS[name])) for name in ("spans", "behind gateways"))
    policies = {space: kustomized("tracing") for space in (SYSTEM, TEAM)}
    added = {key: each for space, policy in policies.items() for key, each in inside(policy, space).items()}
    assert {key: traced[key] for key in traced.keys() - plain.keys()} == added
    sent = [
        {"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector.observability:4318"},
        {"name": "OTEL_TRACES_SAMPLER_ARG", "value": "0.1"},
    ]
    changed = {key for key in plain if traced[key] != plain[key]}
    assert {key[2] for key in changed} == {"promptgroup-operator", "promptgroup-router", "promptgroup-picker"}
    for key in changed:
        ours, before = (each[key]["spec"]["template"]["spec"]["containers"][0] for each in (traced, plain))
        assert ours.pop("env") == [*before.pop("env", []), *sent]
        assert traced[key] == plain[key]


def test_the_way_to_a_collector_is_where_the_programs_and_the_collector_are(helm: Helm) -> None:
    elsewhere = helm.template(*VARIANTS["spans to another port"], namespace="chat")
    ways = {key[1]: each["spec"]["egress"] for key, each in elsewhere.items() if key[2] == "promptgroup-to-collector"}
    assert ways == {
        "chat": [
            {
                "ports": [{"port": 14318, "protocol": "TCP"}],
                "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "tempo"}}}],
            }
        ]
    }
    assert [key for key in helm.template() if key[2] == "promptgroup-to-collector"] == []


def test_pickers_stand_where_they_are_asked_for(helm: Helm) -> None:
    assert [key for key in helm.template() if key[2].startswith("promptgroup-picker")] == []
    alone = {key for key in helm.template(*VARIANTS["gateways alone"]) if key[2].startswith("promptgroup-picker")}
    assert {key[1] for key in alone} == {"search"}
    assert ("Role", "search", "promptgroup-picker-secrets") in alone
    unread = helm.template(*VARIANTS["gateways alone"], "picker.readSecrets=false")
    assert [key for key in unread if key[2] == "promptgroup-picker-secrets"] == []


@pytest.mark.parametrize(
    ("values", "served"),
    [
        (VARIANTS["gateways alone"], {"search"}),
        (("picker.enabled=true", "router.enabled=false"), {TEAM}),
        (("picker.enabled=true", 'picker.namespaces=["search", "promptgroup"]'), {TEAM, "search"}),
        (("picker.enabled=true", 'picker.namespaces=["search"]', 'router.namespaces=["chat"]'), {"chat", "search"}),
    ],
)
def test_a_namespace_is_made_and_guarded_whoever_serves_it(
    helm: Helm, values: tuple[str, ...], served: set[str]
) -> None:
    made = helm.template(*values)
    assert {key[2] for key in made if key[0] == "Namespace"} == served
    wanted = helm.template()
    for name in ("default-deny", *ENGINES):
        guards = {key[1]: each["spec"] for key, each in made.items() if key[0] == POLICY and key[2] == name}
        assert {key: spec for key, spec in guards.items() if key != SYSTEM} == dict.fromkeys(
            served, wanted[POLICY, TEAM, name]["spec"]
        )
    kept = helm.template(*values, "router.createNamespaces=false")
    assert all({key[1] for key in kept if key[2] == name} == served for name in ENGINES)
    assert [key for key in kept if key[0] == "Namespace" or (key[1] in served and key[2] == "default-deny")] == []


def test_namespaces_outlive_the_release(helm: Helm) -> None:
    made = helm.template()
    assert made["Namespace", "", TEAM]["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_values_reach_what_they_are_for(helm: Helm) -> None:
    placed = helm.template(*VARIANTS["placed"])
    operator, router = (
        placed["Deployment", namespace, f"promptgroup-{name}"]["spec"]
        for namespace, name in ((SYSTEM, "operator"), (TEAM, "router"))
    )
    pod, (container,) = operator["template"]["spec"], operator["template"]["spec"]["containers"]
    assert operator["replicas"] == 3
    assert pod["nodeSelector"] == {"kubernetes.io/arch": "amd64"}
    assert pod["tolerations"] == router["template"]["spec"]["tolerations"]
    assert pod["imagePullSecrets"] == router["template"]["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert container["image"] == f"registry.example.com/operator:0.1.1@{DIGEST}"
    assert container["imagePullPolicy"] == "IfNotPresent"
    (container,) = router["template"]["spec"]["containers"]
    assert container["image"].startswith("registry.example.com/router:")
    assert container["args"][-1] == "--drain-timeout=60"
    assert container["resources"] == {"requests": {"cpu": 2, "memory": "256Mi"}, "limits": {"memory": "1Gi"}}

    kinds = {key[0] for key in helm.template(*VARIANTS["no policies"])}
    assert [kind for kind in kinds if kind.endswith(("Policy", "PolicyBinding"))] == []
    assert [key for key in helm.template(*VARIANTS["no routers"]) if "promptgroup-router" in key[2]] == []
    teams = helm.template(*VARIANTS["two teams"])
    assert {key[1] for key in teams if key[2] == "promptgroup-router"} == {"chat", "search"}
    assert [key for key in teams if key[0] == "Namespace"] == []

    shared = helm.template(*VARIANTS["a namespace with others in it"])
    assert [key for key in shared if key[0] == "Namespace" or key[2] == "default-deny"] == []
    assert ("NetworkPolicy", SYSTEM, "promptgroup-engines") in shared

    watched = helm.template(*VARIANTS["watched"])
    assert '"observability"' in json.dumps(watched["NetworkPolicy", TEAM, "promptgroup-router"])
    assert watched["PodMonitor", SYSTEM, "promptgroup-router"]["metadata"]["labels"]["release"] == "p"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('router.replicas="two"', "router/replicas"),
        ("operator.replica=3", "replica"),
        ('router.namespaces=["Chat"]', "namespaces"),
        ('router.extraArgs=["drain-timeout 60"]', "extraArgs"),
        ('operator.image.pullPolicy="Sometimes"', "pullPolicy"),
        ('router.image.digest="latest"', "digest"),
        ('imageRegistry="registry.example.com/"', "imageRegistry"),
        *((f"{name}=null", f"missing property '{name}'") for name in ("operator", "router", "picker", "tracing")),
        *(
            (f"{name}=null", f"missing property '{name}'")
            for name in ("monitoring", "networkPolicy", "admissionPolicies")
        ),
        ("router.image=null", "missing property 'image'"),
        ("router.image.repository=null", "missing property 'repository'"),
        ("router.namespaces=null", "missing property 'namespaces'"),
        ("tracing.port=null", "missing property 'port'"),
        ("monitoring.namespace=null", "missing property 'namespace'"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(helm: Helm, value: str, said: str) -> None:
    done = helm.run("template", "promptgroup", str(CHART), f"--set-json={value}", check=False)
    assert done.returncode != 0
    assert said in done.stderr.replace(".", "/") or said in done.stderr


def test_helm_finds_nothing_to_say_of_the_chart(helm: Helm) -> None:
    for values in ((), *VARIANTS.values()):
        done = helm.run("lint", "--strict", str(CHART), *(f"--set-json={each}" for each in values))
        assert "[WARNING]" not in done.stdout


def test_rights_are_bound_in_the_namespaces_that_are_served(helm: Helm) -> None:
    made = helm.template(*VARIANTS["rights in two namespaces"])
    assert ("ClusterRoleBinding", "", "promptgroup-operator") not in made
    bindings = {key[1]: each for key, each in made.items() if key[0] == "RoleBinding"}
    assert set(bindings) == {"chat", "search", SYSTEM}  # in its own namespace: the Lease
    for namespace in ("chat", "search"):
        assert bindings[namespace]["roleRef"]["kind"] == "ClusterRole"
        (subject,) = bindings[namespace]["subjects"]
        assert (subject["name"], subject["namespace"]) == ("promptgroup-operator", SYSTEM)
    (container,) = made["Deployment", SYSTEM, "promptgroup-operator"]["spec"]["template"]["spec"]["containers"]
    assert "--namespaces=chat,search" in container["args"]


def test_routers_read_no_secrets_where_none_holds_a_prompt(helm: Helm) -> None:
    made = helm.template("router.readSecrets=false")
    rules = [rule for key, each in made.items() if key[:2] == ("Role", TEAM) for rule in each["rules"]]
    assert rules
    assert [rule for rule in rules if "secrets" in rule["resources"]] == []
    assert [key for key in made if key[2] == "promptgroup-router-secrets"] == []


def test_the_policies_name_the_user_and_the_namespace_of_the_release(helm: Helm) -> None:
    made = helm.template(namespace="elsewhere")
    (condition,) = made["ValidatingAdmissionPolicy", "", "promptgroup-operator"]["spec"]["matchConditions"]
    assert "'system:serviceaccount:elsewhere:promptgroup-operator'" in condition["expression"]
    ingress = json.dumps(made["NetworkPolicy", TEAM, "promptgroup-engines"]["spec"]["ingress"])
    assert '"elsewhere"' in ingress
    assert SYSTEM not in ingress

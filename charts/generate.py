"""Manifests → the Helm chart: templates, CRDs and the defaults of its values. Run by `make generate`.

There is one source, manifests/: Kustomize builds it, and what values may change is put in its place. Written by hand in
charts/promptgroup are Chart.yaml, values.schema.json, templates/_helpers.tpl and templates/NOTES.txt.
"""

import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "promptgroup"
SYSTEM, MONITORING, TRACING = "promptgroup-system", "monitoring", "observability"
"""Namespaces that manifests/ assume: of the operator, of Prometheus, of a collector of spans."""

OTLP_PORT = 4318
"""Port of such a collector in manifests/."""

Object = dict[str, Any]


# --- YAML with templates in it -----------------------------------------------------------------------------------

LINES = re.compile(r"(?P<indent> *)(?P<item>- )?HELM-(?P<number>\d+)-MLEH(?:: null)?")
INLINE = re.compile(r"HELM-(?P<number>\d+)-MLEH")


class Marks:
    """Marks in an object that become template text once it is YAML."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def __call__(self, text: str) -> str:
        """Return a mark. As a value it becomes the text; as a key of no value it becomes the text's lines.

        As an item it becomes the text's lines if they begin as a directive or as items, and else an item of the text.

        In lines, HERE stands for the indentation of the lines themselves, INSIDE for that of what is in one of them.
        """
        self._texts.append(text)
        return f"HELM-{len(self._texts) - 1}-MLEH"

    def filled(self, dumped: str) -> str:
        """Return the YAML with its marks replaced; braces that it had before stay what they are."""
        return "".join(f"{line}\n" for line in self._lines(dumped.replace("{{", '{{ "{{" }}')))

    def _lines(self, text: str) -> Iterator[str]:
        for line in text.splitlines():
            alone = LINES.fullmatch(line)
            if alone is None or (alone["item"] and not self._texts[int(alone["number"])].startswith(("{{-", "- "))):
                yield INLINE.sub(lambda result: self._texts[int(result["number"])], line)
                continue
            indent = alone["indent"]
            for item in self._texts[int(alone["number"])].splitlines():
                inner = item.replace("HERE", f"nindent {len(indent)}").replace("INSIDE", f"nindent {len(indent) + 2}")
                yield inner if inner.startswith("{{-") else indent + inner


class Dumper(yaml.SafeDumper):
    """Text of several lines as such a block."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Dumper.add_representer(str, _text)


def dumped(value: object) -> str:
    """Return a value as YAML."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, width=10_000)


# --- Objects → templates -----------------------------------------------------------------------------------------


def built(folder: str) -> list[Object]:
    """Return the objects that Kustomize makes of a folder of manifests/."""
    command = ["kubectl", "kustomize", str(ROOT / "manifests" / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [item for item in yaml.safe_load_all(done.stdout) if item["kind"] != "CustomResourceDefinition"]


def template(thing: Object, namespace: str, *conditions: str, arguments: Iterable[str] = ()) -> str:
    """Return an object as a template.

    Args:
        thing: the object; changed.
        namespace: expression of its namespace.
        conditions: expressions that must all hold for it to be there.
        arguments: lines in the container's arguments, after its own.
    """
    mark = Marks()
    metadata = thing["metadata"]
    if thing["kind"] == "Namespace":
        metadata["name"] = mark(f"{{{{ {namespace} }}}}")
        metadata["annotations"] = {"helm.sh/resource-policy": "keep"}  # what users made in it is theirs
    elif not thing["kind"].startswith(("Cluster", "ValidatingAdmissionPolicy")):
        metadata["namespace"] = mark(f"{{{{ {namespace} }}}}")
    metadata["labels"] = {**metadata.get("labels", {}), mark('{{- include "promptgroup.labels" $ | HERE }}'): None}
    for subject in thing.get("subjects", ()):
        subject["namespace"] = mark(f"{{{{ {namespace} }}}}")
    if thing["kind"] == "Deployment":
        _deployment(thing["spec"], mark, arguments)
    if thing["kind"] == "NetworkPolicy":
        _replace(thing, MONITORING, mark("{{ $.Values.monitoring.namespace }}"))
        _replace(thing, TRACING, mark("{{ $.Values.tracing.namespace }}"))
        _replace(thing, OTLP_PORT, mark("{{ $.Values.tracing.port }}"))
        _replace(thing["spec"], SYSTEM, mark(f"{{{{ {RELEASE} }}}}"))
        if metadata["name"] == "promptgroup-picker":
            thing["spec"]["ingress"][0]["from"].append(mark(GATEWAYS))
    if thing["kind"] == "ValidatingAdmissionPolicy":  # the operator's user is named by its namespace
        for condition in thing["spec"].get("matchConditions", ()):
            condition["expression"] = condition["expression"].replace(SYSTEM, mark(f"{{{{ {RELEASE} }}}}"))
    if thing["apiVersion"].startswith("monitoring.coreos.com/"):
        _replace(thing["spec"], SYSTEM, mark(f"{{{{ {RELEASE} }}}}"))
        metadata["labels"][mark("{{- with $.Values.monitoring.labels }}\n{{- toYaml . | HERE }}\n{{- end }}")] = None
    text = f"---\n{mark.filled(dumped(thing))}"
    for condition in conditions:
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return text


def _deployment(spec: Object, mark: Marks, arguments: Iterable[str]) -> None:
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    values = f"$.Values.{container['name']}"
    spec["replicas"] = mark(f"{{{{ {values}.replicas }}}}")
    container["image"] = mark(
        f"{{{{ with $.Values.imageRegistry }}}}{{{{ . }}}}/{{{{ end }}}}"
        f"{{{{ {values}.image.repository }}}}:{{{{ {values}.image.tag | default $.Chart.AppVersion }}}}"
        f"{{{{ with {values}.image.digest }}}}@{{{{ . }}}}{{{{ end }}}}"
    )
    container[mark(f"{{{{- with {values}.image.pullPolicy }}}}\nimagePullPolicy: {{{{ . }}}}\n{{{{- end }}}}")] = None
    extra = f"{{{{- range {values}.extraArgs }}}}\n- {{{{ . | quote }}}}\n{{{{- end }}}}"
    container["args"] += [mark(text) for text in (*arguments, extra)]
    container["resources"] = {mark(f"{{{{- toYaml {values}.resources | HERE }}}}"): None}
    if "env" in container:
        container["env"].append(mark(VARIABLES))
    else:
        container[mark(VARIABLES.replace("\n", "\nenv:\n", 1))] = None
    for field in ("nodeSelector", "tolerations"):
        pod[mark(_optional(f"{values}.{field}", field))] = None
    pod[mark(_optional("$.Values.imagePullSecrets", "imagePullSecrets"))] = None


VARIABLES = """\
{{- with $.Values.tracing }}{{- if .endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .endpoint | quote }}
{{- range $name, $value := .variables }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}{{- end }}"""
"""Lines of a container's variables: OpenTelemetry's, where spans are asked for."""


GATEWAYS = "{{- with $.Values.picker.gateways }}\n{{- toYaml . | HERE }}\n{{- end }}"
"""Items of those who may connect to pickers, beside gateways that labels name."""


def _optional(value: str, field: str) -> str:
    return f"{{{{- with {value} }}}}\n{field}:\n{{{{- toYaml . | INSIDE }}}}\n{{{{- end }}}}"


def _replace(value: Any, old: str | int, new: str) -> None:
    """Change a text or a number wherever it is a value of a mapping."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if item == old:
            value[key] = new
        _replace(item, old, new)


# --- The chart ---------------------------------------------------------------------------------------------------

NAMESPACED = "$.Values.operator.namespaced"
NAMESPACES = "$.Values.operator.namespaces"
WATCHED = f"and {NAMESPACES} (not {NAMESPACED})"
POLICIES = "$.Values.networkPolicy.enabled"
DENIED = "$.Values.networkPolicy.defaultDeny"
ADMISSION = "$.Values.admissionPolicies.enabled"
RELEASE = "$.Release.Namespace"
ENGINES = {("NetworkPolicy", name) for name in ("promptgroup-engines", "promptgroup-engine-workers")}
"""The policies of who reaches engines and what they reach: pickers' engines as well as routers'."""
CREATED = f'and (include "promptgroup.createNamespaces" $) (ne $namespace {RELEASE})'


def operator() -> str:
    """Return the operator's templates. Its rights hold in the cluster, in named namespaces, or in its own."""
    whole, one = built("control"), built("operator-namespaced")
    extra = [argument for argument in _arguments(one) if argument not in _arguments(whole)]
    only = [f"{{{{- if {NAMESPACED} }}}}\n- {item}\n{{{{- end }}}}" for item in extra]
    only.append(f'{{{{- if {WATCHED} }}}}\n- --namespaces={{{{ join "," {NAMESPACES} }}}}\n{{{{- end }}}}')
    shared = {_identity(item) for item in one}
    texts = []
    for item in whole:
        if item["kind"] == "Namespace":
            continue  # the release's own, which has to be there before it
        conditions = [] if _identity(item) in shared else [f"not {NAMESPACED}"]
        conditions += _policy(item)
        if item["kind"] == "ClusterRoleBinding":
            conditions.append(f"not {NAMESPACES}")
            texts.append(_in_watched(item))
        texts.append(template(item, RELEASE, *conditions, arguments=only))
    identities = {_identity(item) for item in whole}
    texts += [template(item, RELEASE, NAMESPACED, *_policy(item)) for item in one if _identity(item) not in identities]
    return "".join(texts)


def _in_watched(binding: Object) -> str:
    """Return a ClusterRoleBinding as one RoleBinding in each namespace that values name."""
    mark = Marks()
    metadata = {"name": binding["metadata"]["name"], "namespace": mark("{{ $watched }}")}
    metadata["labels"] = {mark('{{- include "promptgroup.labels" $ | HERE }}'): None}
    subjects = [{**subject, "namespace": mark(f"{{{{ {RELEASE} }}}}")} for subject in binding["subjects"]]
    made = {**binding, "kind": "RoleBinding", "metadata": metadata, "subjects": subjects}
    item = f"{{{{- range $watched := {NAMESPACES} }}}}\n---\n{mark.filled(dumped(made))}{{{{- end }}}}\n"
    return f"{{{{- if {WATCHED} }}}}\n{item}{{{{- end }}}}\n"


def _policy(thing: Object) -> list[str]:
    """Return the conditions under which a policy is there; one that selects every pod of a namespace has another."""
    if thing["kind"].startswith("ValidatingAdmissionPolicy"):
        return [ADMISSION]
    if thing["kind"] != "NetworkPolicy":
        return []
    return [POLICIES] if thing["spec"]["podSelector"] else [f"and {POLICIES} {DENIED}"]


def _identity(thing: Object) -> tuple[str, str]:
    return thing["kind"], thing["metadata"]["name"]


def _arguments(things: Iterable[Object]) -> list[str]:
    (deployment,) = (thing for thing in things if thing["kind"] == "Deployment")
    args: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    return args


def namespaces() -> str:
    """Return what each namespace of groups has once, whether routers, pickers or both serve it.

    What rules a whole namespace is there only where the chart creates it; engines are guarded in any.
    """
    own = {_identity(item) for item in built("router")}
    texts = []
    for item in built("team"):
        if _identity(item) in ENGINES:
            texts.append(template(item, "$namespace", *_policy(item)))
        elif _identity(item) not in own:
            texts.append(template(item, "$namespace", CREATED, *_policy(item)))
    each_namespace = '{{- range $namespace := include "promptgroup.groupNamespaces" . | fromJsonArray }}'
    return f"{each_namespace}\n{''.join(texts)}{{{{- end }}}}\n"


def router() -> str:
    """Return the templates of routers."""
    texts = []
    for item in built("router"):
        if _identity(item) in ENGINES:
            continue
        conditions = _policy(item)
        if item["metadata"]["name"] == "promptgroup-router-secrets":
            conditions.append("$.Values.router.readSecrets")
        texts.append(template(item, "$namespace", *conditions))
    each_namespace = '{{- range $namespace := include "promptgroup.routerNamespaces" . | fromJsonArray }}'
    return f"{each_namespace}\n{''.join(texts)}{{{{- end }}}}\n"


def picker() -> str:
    """Return the templates of pickers, which stand beside routers or without them."""
    texts = []
    for item in built("picker"):
        conditions = _policy(item)
        if item["metadata"]["name"] == "promptgroup-picker-secrets":
            conditions.append("$.Values.picker.readSecrets")
        texts.append(template(item, "$namespace", *conditions))
    each_namespace = '{{- range $namespace := include "promptgroup.pickerNamespaces" . | fromJsonArray }}'
    return f"{each_namespace}\n{''.join(texts)}{{{{- end }}}}\n"


def monitoring() -> str:
    """Return the templates of monitors, alerts and the dashboard."""
    identities = {_identity(item) for item in built(".")}
    texts = [template(item, RELEASE) for item in built("overlays/monitoring") if _identity(item) not in identities]
    return f"{{{{- if $.Values.monitoring.enabled }}}}\n{''.join(texts)}{{{{- end }}}}\n"


def tracing() -> str:
    """Return the templates of what lets programs out to a collector, once in each namespace that has some of them."""
    texts = [template(item, "$namespace", *_policy(item)) for item in built("tracing")]
    each_namespace = '{{- range $namespace := include "promptgroup.namespaces" . | fromJsonArray }}'
    return (
        f"{{{{- if $.Values.tracing.endpoint }}}}\n{each_namespace}\n{''.join(texts)}{{{{- end }}}}\n{{{{- end }}}}\n"
    )


def values() -> str:
    """Return values.yaml, with the defaults that manifests/ have."""
    (operator,) = (item for item in built("control") if item["kind"] == "Deployment")
    (router,) = (item for item in built("team") if item["kind"] == "Deployment")
    (picker,) = (item for item in built("picker") if item["kind"] == "Deployment")
    return f"""\
# What stands before the repositories of all images: name a registry of your own here, once.
imageRegistry: {_registry(operator)}
# Secrets of registries that images are pulled with, as in [{{name: registry}}].
imagePullSecrets: []

operator:
  # Serve the groups of the release's namespace only, with a Role instead of a ClusterRole; the routers stand there too.
  namespaced: false
  # Namespaces whose groups are served, as in [chat, search]: the operator has rights there by a RoleBinding each,
  # instead of in the whole cluster. Empty: all namespaces.
  namespaces: []
{_runs(operator)}
router:
  enabled: true
  # Namespaces that get routers, each for the groups beside it.
  namespaces: [{router["metadata"]["namespace"]}]
  # Create those namespaces and the pickers', with the restricted Pod Security profile. They outlive the release.
  createNamespaces: true
  # Let routers read Secrets of their namespace by name: needed where prompts are in Secrets.
  readSecrets: true
{_runs(router)}
picker:
  # For gateways of the Inference Extension: they ask the picker where a request goes, and groups have spec.gateway.
  enabled: false
  # Namespaces that get pickers, each for the groups beside it. Empty: those of the routers.
  namespaces: []
  # Who may connect, beside the pods of the Gateways in the pickers' namespace and of all namespaces that have the label
  # promptgroup.dev/gateways=true: peers of a NetworkPolicy, as in [{{ipBlock: {{cidr: 10.129.0.0/23}}}}].
  gateways: []
  # Let pickers read Secrets of their namespace by name: needed where prompts or callers' keys are in Secrets.
  readSecrets: true
{_runs(picker)}
networkPolicy:
  # Who may talk to operators, routers and engines, and they to whom.
  enabled: true
  # Deny all else in the release's namespace, and in those that the chart creates: not where others live in one.
  defaultDeny: true

admissionPolicies:
  # What the API server refuses: writes by the operator's user that are none of PromptGroups' own objects, and templates
  # that ask for too much in namespaces with the label promptgroup.dev/template-policy=restricted.
  enabled: true

monitoring:
  # Monitors and alerts for Prometheus Operator, a dashboard for Grafana's sidecar.
  enabled: false
  # Where Prometheus runs: network policies let it in.
  namespace: {MONITORING}
  # Labels by which Prometheus finds monitors and alerts, as in {{release: kube-prometheus-stack}}.
  labels: {{}}

tracing:
  # Where operators, routers and pickers send spans, by OTLP over HTTP: as in http://collector.observability:4318.
  # Empty: they record none.
  endpoint: ""
  # OpenTelemetry's other variables, as in {{OTEL_TRACES_SAMPLER_ARG: "0.1"}}.
  variables: {{}}
  # Where the collector runs, and the port of its pods: network policies let the programs out to it.
  namespace: {TRACING}
  port: {OTLP_PORT}
"""


def _registry(deployment: Object) -> str:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    registry: str = container["image"].rpartition("/")[0]
    return registry


def _runs(deployment: Object) -> str:
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    repository, tag = container["image"].rpartition("/")[2].split(":")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    if tag != version:
        raise ValueError(f"manifests/ have {container['image']}, Chart.yaml has appVersion {version}: make them one")
    resources = "".join(f"    {line}\n" for line in dumped(container["resources"]).splitlines())
    return f"""\
  replicas: {deployment["spec"]["replicas"]}
  image:
    repository: {repository}
    tag: "" # the chart's appVersion
    digest: "" # as in sha256:..., beside the tag; the chart of a release has that of the image it was released with
    pullPolicy: "" # Kubernetes' default
  # Flags after the chart's own: `promptgroup-{container["name"]} --help`.
  extraArgs: []
  resources:
{resources}  nodeSelector: {{}}
  tolerations: []
"""


def files() -> dict[Path, str]:
    """Return each file of the chart: its path inside the chart → its text."""
    head = "# Made of manifests/ by charts/generate.py: edit those, and run `make generate`.\n"
    made = {Path("values.yaml"): head + values()}
    for page in (operator, namespaces, router, picker, monitoring, tracing):
        made[Path(f"templates/{page.__name__}.yaml")] = head + page()
    for crd in (ROOT / "crds").glob("prompt*.yaml"):
        made[Path("crds") / crd.name] = crd.read_text()
    return made


def main() -> None:
    """Write the chart's files."""
    for path, text in files().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        (CHART / path).write_text(text)


if __name__ == "__main__":
    main()

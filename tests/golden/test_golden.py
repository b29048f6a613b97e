"""Whole decisions, as YAML to be read: NAME.in.yaml is a world, NAME.out.yaml what a pass does about it.

    now         time of the pass
    spec        what the user wrote
    before      fields of the spec that were otherwise at the last pass, a second ago; `before: none` is a first pass.
                Objects, route and status stand as that pass wanted them
    values      kind/name → data of the objects that the prompt refers to
    revisions   those that have a Deployment: prompt, adapter (as in the spec), replicas, weight, superseded, pods;
                step: [index, seconds since its weight stood or null] of one that is being released;
                warm_image: the image of its warm pods, where its Deployment's never became warm;
                use: slot → [sessions, tokens, requests] as routers say, nothing for what they do not
    traffic     prompt → [requests, of those failed] of the window and of the step; all of them name the group
    pods        name, slot, and state: warm (default), cold, starting, restarted, terminating, uncached, uncaching,
                crashing;
                made from the template that the spec asks for, unless `settings` says otherwise;
                measured: [KV tokens, prefill rate, prefix tokens, copy rate], 0 for unknown
    peers       `none` when the Secret of the namespace's routers is missing
    was         of a pod or a revision: its fields that were otherwise at the last pass, or `absent`
    siblings      other groups of the same model
    taken       kind/name of objects that belong to somebody else
    gone        kind/name of objects that somebody deleted since the last pass
    show        `all` prints whole manifests; else pod templates are left out

GOLDEN_UPDATE=1 rewrites the outputs; the difference is to be reviewed.
"""

import os
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import yaml

from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_contract.names import ANNOTATION_APPLIED
from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.adapters.identity import encode, of_spec
from promptgroup_operator.api.loaded_weights import AdapterSpec
from promptgroup_operator.api.prompt_group import parse_spec
from promptgroup_operator.plan import desired, plan, prompt_route, references
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.samples import Flow, SlotUse, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import PodCondition, Progress, Sibling, World
from support import builders
from support.yamlfiles import document

FOLDER = Path(__file__).parent
CASES = sorted(path.name.removesuffix(".in.yaml") for path in FOLDER.glob("*.in.yaml"))
NOTHING = PodCondition("False", "", "", None)
STATES = {
    "warm": {},
    "cold": {"warmed": "", "warm": replace(NOTHING, reason="Warming", message="the prefix is being sent")},
    "starting": {
        "warmed": "",
        "warm": None,
        "containers_ready": False,
        "containers_ready_since": None,
        "container_id": "",
        "address": "",
    },
    "restarted": {"warmed": "containerd://the-one-before"},
    "terminating": {"deleting": True},
    "uncached": {
        "warmed": "",
        "warm": replace(NOTHING, reason="PrefixCachingDisabled", message="the engine runs with prefix caching off"),
    },
    "unproven": {
        "warm": PodCondition("True", "ProceededWithoutProof", "serves cold, as warmup.failurePolicy says", None)
    },
    "uncaching": {"warm": PodCondition("True", "CachingOffByChoice", "the engine answers", None)},
    "crashing": {
        "warmed": "",
        "warm": None,
        "containers_ready": False,
        "containers_ready_since": None,
        "container_id": "",
        "trouble": "container engine: CrashLoopBackOff: back-off restarting failed container",
    },
}


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True

    def represent_text(self, data):
        return self.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)


Dumper.add_representer(str, Dumper.represent_text)


@pytest.mark.parametrize("name", CASES)
def test_decision(name):
    given = document((FOLDER / f"{name}.in.yaml").read_text())
    now = given.get("now", builders.NOW)
    world = read(given, now)
    decided = yaml.dump(
        shown(world, plan.decide(world, now), whole=given.get("show") == "all"),
        Dumper=Dumper,
        sort_keys=False,
        width=120,
    )
    expected = FOLDER / f"{name}.out.yaml"
    if os.environ.get("GOLDEN_UPDATE"):
        expected.write_text(decided)
    assert decided == expected.read_text(), "GOLDEN_UPDATE=1 rewrites it"
    for secret in given.get("secrets", []):
        assert secret not in decided


def test_every_output_has_its_input():
    assert sorted(path.name.removesuffix(".out.yaml") for path in FOLDER.glob("*.out.yaml")) == CASES


# --- reading -----------------------------------------------------------------------------------------------


def read(given, now):
    siblings = tuple(Sibling(each["name"], each["created"], each["fingerprint"]) for each in given.get("siblings", []))
    values = {tuple(name.split("/")): data for name, data in given.get("values", {}).items()}

    def snapshot(spec, status, live, since):
        parsed = parse_spec(spec)
        group = replace(builders.group(status=status, generation=given.get("generation", 1)), spec=parsed)
        routed = prompt_route.standing(live.get(("PromptRoute", group.key.name)))
        revisions = tuple(
            replace(each, slots=routed[each.fingerprint][1]) if each.fingerprint in routed else each
            for each in read_revisions(since, now, desired.engine_settings(group))
        )
        peers_key = given.get("peers") != "none"
        text = references.resolve(parsed, values)
        told = read_traffic(given["traffic"]) if "traffic" in given else None
        return World(group, text, revisions, siblings, live, traffic=told, peers_key=peers_key)

    before = given.get("before", {})
    status, live = {}, {}
    if before != "none":
        world = snapshot(given["spec"] | before, {}, {}, past(given.get("revisions", [])))
        todo = plan.decide(world, now - timedelta(seconds=1))
        status = todo.status
        for manifest in [*todo.objects, *([todo.route] if todo.route is not None else [])]:
            kind, name = manifest["kind"], manifest["metadata"]["name"]
            live[kind, name] = manifest | {"metadata": manifest["metadata"] | {"uid": f"uid-{kind}-{name}"}}
    for name in given.get("gone", []):
        del live[tuple(name.split("/"))]
    for name in given.get("taken", []):
        live[tuple(name.split("/"))] = {"metadata": {"ownerReferences": [{"uid": "somebody-else"}]}}
    return snapshot(given["spec"], status, live, given.get("revisions", []))


def read_traffic(given):
    counts = {short(fingerprint(system)): each for system, each in given.items()}
    return Traffic(
        True,
        {name: Flow(requests, requests) for name, (requests, _) in counts.items()},
        {name: {StratumKey(): Stratum(requests, failed)} for name, (requests, failed) in counts.items()},
    )


def past(entries):
    """Revisions, or pods, as they were at the last pass."""
    return [
        each | ({"pods": past(each["pods"])} if "pods" in each else {}) | each.get("was", {})
        for each in entries
        if each.get("was") != "absent"
    ]


def read_revisions(entries, now, settings):
    return tuple(read_revision(each, now, settings) for each in entries)


def read_revision(given, now, settings):
    system = given["prompt"]
    fields = {key: given[key] for key in ("replicas", "weight") if key in given}
    if given.get("superseded") is not None:
        fields["superseded_at"] = fields["quiet_since"] = now - ago(given["superseded"])
    if "use" in given:
        fields["use"] = {slot: SlotUse(*use) for slot, use in given["use"].items()}
    if "step" in given:
        weight, since = given["step"]
        fields["progress"] = Progress(weight, now - ago(since) if since is not None else None)
    if "warm_image" in given:
        containers = [{"name": "engine", "image": given["warm_image"]}]
        fields["warm_template"] = {"metadata": {}, "spec": {"containers": containers}}
    made = builders.revision(system, [read_pod(each, now, settings) for each in given.get("pods", [])], **fields)
    if given.get("kept") == "nowhere":
        return replace(made, prompt=None)
    if given.get("kept") == "Secret":
        return replace(made, prompt_from=PromptRef("Secret", made.deployment))
    if "adapter" in given:
        return with_adapter(made, Prompt(system, adapter=encode(of_spec(AdapterSpec.model_validate(given["adapter"])))))
    return replace(made, prompt=Prompt(system))


def with_adapter(made, prompt):
    name = f"support-{short(prompt.fingerprint)}"
    pods = tuple(replace(each, fingerprint=prompt.fingerprint) for each in made.pods)
    found = replace(made, fingerprint=prompt.fingerprint, deployment=name, prompt=prompt, pods=pods)
    return replace(found, prompt_from=PromptRef("ConfigMap", name))


def read_pod(given, now, settings):
    fields = {"settings": given.get("settings", settings)} | STATES[given.get("state", "warm")]
    if "measured" in given:
        fields["measured"] = Measured(*given["measured"])
    if given.get("draining") is not None:
        fields["draining_since"] = now - ago(given["draining"])
    if "requests" in given:
        fields["in_flight"] = given["requests"]
    return builders.pod(given["name"], given.get("slot"), **{"address": f"{given['name']}:8000", **fields})


def ago(seconds):
    return timedelta(seconds=seconds)


# --- showing -----------------------------------------------------------------------------------------------


def shown(world, todo, *, whole):
    effects = [
        {
            "condition": f"pod {each.pod}: {each.outcome.warm}, {each.outcome.reason.value}",
            "message": each.outcome.message,
        }
        for each in todo.conditions
    ]
    effects += [{"apply": manifest(each, whole=whole)} for each in plan.unwritten(world, todo)]
    effects += [{"mark": pod_mark(each)} for each in todo.pod_updates]
    if todo.route is not None and plan.route_unwritten(world, todo):
        effects.append({"apply": manifest(todo.route, whole=whole)})
    effects += [{"delete": f"{each.kind} {each.name}"} for each in todo.deletions]
    effects += [
        {"warm": f"pod {each.pod} at {each.address}", "proceed": each.proceed, "deadline": time(each.deadline)}
        for each in todo.warmups
    ]
    if todo.peers_key:
        effects.append({"create": "the Secret of the namespace's routers"})
    if todo.status == world.group.status:
        return {"effects": effects, "requeueAfter": requeue_after(world, todo)}
    conditions = {
        each["type"]: f"{each['status']}, {each['reason']}: {each['message']}" for each in todo.status["conditions"]
    }
    return {
        "effects": effects,
        "status": {**todo.status, "conditions": conditions},
        "events": [f"{each.type} {each.reason}: {each.message}" for each in todo.events],
        "requeueAfter": requeue_after(world, todo),
    }


def requeue_after(world, todo):
    """The constant's name, so that its value is in one place; seconds where a refresh or a window is due before."""
    constants = {"SETTLED": plan.SETTLED, "MOVING": plan.MOVING, "WAITING": plan.WAITING}
    constants |= {"REFERENCED": plan.REFERENCED} if references.references(world.group.spec) else {}
    constants |= {"PERIOD": PERIOD} if world.group.spec.sizing is not None else {}
    found = [name for name, value in constants.items() if value == todo.requeue_after]
    return found[0] if found else f"{todo.requeue_after.total_seconds():g}s"


def manifest(made, *, whole):
    annotations = {key: text for key, text in made["metadata"]["annotations"].items() if key != ANNOTATION_APPLIED}
    if whole:
        return made | {"metadata": made["metadata"] | {"annotations": annotations}}
    spec = {key: value for key, value in made.get("spec", {}).items() if key in ("replicas", "revisions")}
    brief = {"kind": made["kind"], "name": made["metadata"]["name"]}
    return brief | ({"annotations": annotations} if annotations else {}) | spec


def pod_mark(mark):
    made = {"pod": mark.pod, "slot": mark.slot}
    if mark.draining_since is not None:
        made |= {"drainingSince": time(mark.draining_since), "deletionCost": mark.deletion_cost}
    return made


def time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"

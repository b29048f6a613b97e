from dataclasses import replace
from datetime import datetime

import pytest

from promptgroup_contract import names
from promptgroup_contract.encoding import decode_group
from promptgroup_contract.table import Group, ModelAlias
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan.plan import MOVING, Plan, decide
from promptgroup_operator.plan.validate import is_owned, may_delete, taken_aliases, validate
from promptgroup_operator.world.snapshot import OtherGroup, Problem, Progress, PromptText, Sibling
from support.builders import CREATED, FINGERPRINT, NOW, TEXT, group, pod, revision, starting, text, world
from support.tables import settled

NAME = f"support-{FINGERPRINT[:8]}"


def thing(*, owner=None, label=None, stamp=False):
    owners = [{"uid": owner}] if owner else []
    annotations = {names.ANNOTATION_APPLIED: "0123456789abcdef"} if stamp else {}
    labels = {"promptgroup.dev/group": label} if label else {}
    return {"metadata": {"ownerReferences": owners, "labels": labels, "annotations": annotations}}


OWNED = {
    "owned by the group": (thing(owner="uid-support"), True),
    "owned by another of its name, since deleted": (thing(owner="uid-before", label="support"), False),
    "owned by something else": (thing(owner="other"), False),
    "owned by another of its name, and stamped": (thing(owner="uid-before", label="support", stamp=True), False),
    "an orphan that the operator wrote": (thing(label="support", stamp=True), True),
    "an orphan of another group": (thing(label="other", stamp=True), False),
    "a user's own with the group's label": (thing(label="support"), False),
    "nobody's": (thing(), False),
    "an object that says nothing": ({}, False),
}


@pytest.mark.parametrize("case", OWNED)
def test_ours(case):
    live, expected = OWNED[case]
    assert is_owned(group(), live) is expected
    assert may_delete(group(), live) is (case == "owned by the group")


def test_a_sound_spec_is_its_prompt():
    assert validate(world()) == text()


def test_objects_of_its_own_do_not_stand_against_it():
    live = {("Deployment", NAME): thing(owner="uid-support"), ("PromptRoute", "support"): thing(owner="uid-support")}
    assert isinstance(validate(world(live=live)), PromptText)


@pytest.mark.parametrize(
    "key", [("Deployment", NAME), ("ConfigMap", NAME), ("Secret", NAME), ("PromptRoute", "support")]
)
def test_a_name_that_is_taken_is_said_and_never_taken_over(key):
    found = validate(world(live={key: thing(owner="other")}))
    assert isinstance(found, Problem)
    assert found.reason == "NameTaken"
    assert found.message.startswith(f"{key[0]} {key[1]} exists and belongs to something else: delete or rename it")


def test_what_stands_under_another_name_does_not_matter():
    assert isinstance(validate(world(live={("Deployment", "other"): thing(owner="other")})), PromptText)


BAD_TEMPLATE = {"template": {"spec": {"containers": [{"image": "x"}]}}}
OLDER = Sibling("older", "2026-11-03T10:00:00Z", FINGERPRINT)


def test_a_template_that_cannot_be_merged_is_refused_with_the_field():
    found = validate(world(of=group(engine=BAD_TEMPLATE)))
    assert found == Problem(
        "InvalidTemplate",
        "spec.engine.template: an item of containers has no name, which names the item that it is merged with",
    )


def test_one_half_of_a_pair_is_refused_with_the_way_out():
    config = '--kv-transfer-config={"kv_connector":"NixlConnector","kv_role":"kv_consumer"}'
    container = {"name": "engine", "args": ["a-model", config]}
    for engine in ({"args": [config]}, {"template": {"spec": {"containers": [container]}}}):
        found = validate(world(of=group(engine=engine)))
        assert isinstance(found, Problem)
        assert found.reason == "InvalidRole"
        assert "--kv-transfer-config with kv_role kv_consumer" in found.message
        assert "remove it, or use a project that splits requests" in found.message
    assert validate(world(of=group(engine={"args": [config.replace("kv_consumer", "kv_both")]}))) == text()


def test_the_first_that_stands_against_it_is_said():
    of, taken = group(engine=BAD_TEMPLATE), {("Deployment", NAME): thing()}
    missing = Problem("PromptNotFound", "waits")
    order = [
        validate(world(of=of, prompt=missing, siblings=[OLDER], live=taken)),
        validate(world(of=of, siblings=[OLDER], live=taken)),
        validate(world(of=of, live=taken)),
        validate(world(of=of)),
    ]
    assert [each.reason for each in order] == ["PromptNotFound", "Conflict", "NameTaken", "InvalidTemplate"]


def test_of_two_groups_the_younger_is_refused_and_the_older_is_not():
    assert validate(world(siblings=[OLDER])).reason == "Conflict"
    assert isinstance(validate(world(siblings=[Sibling("zulu", CREATED, FINGERPRINT)])), PromptText)


def test_a_users_own_budget_with_the_groups_label_is_never_deleted():
    budget = {"metadata": {"name": "mine", "uid": "u", "labels": {"promptgroup.dev/group": "support"}}}
    orphan = {"metadata": {**budget["metadata"], "annotations": {names.ANNOTATION_APPLIED: "0"}}}
    for live in (budget, orphan):
        assert decide(world(live={("PodDisruptionBudget", "mine"): live}), NOW).deletions == ()
    owned = {"metadata": {**budget["metadata"], "ownerReferences": [{"uid": "uid-support"}]}}
    (deletion,) = decide(world(live={("PodDisruptionBudget", "mine"): owned}), NOW).deletions
    assert (deletion.kind, deletion.name) == ("PodDisruptionBudget", "mine")


def test_a_group_that_was_created_together_with_an_older_one_makes_nothing_before_that_one_is_seen():
    other = Sibling("alpha", CREATED, "", observed=False)
    now = datetime.fromisoformat(CREATED)
    waits = decide(world(siblings=[other]), now)
    assert waits == Plan(requeue_after=MOVING)
    assert decide(world(siblings=[replace(other, observed=True, fingerprint="0" * 32)]), now).objects


def owned(kind, name):
    return {"kind": kind, "metadata": {"name": name, "uid": f"uid-{kind}", "ownerReferences": [{"uid": "uid-support"}]}}


def test_a_group_that_never_served_and_lost_its_claim_keeps_nothing():
    live = {(kind, NAME): owned(kind, NAME) for kind in ("Deployment", "ConfigMap", "PodDisruptionBudget")}
    live["PromptRoute", "support"] = owned("PromptRoute", "support")
    live["Deployment", "other"] = {"metadata": {"name": "other", "uid": "other"}}
    never = revision(TEXT, [starting()], progress=Progress(0, None))
    todo = decide(world([never], siblings=[OLDER], live=live), NOW)
    assert {(each.kind, each.name) for each in todo.deletions} == live.keys() - {("Deployment", "other")}
    assert todo.deletions[-1].kind == "Deployment"
    assert todo.objects == todo.warmups == ()
    assert todo.route is None


def test_a_group_that_served_before_it_lost_its_claim_keeps_serving():
    todo = decide(world([revision(TEXT, [pod()])], siblings=[OLDER]), NOW)
    assert todo.deletions == ()
    slots = decode_group("chat", "support", todo.route["spec"]).revisions[0].slots
    assert "Ready" in [each.state for each in slots]


@pytest.mark.parametrize("replica", [starting("c"), pod("c")], ids=["starting", "warm"])
def test_a_group_that_serves_and_loses_its_claim_to_a_new_prompt_keeps_nothing_of_that_prompt(replica):
    """Two groups are edited to one prompt in one moment: each begins a release before it sees the other's."""
    serves = revision("the prompt before", [pod("a", 0), pod("b", 1)])
    lost = revision(TEXT, [replica], weight=0, progress=Progress(0, None))
    todo = decide(world([serves, lost], siblings=[OLDER]), NOW)
    facts = {each["type"]: (each["status"], each["reason"]) for each in todo.status["conditions"]}
    assert facts["Accepted"] == ("False", "Conflict")
    phases = {each["fingerprint"]: (each["phase"], each["weight"]) for each in todo.status["revisions"]}
    assert phases == {serves.fingerprint: ("Serving", 100), lost.fingerprint: ("Retiring", 0)}
    assert [(each.pod, each.draining_since) for each in todo.pod_updates] == [("c", NOW)]
    assert todo.warmups == ()


def test_a_group_whose_engine_knows_no_salt_cannot_keep_callers_apart(monkeypatch):
    of = group(routing={"isolation": "Caller"})
    assert isinstance(validate(world(of=of)), PromptText)
    plain = replace(DIALECTS[EngineType.VLLM], salted=frozenset())
    monkeypatch.setattr("promptgroup_operator.plan.validate.DIALECTS", {EngineType.VLLM: plain})
    found = validate(world(of=of))
    assert found.reason == "IsolationNotSupported"
    assert "vLLM takes no cache_salt" in found.message
    assert isinstance(validate(world()), PromptText)


def test_tiers_that_cannot_work_are_said():
    engine = {"args": ["--kv-offloading-size=1"]}
    found = validate(replace(world(), group=group(cache={"offload": {"memory": "8Gi"}}, engine=engine)))
    assert isinstance(found, Problem)
    assert found.reason == "InvalidCache"


def aliased(*others, aliases=("gpt",)):
    return replace(world(of=group(modelAliases=list(aliases))), others=others)


OTHER = OtherGroup("alpha", CREATED, "qwen")
ALIASES = {
    "nobody else has it": (OTHER, {}),
    "a model of the namespace": (replace(OTHER, model="gpt"), {"gpt": "alpha"}),
    "a group of the namespace": (replace(OTHER, name="gpt"), {"gpt": "gpt"}),
    "an alias of another model, of an older group": (replace(OTHER, aliases=("gpt",)), {"gpt": "alpha"}),
    "an alias of another model, of a younger group": (replace(OTHER, created="2027", aliases=("gpt",)), {}),
    "an alias of another model, of a group as old and earlier by name": (
        replace(OTHER, created=CREATED, aliases=("gpt",)),
        {"gpt": "alpha"},
    ),
    "an alias of another model, of a group as old and later by name": (
        replace(OTHER, name="zulu", created=CREATED, aliases=("gpt",)),
        {},
    ),
    "an alias of the same model": (replace(OTHER, model="llama", aliases=("gpt",)), {}),
}


@pytest.mark.parametrize("case", ALIASES)
def test_aliases_that_something_else_has(case):
    other, expected = ALIASES[case]
    assert taken_aliases(aliased(other)) == expected
    # as routers decide it
    mine = Group("chat", "support", "llama", CREATED, (), aliases=(ModelAlias("gpt", CREATED),))
    listed = tuple(ModelAlias(each, CREATED) for each in other.aliases)
    theirs = Group("chat", other.name, other.model, other.created, (), aliases=listed)
    found = settled([mine, theirs]).conflicts
    assert {each.alias: each.keeper for each in found if each.group == "chat/support"} == {
        alias: f"chat/{keeper}" for alias, keeper in expected.items()
    }


def test_the_full_name_of_the_group_is_a_name_of_its_own():
    assert taken_aliases(aliased(aliases=("chat/support", "chat/other"))) == {"chat/support": "support"}


def test_a_group_with_aliases_says_if_they_stand_for_its_model_and_serves_either_way():
    def told(of):
        status = decide(of, NOW).status
        return {each["type"]: each for each in status["conditions"]}

    served = told(aliased(OTHER))
    assert (served["AliasesServed"]["status"], served["AliasesServed"]["reason"]) == ("True", "AliasesServed")
    taken = told(aliased(replace(OTHER, model="gpt")))
    assert (taken["AliasesServed"]["status"], taken["AliasesServed"]["reason"]) == ("False", "AliasTaken")
    assert "gpt is a name of PromptGroup alpha" in taken["AliasesServed"]["message"]
    assert (taken["Accepted"]["status"], taken["Degraded"]["status"]) == ("True", "False")
    assert "AliasesServed" not in told(world())
    events = [each.reason for each in decide(aliased(replace(OTHER, model="gpt")), NOW).events]
    assert "AliasTaken" in events


def test_a_group_that_served_and_lost_its_claim_keeps_what_it_has_while_all_its_pods_are_new():
    """The node of its only replica was drained a moment before its prompt was edited to that of another group."""
    served = revision("Another prompt.", [starting()])
    live = {("Deployment", served.deployment): owned("Deployment", served.deployment) | {"spec": {"template": {}}}}
    todo = decide(world([served], siblings=[OLDER], live=live), NOW)
    assert todo.deletions == ()
    assert [each["weight"] for each in todo.route["spec"]["revisions"]] == [100]
    assert [each["spec"]["replicas"] for each in todo.objects if each["kind"] == "Deployment"] == [2]

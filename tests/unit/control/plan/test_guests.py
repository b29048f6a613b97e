"""Passes over a guest, from its first one to the end of its host."""

from dataclasses import replace
from datetime import timedelta

from promptgroup_contract.fingerprint import short
from promptgroup_operator.adapters.identity import Adapter
from promptgroup_operator.plan import plan, references
from promptgroup_operator.world.samples import Flow, Stratum, StratumKey, Traffic
from support import builders
from support.guestmodel import GuestModel, guest_spec, host_pods

NEW = "You are the billing assistant of Example Ltd."


def settled(count=3, **fields):
    model = GuestModel(host_pods(f"p{number}" for number in range(count)), guest_spec(**fields))
    model.settle()
    return model


def test_a_guest_is_warmed_on_every_replica_and_makes_nothing_but_its_prompt_and_its_route():
    model = settled()
    assert model.ready() == {"p0", "p1", "p2"}
    assert {kind for kind, _ in model.live} == {"PromptRoute", "ConfigMap"}
    assert model.condition("Ready") == ("True", "Warm")
    assert model.status["warm"] == "3/3"
    assert "selector" not in model.status
    assert "deployment" not in model.status["revisions"][0]
    assert sorted(pod for pod, _ in model.warmed) == ["p0", "p1", "p2"]


def test_no_plan_of_a_guest_touches_a_pod():
    model = GuestModel(host_pods(["p0", "p1"]))
    for _ in range(5):
        todo = model.step()
        assert (todo.conditions, todo.pod_updates) == ((), ())


def test_one_warm_replica_is_enough_to_be_ready():
    model = GuestModel(host_pods(["p0", "p1"]), refused=frozenset({"p1"}))
    for _ in range(5):
        model.step()
    assert model.condition("Ready") == ("True", "Warm")
    assert model.condition("PrefixWarm") == ("False", "WarmupRefused")
    assert model.status["warm"] == "1/2"


def test_another_operator_warms_nothing_again():
    model = settled()
    done, writes = len(model.warmed), model.writes
    model.restart()
    model.settle()
    assert (len(model.warmed), model.writes) == (done, writes)


def test_a_container_that_restarts_leaves_the_route_and_comes_back_to_its_slot():
    model = settled()
    before = model.route["spec"]["revisions"][0]["slots"]
    model.replace_container("p1")
    model.step()
    assert model.ready() == {"p0", "p2"}
    model.settle()
    after = model.route["spec"]["revisions"][0]["slots"]
    assert [slot["slot"] for slot in after] == [slot["slot"] for slot in before]
    assert model.ready() == {"p0", "p1", "p2"}


def test_a_pod_in_the_place_of_another_takes_its_slot():
    model = settled()
    model.pods = [*model.pods[:2], builders.pod("p9")]
    model.step()
    assert model.ready() == {"p0", "p1"}
    model.settle()
    assert model.ready() == {"p0", "p1", "p9"}
    assert [slot["slot"] for slot in model.route["spec"]["revisions"][0]["slots"]] == [0, 1, 2]


def test_a_placement_stays_when_the_host_grows():
    model = settled(3, placement={"replicas": 2})
    before = model.ready()
    assert len(before) == 2
    model.pods = host_pods(f"p{number}" for number in range(8))
    model.settle()
    assert model.ready() == before


def test_a_release_is_warmed_beside_the_old_prompt_and_takes_over_on_the_same_replicas():
    model = settled(2, rollout={"retireAfter": "10m"})
    model.text = builders.text(NEW)
    old_ready = []
    while model.ready(NEW) != {"p0", "p1"}:
        model.step()
        old_ready.append(model.ready(builders.TEXT))
    model.settle()
    assert all(each == {"p0", "p1"} for each in old_ready)
    weights = {each["fingerprint"]: each["weight"] for each in model.route["spec"]["revisions"]}
    assert weights == {builders.FINGERPRINT: 0, model.text.fingerprint: 100}
    model.now += timedelta(minutes=11)
    model.settle()
    phases = {each["fingerprint"]: each["phase"] for each in model.status["revisions"]}
    assert phases == {builders.FINGERPRINT: "Retired", model.text.fingerprint: "Serving"}


def test_a_worse_prompt_is_rolled_back():
    model = settled(2, rollout={"steps": [{"weight": 50, "pause": "1m"}]})
    model.text = builders.text(NEW)
    model.settle()
    old, new = short(builders.FINGERPRINT), short(model.text.fingerprint)
    samples = {old: {StratumKey(): Stratum(5000, 0)}, new: {StratumKey(): Stratum(5000, 5000)}}
    model.traffic = Traffic(True, {old: Flow(50, 50), new: Flow(50, 50)}, samples)
    model.now += timedelta(minutes=2)
    model.settle()
    weights = {each["fingerprint"]: each["weight"] for each in model.route["spec"]["revisions"]}
    assert weights[builders.FINGERPRINT] == 100
    assert model.condition("Degraded") == ("True", "RolledBack")


def test_retired_revisions_beyond_the_history_go():
    model = settled(1, rollout={"revisionHistoryLimit": 1, "retireAfter": "1m"})
    for number in range(4):
        model.text = builders.text(f"{NEW} {number}")
        model.settle()
        model.now += timedelta(minutes=2)
        model.settle()
    assert len(model.route["spec"]["guest"]["revisions"]) == 2
    assert sum(kind == "ConfigMap" for kind, _ in model.live) == 2


def test_a_host_that_goes_and_comes_back():
    model = settled(2)
    serving, model.host_spec = model.host_spec, None
    model.settle()
    assert model.condition("ResolvedRefs") == ("False", "HostNotFound")
    assert model.condition("Ready") == ("False", "HostNotFound")
    assert model.ready() == set()
    model.host_spec = serving
    model.pods = []
    model.settle()
    assert model.condition("Ready") == ("False", "HostWithoutReplicas")
    model.pods = host_pods(["q0", "q1"])
    model.settle()
    assert model.condition("Ready") == ("True", "Warm")
    assert model.ready() == {"q0", "q1"}


def test_a_prompt_of_a_secret_stays_in_secrets():
    model = GuestModel(host_pods(["p0"]), text=builders.text(secret=True))
    model.settle()
    assert {kind for kind, _ in model.live} == {"PromptRoute", "Secret"}


def test_a_host_drains_no_replica_that_a_guest_still_leads_to():
    pods = [builders.pod("p0", 0), builders.pod("p1", 1)]
    seen = builders.world([builders.revision(pods=pods)], of=builders.group(replicas=1))

    def drained(world):
        return {mark.pod for mark in plan.decide(world, builders.NOW).pod_updates if mark.draining_since is not None}

    assert drained(seen) == {"p1"}
    assert drained(replace(seen, guests_routed=frozenset({"p1"}))) == set()


def test_the_only_replica_serves_until_its_successor_is_warm():
    model = settled(1)
    model.pods = [replace(model.pods[0], deleting=True), builders.cold("p1", containers_ready=False)]
    model.step()
    model.step()
    assert model.ready() == {"p0"}
    model.pods[1] = builders.pod("p1", None)
    served = []
    for _ in range(6):
        model.step()
        served.append(model.ready())
    assert all(served)
    assert served[-1] == {"p1"}


def test_a_replica_that_leaves_is_left_when_no_other_one_becomes_warm():
    model = settled(1)
    model.refused = frozenset({"p1"})
    model.pods = [replace(model.pods[0], draining_since=builders.NOW), builders.pod("p1", None)]
    for _ in range(5):
        model.step()
    assert model.ready() == set()


def test_a_guest_on_one_replica_moves_before_that_leaves():
    model = settled(3, placement={"replicas": 1})
    (only,) = model.ready()
    model.pods = [replace(pod, draining_since=builders.NOW) if pod.name == only else pod for pod in model.pods]
    served = []
    for _ in range(6):
        model.step()
        served.append(model.ready())
    assert all(served)
    assert served[-1] != {only}
    assert len(served[-1]) == 1


def test_what_engines_need_is_told_by_the_host_alone():
    pool = {"type": "LMCache", "address": "lmcache:65432", "monitor": "lmcache:8080"}
    engine = {"credentialFrom": {"name": "keys", "key": "engine"}}
    serving = builders.spec(cache={"pool": pool}, engine=engine)
    model = GuestModel(host_pods(["p0"]), host_spec=serving)
    model.settle()
    assert references.references(model.world().group.spec) == []
    assert "CachePoolReady" not in {each["type"] for each in model.status["conditions"]}


def test_behind_a_gateway_a_replica_is_offered_once_gateways_know_of_it():
    model = GuestModel([builders.pod("a", 0)], host_spec=builders.spec(gateway={}))
    model.settle()
    assert model.ready() == {"a"}
    model.pods = [*model.pods, replace(builders.pod("b", 1), ready_since=model.now)]
    model.step()
    model.step()
    assert model.ready() == {"a"}
    model.now += timedelta(seconds=5)
    model.settle()
    assert model.ready() == {"a", "b"}


def adapted(version, **fields):
    return guest_spec(adapter={"name": "tone", "source": {"huggingFace": f"example/v{version}"}}, **fields)


def test_a_new_adapter_is_a_release_with_a_name_of_its_own():
    """The prompt is the same, and so is the name that clients use."""
    model = GuestModel(host_pods(["p0", "p1"]), host_spec=builders.spec(engine={"adapters": {}}))
    names = []
    for version in (1, 2):
        model.spec = adapted(version)
        model.text = references.declared(model.spec, {})
        model.settle()
        assert model.ready() == {"p0", "p1"}
        assert (model.route["spec"]["model"], model.route["spec"]["baseModel"]) == ("tone", "llama")
        (serving,) = [each for each in model.route["spec"]["revisions"] if each["weight"]]
        assert serving["servedModel"] == Adapter("tone", f"example/v{version}").served
        assert serving["textFingerprint"] == builders.FINGERPRINT != serving["fingerprint"]
        names.append(serving["servedModel"])
    assert len({*names}) == 2
    assert {kind for kind, _ in model.live} == {"PromptRoute", "ConfigMap"}


def test_a_warm_up_of_a_guest_loads_its_adapter_and_asks_for_it():
    model = GuestModel(host_pods(["p0"]), adapted(1), host_spec=builders.spec(engine={"adapters": {}}))
    model.text = references.declared(model.spec, {})
    (job,) = next(todo.warmups for todo in iter(model.step, None) if todo.warmups)
    adapter = Adapter("tone", "example/v1")
    assert (job.model, job.adapter, job.loads) == ("llama", adapter, adapter)


def test_routers_get_the_form_of_sglang_and_the_apis_that_apply_an_adapter():
    engine = {"type": "SGLang", "adapters": {}}
    model = GuestModel(host_pods(["p0"]), adapted(1), host_spec=builders.spec(engine=engine))
    model.text = references.declared(model.spec, {})
    model.settle()
    (serving,) = model.route["spec"]["revisions"]
    assert serving["servedModel"] == f"llama:{Adapter('tone', 'example/v1').served}"
    assert serving["servedModelAPIs"] == ["chat", "messages", "text"]


def test_the_model_and_the_adapter_of_a_host_that_is_gone_stand_in_the_route():
    model = GuestModel(host_pods(["p0"]), adapted(1), host_spec=None)
    model.text = references.declared(model.spec, {})
    model.step()
    assert model.condition("Ready") == ("False", "HostNotFound")

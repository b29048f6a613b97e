from dataclasses import replace

from promptgroup_operator.guests import room
from promptgroup_operator.plan import plan
from promptgroup_operator.world.engine_facts import Measured
from support import builders
from support.guestmodel import GuestModel, host_pods


def route(name, tokens, *pods):
    slots = [{"slot": number, "state": "Ready", "pod": pod} for number, pod in enumerate(pods)]
    slots.append({"slot": 99, "state": "Absent"})
    return {"metadata": {"name": name}, "spec": {"revisions": [{"tokens": tokens, "slots": slots}]}}


def crowded(pod, tokens, kv=1000):
    return replace(pod, crowd=tokens, measured=Measured(kv_tokens=kv))


def test_prompts_take_their_tokens_on_each_replica_that_is_warm_for_them():
    found = room.taken([route("a", 100, "p0", "p1"), route("b", 30, "p1"), route("c", 50)])
    assert found.by_pod == {"p0": 100, "p1": 130}
    assert found.by_group == {"a": 100, "b": 30}


def test_a_replica_is_full_when_prompts_take_more_than_half():
    assert room.is_full(crowded(builders.pod(), 501))
    assert not room.is_full(crowded(builders.pod(), 500))
    assert not room.is_full(crowded(builders.pod(), 500, kv=0))


def test_the_fullest_replica_is_told_with_the_largest_prompts():
    pods = [crowded(builders.pod("p0"), 100), crowded(builders.pod("p1"), 600)]
    assert room.fullest(pods).name == "p1"
    assert room.fullest([builders.pod()]) is None
    message = room.describe(pods[1], {"a": 100, "b": 300, "c": 150, "d": 50})
    assert "the prompts of 4 groups take 600 of the 1,000 tokens of KV cache of pod p1 (60 %)" in message
    assert message.endswith("b (300), c (150), a (100)")


def condition(model_or_world):
    todo = plan.decide(model_or_world, builders.NOW)
    found = [each for each in todo.status["conditions"] if each["type"] == "PromptsFit"]
    return (found[0]["status"], found[0]["reason"]) if found else None


def test_host_and_guest_say_when_prompts_take_too_much():
    pods = [crowded(each, 700) for each in host_pods(["p0"])]
    host = builders.world([builders.revision(pods=pods)], of=builders.group(replicas=1))
    assert condition(host) is None
    assert condition(replace(host, prompts={"a": 700})) == ("False", "PromptsOutgrowCache")
    guest = GuestModel(pods)
    guest.settle()
    assert condition(replace(guest.world(), prompts={"a": 700})) == ("False", "PromptsOutgrowCache")
    little = [crowded(each, 70) for each in pods]
    host = builders.world([builders.revision(pods=little)], of=builders.group(replicas=1))
    assert condition(replace(host, prompts={"a": 70})) == ("True", "PromptsFit")

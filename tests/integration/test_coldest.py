"""The replica that leaves is the one whose sessions have least to compute again; its busy neighbours keep theirs."""

import json
import urllib.request
from dataclasses import dataclass, field

import pytest

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.routed import routers_know

pytestmark = pytest.mark.integration

NAME = "coldest"
BUSY, SHORT = 4, 1
"""Sessions that come back to each of the slots 0 and 2, and to slot 1."""
WORDS = "It is a long story of many words, and all of them matter. " * 20


@dataclass(slots=True)
class Talk:
    """A session of a client."""

    url: str
    key: str
    messages: list[dict[str, str]] = field(default_factory=list)

    def say(self, text: str) -> int:
        """Send a turn, and return the slot that answered it."""
        self.messages.append({"role": "user", "content": text})
        body = {"model": NAME, "messages": self.messages, "max_tokens": 8}
        headers = {"content-type": "application/json", names.HEADER_SESSION: self.key}
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            self.messages.append(json.load(answer)["choices"][0]["message"])
            return int(answer.headers[names.HEADER_SERVED_BY].rpartition("/")[2])


def slots(kube: Kubectl) -> dict[int, str]:
    """Slot → pod that holds it."""
    labelled = ((each["metadata"]["labels"].get(names.LABEL_SLOT), each) for each in lab.engine_pods(kube, NAME))
    return {int(slot): each["metadata"]["name"] for slot, each in labelled if slot is not None}


def sessions(url: str) -> dict[int, list[Talk]]:
    """Slot → sessions that came back to it: long ones on the slots 0 and 2, a short one on slot 1."""
    found: dict[int, list[Talk]] = {0: [], 1: [], 2: []}
    for number in range(200):
        if [len(each) for each in found.values()] == [BUSY, SHORT, BUSY]:
            return found
        talk = Talk(url, f"session-{number}")
        slot = talk.say(f"question {number}")
        if len(found[slot]) < (SHORT if slot == 1 else BUSY):
            assert talk.say("go on" if slot == 1 else WORDS) == slot
            found[slot].append(talk)
    raise AssertionError(f"no sessions for every slot: {found}")


def moved(talks: dict[int, list[Talk]]) -> int:
    """Go on with every session, and return how many another slot answers than the one before."""
    return sum(talk.say("and then?") != slot for slot, some in talks.items() for talk in some)


@pytest.mark.usefixtures("operator")
def test_the_coldest_leaves_and_its_busy_neighbours_keep_their_sessions(kube: Kubectl) -> None:
    lab.install_router(kube)
    kube.apply(group(NAME, PROMPTS["c"], replicas=3))
    kube.wait_warm(NAME, "3/3")
    routers_know(kube, NAME)
    before = slots(kube)
    talks = sessions(lab.router_url(kube))
    assert moved(talks) == 0

    kube.scale("promptgroup", NAME, 2)
    wait_for(lambda: True if len(lab.engine_pods(kube, NAME)) == 2 else None, "one to go", lambda: slots(kube))
    kube.wait_warm(NAME, "2/2")
    routers_know(kube, NAME)
    assert slots(kube) == {slot: before[slot] for slot in (0, 2)}
    lost = moved(talks)
    assert lost == SHORT
    assert lost < len(talks[2]), "the highest slot would have taken more with it"

    kube.scale("promptgroup", NAME, 3)
    kube.wait_warm(NAME, "3/3")
    routers_know(kube, NAME)
    after = slots(kube)
    assert {slot: after[slot] for slot in (0, 2)} == {slot: before[slot] for slot in (0, 2)}
    assert set(after) == {0, 1, 2}, "the free number is taken first"
    assert sum(talk.say("and so on") != slot for slot in (0, 2) for talk in talks[slot]) == 0

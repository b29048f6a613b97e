from datetime import timedelta

from promptgroup_cli.rehearsal import report, simulate
from promptgroup_cli.rehearsal.manifest import Wanted
from promptgroup_cli.rehearsal.simulated_cluster import SimulatedPace
from promptgroup_cli.rehearsal.simulated_guest import HOST_REPLICAS, SimulatedGuest
from promptgroup_operator.guests import host
from promptgroup_operator.world.snapshot import GroupObject, Key
from support import builders
from support.guestmodel import guest_spec

PACE = SimulatedPace(timedelta(minutes=1))


def guest(**fields):
    spec = host.served(guest_spec(**fields), None, HOST_REPLICAS, "")
    return GroupObject(Key("chat", "support"), "uid", 1, builders.CREATED, spec, {})


def end(cluster):
    *_, last = simulate.run(cluster)
    return last


def test_a_guest_is_warm_at_once_on_the_replicas_of_its_host():
    last = end(SimulatedGuest(guest(), builders.text(), PACE, builders.NOW))
    assert last.at == builders.NOW
    assert last.world.group.status["warm"] == "2/2"


def test_a_release_ends_after_its_steps_and_its_wait():
    cluster = SimulatedGuest(guest(), builders.text(), PACE, builders.NOW)
    end(cluster)
    new = builders.text("Another prompt.")
    cluster.change(guest(rollout={"steps": [{"weight": 50, "pause": "10m"}], "retireAfter": "5m"}), new)
    last = end(cluster)
    assert last.at - builders.NOW == timedelta(minutes=15)
    phases = {each["fingerprint"]: each["phase"] for each in last.world.group.status["revisions"]}
    assert phases == {builders.FINGERPRINT: "Retired", new.fingerprint: "Serving"}


def test_what_a_release_takes_of_the_cache_is_told():
    old, new = (Wanted(guest(), builders.text(text), (), ()) for text in ("a" * 400, "b" * 800))
    told = " ".join(report.heading(old, new, PACE))
    assert "about 200 tokens of KV cache on each of these replicas, and 100 for the prompt before" in told
    assert "for the prompt before" not in " ".join(report.heading(None, new, PACE))

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.crd import render
from promptgroup_operator.api.guest_memory import GuestProof, GuestRevision, RouteGuest
from promptgroup_operator.guests import record


def test_what_is_remembered_of_a_guest_is_what_its_passes_read():
    proof = GuestProof(pod="host-0", container="c", reason="PrefixCached", since="2026-11-27T12:00:00Z")
    revision = GuestRevision(
        fingerprint=Fingerprint("a" * 32),
        created="2026-11-27T12:00:00Z",
        replicas=2,
        prompt_kind="ConfigMap",
        warm=[proof],
    )
    guest = RouteGuest(revisions=[revision]).model_dump(by_alias=True, exclude_none=True)
    (read,) = record.decode({"spec": {"guest": guest}})
    assert (read.fingerprint, read.replicas, read.prompt_kind) == ("a" * 32, 2, "ConfigMap")


def test_the_schema_of_a_prompt_route_has_the_memory_beside_what_routers_read():
    schema = render()["promptroutes.yaml"]
    assert "guest:" in schema
    assert "promptKind" in schema

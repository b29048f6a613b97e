"""The routers that are compared, each as a command line over the same engines."""

from bench.peers import dynamo, routers
from bench.peers.routers import Contestant, Place
from bench.prefix.shapes import MODEL
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Policy

ENGINES = 4
KV_TOKENS = 40_000
DECLARED = "You are the assistant of a company that nobody here asks."
"""The prompt of the only group: no request begins with it, so that nothing that is shared is declared."""


def _only_group(place: Place) -> list[dict[str, object]]:
    slots = [
        {"slot": index, "state": "Ready", "address": url.removeprefix("http://"), "incarnation": "1"}
        for index, url in enumerate(place.engines)
    ]
    revision = {
        "fingerprint": fingerprint(DECLARED),
        "systemBytes": len(DECLARED),
        "weight": 100,
        "prompt": {"system": DECLARED},
        "engine": {"settings": "stand-in", "kvTokens": place.kv_tokens, "prefillTokensPerSecond": place.prefill_rate},
        "slots": slots,
    }
    head = {"format": 1, "namespace": "bench", "name": "nobody", "model": MODEL}
    return [{**head, "policy": Policy.EXPECTED_TTFT.value, "revisions": [revision]}]


def _peer(package: str, policy: str) -> Contestant:
    return Contestant(f"{package} {policy}", routers.peer(package, "--policy", policy))


_OWN = Contestant("promptgroup", routers.promptgroup(_only_group))
_SMG = _peer("smg", "cache_aware")
_DYNAMO = Contestant(dynamo.NAMED, routers.of_dynamo)
CONTESTANTS = (
    _OWN,
    _peer("sglang-router", "cache_aware"),
    _peer("vllm-router", "cache_aware"),
    _SMG,
    _DYNAMO,
    _peer("sglang-router", "round_robin"),
)
"""Round robin is a peer's: this project's router treats prompts that no group declares as those of one pool."""
ON_MOCKERS = (_OWN, _SMG, _DYNAMO, _peer("smg", "round_robin"))
"""Those that Dynamo's frontend answers: it refuses the fields that sglang-router adds to requests."""

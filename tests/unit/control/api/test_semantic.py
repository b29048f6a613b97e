"""What a spec says of the semantic cache, and what routers and Roles get of it."""

import pytest
from pydantic import ValidationError

from promptgroup_contract.encoding import decode_group, encode_group
from promptgroup_contract.semantic import SemanticCaching
from promptgroup_operator.api.model import HOLDS
from promptgroup_operator.api.responses import ResponseCacheMode, ResponsesSpec, caching_of
from promptgroup_operator.api.semantic import SemanticSpec, semantic_of
from promptgroup_operator.plan.router_secrets import named
from support.tables import group

ENDPOINT = {"url": "https://embedder.example/v1/embeddings", "model": "m"}
THRESHOLD_RULE = next(cel for cel in HOLDS if "self.threshold" in cel)
CACHE_RULE = next(cel for cel in HOLDS if "self.semantic" in cel)


def test_there_is_none_by_default():
    assert semantic_of(ResponsesSpec(cache=ResponseCacheMode.EXACT).semantic) is None


def test_the_threshold_has_no_default():
    spec = SemanticSpec(embeddings=ENDPOINT)
    assert not HOLDS[THRESHOLD_RULE](spec)
    assert semantic_of(spec) is None, "an object of an older schema"
    assert HOLDS[THRESHOLD_RULE](SemanticSpec(embeddings=ENDPOINT, threshold=0.9))


def test_routers_get_the_threshold_and_the_endpoint():
    made = semantic_of(SemanticSpec(embeddings=ENDPOINT, threshold=0.9))
    assert made == SemanticCaching(0.9, ENDPOINT["url"], "m", 1000)


def test_a_route_carries_the_rules_and_names_the_secret_of_the_endpoint():
    semantic = SemanticSpec(
        embeddings=ENDPOINT | {"credentialFrom": {"name": "embedder", "key": "token"}}, threshold=0.9
    )
    caching = caching_of(ResponsesSpec(cache=ResponseCacheMode.EXACT, semantic=semantic))
    assert caching.semantic == SemanticCaching(0.9, ENDPOINT["url"], "m", 1000, "embedder/token")
    route = encode_group(group(responses=caching))
    assert decode_group("chat", "support", route).responses == caching
    assert named([{"spec": route}]) == {"embedder"}


def test_it_stands_on_the_exact_cache():
    semantic = SemanticSpec(embeddings=ENDPOINT, threshold=0.9)
    assert not HOLDS[CACHE_RULE](ResponsesSpec(semantic=semantic))
    assert HOLDS[CACHE_RULE](ResponsesSpec(semantic=semantic, cache=ResponseCacheMode.EXACT))
    assert HOLDS[CACHE_RULE](ResponsesSpec())


@pytest.mark.parametrize(
    "fields",
    [
        {"threshold": 0},
        {"threshold": 1.01},
        {"mode": "On"},
        {"mode": "Answer"},
        {"max_entries": 0},
        {"max_entries": 5001},
        {"embeddings": {"url": "ftp://host/x", "model": "m"}},
        {"embeddings": {"url": "http://user@host/x", "model": "m"}},
        {"embeddings": {"url": "http://host/x y", "model": "m"}},
        {"embeddings": {"url": "http://host/x", "model": ""}},
    ],
)
def test_other_values_are_refused(fields):
    with pytest.raises(ValidationError):
        SemanticSpec(**{"threshold": 0.9, "embeddings": ENDPOINT} | fields)

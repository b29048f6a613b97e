from promptgroup_operator.plan.router_secrets import ROLES, named, role


def route(*sources, **access):
    revisions = [{"fingerprint": "f"}, *({"promptFrom": {"kind": kind, "name": name}} for kind, name in sources)]
    return {"spec": {"revisions": revisions} | ({"access": access} if access else {})}


def test_prompts_and_keys_in_secrets_are_named_and_nothing_else():
    routes = [route(("Secret", "a-1"), ("ConfigMap", "b-1")), route(("Secret", "a-1"), secrets=["keys"]), route()]
    assert named(routes) == {"a-1", "keys"}


def test_credentials_for_engines_are_named():
    slots = [{"slot": 0, "credential": "old/key"}, {"slot": 1, "credential": "new/key"}, {"slot": 2}]
    assert named([{"spec": {"revisions": [{"fingerprint": "f", "slots": slots}]}}]) == {"old", "new"}


def test_credentials_for_features_of_the_response_cache_are_named():
    assert named([{"spec": {"responses": {"feature": {"credential": "server/key"}}}}]) == {"server"}
    assert named([{"spec": {"responses": {"ttlSeconds": 1}}}]) == frozenset()


def test_a_role_has_a_rule_with_names_or_none():
    assert role("chat", ROLES[0], frozenset({"b", "a"}))["rules"] == [
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["a", "b"]}
    ]
    assert role("chat", ROLES[0], frozenset())["rules"] == []


def test_secrets_with_authorities_are_named_and_config_maps_are_not():
    slots = [{"slot": 0, "tls": "Secret/ca/ca.crt/engines"}, {"slot": 1, "tls": "ConfigMap/bundle/ca.crt"}, {"slot": 2}]
    assert named([{"spec": {"revisions": [{"fingerprint": "f", "slots": slots}]}}]) == {"ca"}

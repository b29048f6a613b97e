import pytest

from support.writtenkube import KEY, deliver, promptgroup


def test_rivals_are_the_namespaces_groups_of_the_same_model(cluster, server, stores):
    deliver(server, stores, promptgroup("same"))
    deliver(server, stores, promptgroup("other", model="qwen"))
    assert [rival.name for rival in cluster.observe(KEY).siblings] == ["same"]


def test_the_other_groups_are_those_to_which_an_alias_may_refer_as_well(cluster, server, stores):
    deliver(server, stores, promptgroup("same", modelAliases=["x", "gpt"]))
    assert cluster.observe(KEY).others == ()
    for other in (promptgroup("named"), promptgroup("served", model="qwen"), promptgroup("unrelated")):
        deliver(server, stores, other)
    deliver(server, stores, promptgroup("support", modelAliases=["gpt", "chat/named", "qwen", "mistral"]))
    others = cluster.observe(KEY).others
    assert [(other.name, other.model, other.aliases) for other in others] == [
        ("named", "llama", ()),
        ("same", "llama", ("x", "gpt")),
        ("served", "qwen", ()),
    ]
    deliver(server, stores, promptgroup("same", modelAliases=["x"]))
    assert [other.name for other in cluster.observe(KEY).others] == ["named", "served"]


@pytest.mark.parametrize("groups", [20, 50, 100])
def test_a_pass_over_a_group_with_aliases_looks_at_no_other_aliases(cluster, server, stores, monkeypatch, groups):
    for number in range(groups):
        deliver(server, stores, promptgroup(f"g{number}", model=f"m{number}", modelAliases=[f"alias-{number}"]))
    deliver(server, stores, promptgroup("support", modelAliases=["alias-7"]))
    assert [other.name for other in cluster.observe(KEY).others] == ["g7"]
    looked = []
    plain = stores["PromptGroup"].list_at
    monkeypatch.setattr(stores["PromptGroup"], "list_at", lambda place: looked.extend(plain(place)) or plain(place))
    cluster.observe(KEY)
    assert {each["metadata"]["name"] for each in looked} <= {"g7", "support"}

from support.writtenkube import KEY, deliver, promptgroup


def test_rivals_are_the_namespaces_groups_of_the_same_model(cluster, server, stores):
    deliver(server, stores, promptgroup("same"))
    deliver(server, stores, promptgroup("other", model="qwen"))
    assert [rival.name for rival in cluster.observe(KEY).siblings] == ["same"]


def test_the_other_groups_are_read_for_a_group_with_aliases_alone(cluster, server, stores):
    deliver(server, stores, promptgroup("same", modelAliases=["x"]))
    assert cluster.observe(KEY).others == ()
    deliver(server, stores, promptgroup("support", modelAliases=["gpt"]))
    (found,) = cluster.observe(KEY).others
    assert (found.name, found.model, found.aliases) == ("same", "llama", ("x",))

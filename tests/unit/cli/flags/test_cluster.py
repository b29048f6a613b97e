import argparse

from promptgroup_cli.flags.cluster import add_namespace, add_router


def test_without_the_flags_the_kubeconfig_and_the_routers_of_the_namespace_decide():
    parser = argparse.ArgumentParser()
    add_namespace(parser)
    add_router(parser)
    assert vars(parser.parse_args([])) == {"namespace": None, "router": None}
    assert vars(parser.parse_args(["-n", "chat", "--router", "http://r:9090"])) == {
        "namespace": "chat",
        "router": "http://r:9090",
    }

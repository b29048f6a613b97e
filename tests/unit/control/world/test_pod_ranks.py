import pytest

from promptgroup_operator.observe.decode import pod_of
from promptgroup_operator.world.pod_ranks import argument_ranks, container_ranks
from promptgroup_operator.world.trimmed import trimmed


@pytest.mark.parametrize(
    ("words", "ranks"),
    [
        ((), 1),
        (("--data-parallel-size=8",), 8),
        (("--data_parallel_size", "4"), 4),
        (("-dp", "2"), 2),
        (("--dp-size=2", "--dp=3"), 3),
        (("--data-parallel-size=8", "--data-parallel-rank=1"), 1),
        (("--data-parallel-size=8", "-dpe"), 1),
        (("--data-parallel-size=many",), 1),
        (("--dp-size=4", "--dp-size=many"), 1),
        (("--data-parallel-size-local=2",), 1),
        (("--data-parallel-size=8", "-dpl", "2"), 8),
        (("--data-parallel-size=8", "--data-parallel-size-local=2", "--data-parallel-hybrid-lb"), 2),
    ],
)
def test_the_ranks_of_a_command_line(words, ranks):
    assert argument_ranks(words) == ranks


@pytest.mark.parametrize(
    "container",
    [{}, {"args": "--data-parallel-size=2"}, {"args": [2, None]}, {"command": {"dp": 2}}, {"args": ["-dp"]}],
)
def test_a_container_of_any_shape_has_ranks(container):
    assert container_ranks(container) == 1


def test_a_command_counts_as_arguments_do():
    assert container_ranks({"command": ["vllm", "serve", "--data-parallel-size=2"], "args": ["--port=1"]}) == 2


@pytest.mark.parametrize(
    ("args", "ranks"), [(["secret-model", "-dp", "3"], 3), (["secret-model"], 1), (["--dp=999"], 256)]
)
def test_a_pod_has_the_ranks_of_its_own_arguments_whatever_is_kept_of_it(args, ranks):
    container = {"name": "engine", "args": args, "ports": [{"name": "http", "containerPort": 8000}]}
    metadata = {"name": "p", "namespace": "chat", "uid": "u", "creationTimestamp": "2026-11-03T11:00:00Z"}
    found = trimmed({"metadata": metadata, "spec": {"containers": [container]}, "status": {"podIP": "10.0.0.1"}}, "Pod")
    assert pod_of(found, 8000).ranks == ranks
    assert "secret-model" not in str(found["spec"])

import pytest

from promptgroup_local.cluster.nodeagent import command

IMAGES = {"web": ("serve", "--host", "{pod_ip}")}


def argv(**fields: object) -> list[str]:
    container = {"name": "c", "image": "web:1", **fields}
    return command.argv(container, IMAGES, "127.64.0.2", {"A": "1"}, {"/data": "/pod/data"})


def test_arguments_follow_the_images_program() -> None:
    assert argv(args=["--a=$(A)", "/data/x"]) == ["serve", "--host", "127.64.0.2", "--a=1", "/pod/data/x"]


def test_a_command_replaces_the_images_program() -> None:
    assert argv(command=["sh", "-c"], args=["cat /data/x"]) == ["sh", "-c", "cat /pod/data/x"]
    assert argv(command=["sh"]) == ["sh"]


def test_an_unknown_image_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(command.ImageMissing, match=r'"nginx" on this node; there are web: .*--images'):
        argv(image="nginx:1")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"containers": [{"name": "a", "readinessProbe": {"httpGet": {}}}]}, ""),
        ({"containers": [], "initContainers": [{"name": "a"}]}, ""),
        ({"containers": [], "initContainers": [{"name": "a", "restartPolicy": "Always"}]}, "sidecar"),
        ({"containers": [{"name": "a", "livenessProbe": {"grpc": {}}}]}, "livenessProbe of container a: grpc"),
    ],
)
def test_what_a_local_node_cannot_do_is_said(spec: dict, said: str) -> None:
    refusal = command.unsupported({"spec": spec})
    assert said in refusal
    assert bool(said) == bool(refusal)


def test_folders_of_two_pods_of_one_name_differ() -> None:
    metadata = {"namespace": "n", "name": "p", "uid": "1"}
    assert command.folder_name(metadata) != command.folder_name({**metadata, "uid": "2"})
    assert "/" not in command.folder_name({**metadata, "uid": "../x"})
    assert command.log_name("n", "p", "c") == "n_p_c.log"

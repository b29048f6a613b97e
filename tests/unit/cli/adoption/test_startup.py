import pytest

from promptgroup_cli.adoption.decision import AdoptionError
from promptgroup_cli.adoption.startup import last, parse, read
from promptgroup_operator.api.prompt_group import EngineType

VLLM, SGLANG = EngineType.VLLM, EngineType.SGLANG


def container(*words, image="example/image:1", args=()):
    return {"image": image, "command": list(words), "args": list(args)}


@pytest.mark.parametrize(
    ("given", "engine", "weights", "port"),
    [
        (container("vllm", "serve", "a/b", "--port", "9000"), VLLM, "a/b", 9000),
        (container("/opt/venv/bin/vllm", "serve", args=["a/b"]), VLLM, "a/b", 8000),
        (container("python3", "-m", "vllm.entrypoints.openai.api_server", args=["--model=a/b"]), VLLM, "a/b", 8000),
        (container(args=["--model", "a/b"], image="vllm/vllm-openai:v1"), VLLM, "a/b", 8000),
        (container(args=["a/b", "--port=9000"], image="vllm/vllm-openai:v1"), VLLM, "a/b", 9000),
        (container("text-generation-launcher", args=["a/b"], image="vllm/vllm-openai:v1"), None, "", 0),
        (container(args=["a/b"], image="quay.io/vllm:v1"), None, "", 0),
        (container("bash", "-lc", args=["exec vllm serve a/b --port 9000"]), VLLM, "a/b", 9000),
        (container("sh", "-c", "vllm serve a/b \\\n  --port=9000"), VLLM, "a/b", 9000),
        (container("python3", "-m", "sglang.launch_server", "--model-path", "/m"), SGLANG, "/m", 30000),
        (container("sglang", "serve", "--model-path=/m"), SGLANG, "/m", 30000),
    ],
)
def test_each_way_to_start_an_engine_is_read(given, engine, weights, port):
    if engine is None:
        with pytest.raises(AdoptionError):
            read(given)
        return
    found = read(given)
    assert (found.engine, found.weights, found.port, found.names) == (engine, weights, port, (weights,))


def test_the_names_of_a_model_are_those_that_it_is_served_as():
    found = read(container("vllm", "serve", "/models/x", "--served-model-name", "x", "gpt", "--seed", "1"))
    assert (found.weights, found.names) == ("/models/x", ("x", "gpt"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (container("sh", "-c", "pip install x && vllm serve a/b"), "more than start the engine"),
        (container("sh", "-c", "vllm serve $MODEL"), "fills variables"),
        (container("sh", "-c", "vllm serve 'a"), "cannot be read"),
        (container("sh", "-c", "x" * 70_000), "more than 65,536 characters"),
        (container("sh"), "starts neither vLLM nor SGLang"),
        (container("vllm", "serve", "--port", "1"), "names no model"),
        (container("text-generation-launcher"), "'text-generation-launcher' starts neither"),
        (container(args=["--model_id=a"], image="kserve/huggingfaceserver:v1"), "below /openai"),
    ],
)
def test_what_is_not_the_plain_start_of_an_engine_is_refused(given, said):
    with pytest.raises(AdoptionError, match=said):
        read(given)


def test_flags_have_the_words_behind_them_and_numbers_may_be_negative():
    positional, flags = parse(["m", "--seed", "-1", "--names", "a", "b", "--max_len=3", "--eager"])
    assert positional == ["m"]
    assert [(flag.name, flag.values) for flag in flags] == [
        ("--seed", ("-1",)), ("--names", ("a", "b")), ("--max-len", ("3",)), ("--eager", ()),
    ]  # fmt: skip
    assert last(flags, "--max-len") == "3"

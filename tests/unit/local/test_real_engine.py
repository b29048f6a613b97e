import pytest

from promptgroup_local.cluster.images import repository
from promptgroup_local.real.engine import chosen
from promptgroup_local.real.sglang import SGLANG
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.api.prompt_group import PromptGroupSpec

BOTH = (VLLM, SGLANG)


def made(folder, engine):
    for part in engine.parts:
        (folder / part).parent.mkdir(parents=True, exist_ok=True)
        (folder / part).touch()
    return folder


@pytest.mark.parametrize("engine", BOTH, ids=lambda each: each.name)
def test_the_command_line_names_one_engine_and_its_folder(tmp_path, engine):
    folder = made(tmp_path, engine)
    assert chosen(BOTH, "make", None, [f"--{engine.name.lower()}={folder}"]) == (engine, folder)


@pytest.mark.parametrize("engine", BOTH, ids=lambda each: each.name)
def test_a_folder_without_the_engine_is_named_with_what_it_lacks(tmp_path, capsys, engine):
    with pytest.raises(SystemExit):
        chosen(BOTH, "make", None, [f"--{engine.name.lower()}={tmp_path}"])
    told = capsys.readouterr().err
    assert f"--{engine.name.lower()} {tmp_path}: there is no {engine.parts[0]}" in told


def test_no_folder_is_not_the_present_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(made(tmp_path, VLLM))
    with pytest.raises(SystemExit):  # `make demo-vllm` without VLLM=
        chosen(BOTH, "make", None, ["--vllm="])
    assert "there is no venv/bin/vllm" in capsys.readouterr().err


@pytest.mark.parametrize("engine", BOTH, ids=lambda each: each.name)
def test_a_group_of_real_engines_is_sound_and_has_what_it_was_given(engine):
    found = engine.group("g", engine.small, {"MORE": "1"}, sizing={"maxReplicas": 2})
    spec = PromptGroupSpec.model_validate(found["spec"])
    assert spec.engine.type is engine.type
    assert tuple(spec.engine.args) == (*engine.args, *engine.small)
    assert (spec.replicas, spec.sizing.max_replicas) == (None, 2)
    (container,) = found["spec"]["engine"]["template"]["spec"]["containers"]
    assert {"name": "MORE", "value": "1"} in container["env"]


@pytest.mark.parametrize("engine", BOTH, ids=lambda each: each.name)
def test_an_engine_beside_no_cluster_is_started_as_in_a_pod(tmp_path, engine):
    command, environment = engine.served(tmp_path, "llama", 8123)
    assert engine.dialect.env.items() <= environment.items()
    assert list(engine.images(tmp_path)) == [repository(engine.image)]
    assert command[:2] == ["bash", "-c"]
    assert f'cd "{tmp_path}"' in command[2]
    assert not any("POD_IP" in word or "pod_ip" in word for word in command)
    assert any("127.0.0.1" in word for word in command)
    assert {"--port=8123", "--served-model-name=llama", *engine.args} <= set(command)


def test_vllm_is_told_its_model_first(tmp_path):
    """With a served name, vLLM 0.32 refuses a flag before it."""
    command, _ = VLLM.served(tmp_path, "llama", 8123)
    program, arguments = command[2], command[4:]
    assert 'vllm serve "$@"' in program
    assert arguments[0] == "./tiny"

import pytest

from promptgroup_local import vllm
from promptgroup_operator.api.prompt_group import PromptGroupSpec


def test_a_folder_without_vllm_is_named_with_what_it_lacks(tmp_path, capsys):
    with pytest.raises(SystemExit):
        vllm.folder("make demo-vllm", None, [f"--vllm={tmp_path}"])
    assert f"--vllm {tmp_path}: there is no venv/bin/vllm" in capsys.readouterr().err


def test_a_group_of_real_engines_is_sound_and_has_what_it_was_given():
    found = vllm.group("g", ["--max-model-len=4096"], {"VLLM_SERVER_DEV_MODE": "1"}, sizing={"maxReplicas": 2})
    spec = PromptGroupSpec.model_validate(found["spec"])
    assert spec.engine.args[-1] == "--max-model-len=4096"
    assert (spec.replicas, spec.sizing.max_replicas) == (None, 2)
    (container,) = found["spec"]["engine"]["template"]["spec"]["containers"]
    assert {"name": "VLLM_SERVER_DEV_MODE", "value": "1"} in container["env"]

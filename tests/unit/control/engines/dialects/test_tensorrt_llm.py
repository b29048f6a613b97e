"""What TensorRT-LLM gets for its tier, and which of a user's settings set one up."""

import pytest

from promptgroup_operator.engines import tiers
from promptgroup_operator.engines.dialects.pod_parts import CONFIG_ANNOTATION, ManualTier
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from support.builders import spec
from support.kvtiers import MEMORY
from support.yamlfiles import document


def manual_tier(annotations):
    template = {"metadata": {"annotations": annotations}}
    return tiers.manual_tier(spec(engine={"type": "TensorRTLLM", "image": "engine", "template": template}).engine)


def test_memory_that_its_file_of_settings_gives_to_kv_is_a_tier():
    made = manual_tier({CONFIG_ANNOTATION: "kv_cache_config: {host_cache_size: 1_073_741_824}"})
    assert made == ManualTier("kv_cache_config.host_cache_size", 2**30)


@pytest.mark.parametrize("annotations", [{CONFIG_ANNOTATION: "kv_cache_config: {host_cache_size: 0}"}, [1]])
def test_what_is_no_tier(annotations):
    assert manual_tier(annotations) is None


def test_tensorrt_llm_is_told_in_its_file():
    made = tiers.parts(spec(cache=MEMORY, engine={"type": "TensorRTLLM"}))
    assert document(made.config) == {"kv_cache_config": {"host_cache_size": 64 << 30}}


def test_one_half_of_a_pair_is_known_by_its_role():
    assert TENSORRT_LLM.split_setting(["--server_role", "CONTEXT"]) == "--server_role CONTEXT"
    assert TENSORRT_LLM.split_setting(["--server_role=generation"]) == "--server_role generation"
    assert TENSORRT_LLM.split_setting(["--max_num_tokens=4096"]) == ""

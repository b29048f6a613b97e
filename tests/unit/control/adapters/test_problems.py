import pytest

from promptgroup_operator.adapters.problems import guest_problem, own_problem
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.vllm import VLLM
from support.builders import spec
from support.guestmodel import guest_spec

ADAPTER = {"name": "tone", "source": {"huggingFace": "example/tone"}}
FOLDER = {"name": "tone", "source": {"folder": "tone/v1"}}
FLAGS = VLLM.adapters.flags


def test_a_group_without_adapters_has_no_problem():
    assert own_problem(spec(engine={"args": ["--enable-lora"]}), 2, None) == ""


@pytest.mark.parametrize(
    ("fields", "ranks", "flags", "expected"),
    [
        ({"adapter": ADAPTER}, 2, FLAGS, ""),
        ({"adapter": ADAPTER}, 1, None, "spec.adapter: spec.engine.type is vLLM"),
        ({"engine": {"adapters": {}}}, 1, None, "spec.engine.adapters: spec.engine.type is vLLM"),
        (
            {"adapter": ADAPTER, "engine": {"args": ["--lora_modules=a=b"]}},
            1,
            FLAGS,
            "--lora-modules in spec.engine.args",
        ),
        (
            {"engine": {"type": "SGLang", "adapters": {}, "args": ["--max-loaded-loras", "9"]}},
            1,
            SGLANG.adapters.flags,
            "--max-loaded-loras in spec.engine.args",
        ),
        ({"engine": {"adapters": {}, "args": ["--lora-target-modules=q_proj"]}}, 1, SGLANG.adapters.flags, ""),
        ({"engine": {"adapters": {}}}, 2, FLAGS, "2 data-parallel ranks"),
    ],
)
def test_what_engines_cannot_do_is_named_with_its_field(fields, ranks, flags, expected):
    found = own_problem(spec(**fields), ranks, flags)
    assert found == expected if not expected else expected in found


@pytest.mark.parametrize(
    ("guest", "engine", "supported", "expected"),
    [
        (guest_spec(), {}, False, ""),
        (guest_spec(adapter=ADAPTER), {"adapters": {}}, True, ""),
        (guest_spec(adapter=FOLDER), {"adapters": {"claimName": "adapters"}}, True, ""),
        (guest_spec(adapter=ADAPTER), {}, False, "has engines of type vLLM"),
        (guest_spec(adapter=ADAPTER), {}, True, "load no adapters: set spec.engine.adapters"),
        (guest_spec(adapter=FOLDER), {"adapters": {}}, True, "has no volume with adapters"),
    ],
)
def test_a_host_that_cannot_load_an_adapter_is_named(guest, engine, supported, expected):
    found = guest_problem("pool", guest, spec(engine=engine).engine, supported=supported)
    assert found == expected if not expected else expected in found
    assert not expected or "PromptGroup pool" in found

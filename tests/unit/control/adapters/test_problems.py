import pytest

from promptgroup_operator.adapters.problems import guest_problem, own_problem
from support.builders import spec
from support.guestmodel import guest_spec

ADAPTER = {"name": "tone", "source": {"huggingFace": "example/tone"}}
FOLDER = {"name": "tone", "source": {"folder": "tone/v1"}}


def test_a_group_without_adapters_has_no_problem():
    assert own_problem(spec(engine={"args": ["--enable-lora"]}), 2, supported=False) == ""


@pytest.mark.parametrize(
    ("fields", "ranks", "supported", "expected"),
    [
        ({"adapter": ADAPTER}, 2, True, ""),
        ({"adapter": ADAPTER}, 1, False, "spec.adapter: spec.engine.type is vLLM"),
        ({"engine": {"adapters": {}}}, 1, False, "spec.engine.adapters: spec.engine.type is vLLM"),
        (
            {"adapter": ADAPTER, "engine": {"args": ["--lora_modules=a=b"]}},
            1,
            True,
            "--lora-modules in spec.engine.args",
        ),
        ({"engine": {"adapters": {}}}, 2, True, "2 data-parallel ranks"),
    ],
)
def test_what_engines_cannot_do_is_named_with_its_field(fields, ranks, supported, expected):
    found = own_problem(spec(**fields), ranks, supported=supported)
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

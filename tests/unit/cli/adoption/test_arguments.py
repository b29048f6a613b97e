import pytest

from promptgroup_cli.adoption.arguments import remaining
from promptgroup_cli.adoption.decision import AdoptionError, Verdict
from promptgroup_cli.adoption.startup import read


def decided(*flags, start=("vllm", "serve", "m")):
    return list(remaining(read({"command": [*start, *flags]})))


def test_what_the_operator_sets_is_left_out_and_all_else_stays_as_it_is():
    found = decided("--host=0.0.0.0", "--port", "9", "--max_model_len", "4096", "--enforce-eager")
    assert [str(flag) for flag, _ in found if flag is not None] == ["--max_model_len 4096", "--enforce-eager"]
    assert [decision.verdict for _, decision in found] == [
        Verdict.LEFT_OUT, Verdict.CHANGED, Verdict.UNCHANGED, Verdict.UNCHANGED,
    ]  # fmt: skip


@pytest.mark.parametrize("flag", ["--no-enable-prefix-caching", "--api-key", "--ssl-certfile", "--shutdown-timeout"])
def test_what_is_left_out_has_a_reason_and_keys_are_not_repeated(flag):
    ((kept_flag, decision),) = decided(flag, "hidden")
    assert kept_flag is None
    assert decision.why
    assert flag != "--api-key" or "hidden" not in str(decision)


def test_a_token_in_plain_text_stays_and_is_told_without_its_value():
    ((flag, decision),) = decided("--hf-token", "hidden")
    assert flag.value == "hidden"
    assert "hidden" not in str(decision)
    assert "plain text" in decision.why


def test_what_needs_a_word_of_care_stays_with_it():
    found = {str(flag): decision.why for flag, decision in decided("--enable-lora", "--kv-offloading-size=8")}
    assert "spec.engine.adapters" in found["--enable-lora"]
    assert "spec.cache" in found["--kv-offloading-size=8"]


@pytest.mark.parametrize(
    "flags",
    [
        ("--nnodes", "2"),
        ("--kv-transfer-config", '{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}'),
    ],
)
def test_a_part_of_an_engine_is_refused(flags):
    with pytest.raises(AdoptionError):
        decided(*flags)


def test_one_node_and_a_connector_to_memory_are_whole_engines():
    assert len(decided("--nnodes", "1", "--kv-transfer-config", '{"kv_connector": "LMCacheConnectorV1"}')) == 2
    assert len(decided("--kv-transfer-config", "no json")) == 1


def test_half_of_sglang_is_refused():
    start = ("python3", "-m", "sglang.launch_server", "--model-path", "m")
    with pytest.raises(AdoptionError, match="one half of a pair"):
        decided("--disaggregation-mode", "prefill", start=start)

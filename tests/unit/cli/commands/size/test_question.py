import json

import pytest

from promptgroup_cli.__main__ import main

LLAMA = {"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
USUAL = {
    "--model": "meta-llama/Llama-3.1-8B-Instruct", "--gpu": "H100-80GB", "--prompt-tokens": "3000",
    "--turn-tokens": "100", "--answer-tokens": "200", "--sessions": "2000", "--rate": "100",
}  # fmt: skip


@pytest.fixture
def size(command):
    """Runs the command with flags changed (None leaves one out); returns (status, standard output, standard error)."""

    def run(**changed):
        flags = {**USUAL, **{f"--{name.replace('_', '-')}": value for name, value in changed.items()}}
        words = [str(word) for flag, value in flags.items() if value is not None for word in (flag, value)]
        return command("size", *words, exits=True)

    return run


def sized(outcome):
    status, out, _ = outcome
    assert status == 0
    return json.loads(out)


def test_help_shows_an_example_that_runs(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["promptgroup", "size", "--help"])
    with pytest.raises(SystemExit):
        main()
    example = capsys.readouterr().out.split("examples:")[1].partition("exit status")[0].replace("\\\n", " ").split()
    monkeypatch.setattr("sys.argv", example)
    assert main() == 0
    assert "Replicas: " in capsys.readouterr().out


def test_a_table_or_json(size):
    _, text, _ = size()
    document = sized(size(output="json"))
    assert f"Replicas:     {document['replicas']} " in text
    assert document["kv"]["bytesPerToken"] == 131_072


def test_half_the_kv_type_is_twice_the_tokens(size):
    whole, half = (sized(size(output="json", kv_dtype=dtype))["kv"] for dtype in ("auto", "fp8"))
    assert half["bytesPerToken"] * 2 == whole["bytesPerToken"]
    assert half["tokensPerReplica"] == pytest.approx(2 * whole["tokensPerReplica"], abs=1)


def test_a_config_of_its_own(size, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA))
    named = sized(size(output="json"))
    own = sized(size(output="json", model=None, config=config, parameters="8.03B"))
    assert own["expected"] == named["expected"]
    assert any("2 bytes per parameter" in each for each in own["assumed"])
    lighter = sized(size(output="json", model=None, config=config, parameters="8.03B", weights_gb=8))
    assert lighter["kv"]["tokensPerReplica"] > own["kv"]["tokensPerReplica"]
    assert not any("2 bytes per parameter" in each for each in lighter["assumed"])


def test_a_prompt_file_is_counted_by_its_bytes(size, tmp_path):
    prompt = tmp_path / "prompt.md"
    prompt.write_text("x" * 12_001)
    found = sized(size(output="json", prompt_tokens=None, prompt_file=prompt))
    assert found["workload"]["promptTokens"] == 3001
    assert any("--prompt-tokens" in each for each in found["assumed"])


def test_what_is_said_is_not_assumed(size):
    found = sized(size(output="json", history_tokens=500, prefill_rate=10_000, kv_tokens=420_000))
    assert found["workload"]["historyTokens"] == 500
    assert found["prefillTokensPerSecond"] == 10_000
    assert found["kv"]["tokensPerReplica"] == 420_000
    assert found["kv"]["asComputed"] is True
    assert len(found["assumed"]) == 1


def test_a_report_that_does_not_fit_the_model_is_said(size):
    assert "with --kv-cache-dtype=fp8" in " ".join(size(kv_tokens=850_000)[1].split())


def test_tiers_and_a_trace_are_compared(size, tmp_path):
    trace = tmp_path / "trace.jsonl"
    line = json.dumps({"timestamp": 0, "input_length": 1024, "output_length": 5, "hash_ids": [1, 2]})
    trace.write_text(f"{line}\n{line}\n")
    document = sized(size(output="json", tier="dram=64GiB", trace=trace, gpu_hour=2))
    assert [row["kind"] for row in document["tiers"]] == ["gpu", "dram"]
    assert [row["tracedHitRate"] for row in document["tiers"]] == [round(1023 / 2048, 4)] * 2
    assert document["tiers"][0]["pricePerHour"] == 2 * document["replicas"]
    assert document["kvPool"] is None
    assert "tiers copy at the rates" in document["assumed"][-1]
    measured = sized(size(output="json", tier="dram=64GiB,50GB/s,1ms"))
    assert not any("tiers copy" in each for each in measured["assumed"])


@pytest.fixture
def measured(tmp_path):
    """Writes what `promptgroup probe -o json` printed; returns the file."""

    def write(error=0.05, between=(8500, 9400), tier_error=0.1):
        rates = {"tokensPerSecond": 400_000, "between": [350_000, 420_000]}
        path = tmp_path / "measured.json"
        told = {"prefillTokensPerSecond": 9000, "prefillBetween": between, "error": error}
        path.write_text(json.dumps(told | {"tier": {**rates, "latencySeconds": 0.02, "error": tier_error}}))
        return path

    return write


def test_what_was_measured_is_used_and_says_how_sure_it_is(size, measured):
    found = sized(size(output="json", measured=measured(), tier="dram=64GiB"))
    assert found["prefillTokensPerSecond"] == 9000
    assert found["measured"] == [
        {"figure": "prefill", "tokensPerSecond": 9000, "between": [8500, 9400], "error": 0.05},
        {"figure": "tier", "tokensPerSecond": 400_000, "between": [350_000, 420_000], "error": 0.1},
    ]
    lowest = found["sensitivity"][-1]
    assert lowest["case"] == "the lowest measured prefill rate"
    assert lowest["expected"]["ttftP95"] > found["expected"]["ttftP95"]
    text = " ".join(size(measured=measured())[1].split())
    sure = "8,500 to 9,400 tokens/s if one length is left out, requests are within 5% of the line"
    assert f"Measured: prefill at 9,000 tokens/s: {sure}" in text
    assert "tier at" not in text


DOUBTFUL = {
    "far from the line": {"error": 0.26},
    "a wide range": {"between": (6000, 9001)},
    "without a highest rate": {"between": (9000, None)},
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_a_rate_that_is_not_to_be_trusted_is_refused_where_it_is_used(size, measured, case):
    status, _, errors = size(measured=measured(**DOUBTFUL[case]))
    assert status == 2
    assert "the rate of its prefill is not to be trusted: " in errors
    assert "set --prefill-rate" in errors
    own = sized(size(output="json", measured=measured(**DOUBTFUL[case]), prefill_rate=7000))
    assert (own["prefillTokensPerSecond"], own["measured"]) == (7000, [])


def test_a_rate_that_is_just_good_enough_is_used(size, measured):
    found = sized(size(output="json", measured=measured(error=0.25, between=(6000, 9000))))
    assert found["prefillTokensPerSecond"] == 9000


def test_a_tier_that_is_not_to_be_trusted_is_refused_where_it_is_used(size, measured):
    status, _, errors = size(measured=measured(tier_error=0.5), tier="dram=64GiB")
    assert status == 2
    assert "the rate of its tier is not to be trusted" in errors
    assert size(measured=measured(tier_error=0.5), tier="dram=64GiB,50GB/s,1ms")[0] == 0
    assert size(measured=measured(tier_error=0.5))[0] == 0


def test_a_file_that_does_not_tell_its_error_is_refused(size, measured):
    status, _, errors = size(measured=measured(error=None))
    assert status == 2
    assert "a fit has no error" in errors


def test_a_tier_and_a_trace_that_are_wrong_are_named(size, tmp_path):
    status, _, errors = size(tier="tape=1TB")
    assert status == 2
    assert "argument --tier: 'tape' is not a kind of tier" in errors
    status, _, errors = size(trace=tmp_path / "nowhere.jsonl")
    assert status == 2
    assert "nowhere.jsonl: there is no such file in " in errors


@pytest.mark.heavy
def test_a_target_that_no_number_keeps_is_a_failure(size):
    status, out, _ = size(ttft="5ms")
    assert status == 1
    assert "no number up to 512 keeps the target" in out


REFUSALS = {
    "unknown model": ({"model": "acme/house"}, "--model acme/house: not a known model", "--config"),
    "unknown gpu": ({"gpu": "TPU"}, "--gpu TPU: not a known GPU; name one of", "H100-80GB"),
    "gpu of two sizes": ({"gpu": "A100"}, "--gpu A100: not a known GPU; name one of A100-40GB, A100-80GB", ""),
    "weights too large": ({"model": "meta-llama/Llama-3.1-70B"}, "141 GB of weights leave no room", "raise --tp"),
    "uneven heads": ({"tp": 3}, "--tp 3: 8 KV heads cannot be split evenly", "divisor"),
    "request too long": ({"history_tokens": 500_000}, "a request holds 503,300 tokens of KV", "--history-tokens"),
    "rate beyond sessions": ({"sessions": 10}, "--rate 100 --sessions 10: an answer takes 1.4 s", "137 sessions"),
    "no number": ({"rate": "fast"}, "argument --rate: 'fast' is not a number", ""),
    "no positive number": ({"turn_tokens": 0}, "argument --turn-tokens: 0 is not above 0", ""),
    "not a whole number": ({"tp": "1.5"}, "argument --tp: '1.5' is not a whole number", ""),
    "infinite": ({"sessions": "inf"}, "argument --sessions: 'inf' is not a number", ""),
    "no duration": ({"ttft": "300"}, "argument --ttft: '300' is no duration", "300ms"),
    "no time": ({"ttft": "0s"}, "argument --ttft: 0s is not above 0", ""),
    "no share": ({"gpu_memory_utilization": 92}, "92 is above 1", "0.92"),
    "no prompt": ({"prompt_tokens": None}, "--prompt-tokens --prompt-file is required", ""),
    "no prompt file": (
        {"prompt_tokens": None, "prompt_file": "/nowhere"},
        "--prompt-file /nowhere: ",
        "there is no such file in /",
    ),
    "no config": (
        {"model": None, "config": "/nowhere", "parameters": "8B"},
        "--config /nowhere: ",
        "no such file in /",
    ),
    "no parameters": ({"model": None, "config": "/nowhere"}, "add --parameters, as in 8B", ""),
    "parameters in words": ({"parameters": "eight"}, "argument --parameters: 'eight' is not a number", "70.6B"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_wrong_flag_is_named_with_its_value_and_a_way_out(size, case):
    changed, message, way_out = REFUSALS[case]
    status, out, errors = size(**changed)
    assert status == 2
    assert not out
    assert message in errors
    assert way_out in errors


@pytest.mark.parametrize("content", ["[]", "{", "{}", json.dumps({**LLAMA, "index_head_dim": 128})])
def test_a_config_that_does_not_say_enough_is_refused(size, tmp_path, content):
    config = tmp_path / "config.json"
    config.write_text(content)
    status, _, errors = size(model=None, config=config, parameters="8B")
    assert status == 2
    assert f"--config {config}: " in errors


def test_sessions_of_the_greatest_length_are_told_beside_the_working_set(size):
    document = sized(size(output="json", max_model_len=32768))
    longest = document["maxModelLen"]
    assert longest["tokens"] == 32768
    assert longest["sessionsPerReplica"] == (document["kv"]["tokensPerReplica"] - 3000) // (32768 - 3000)
    assert longest["workingSetTokens"] == 2000 * (32768 - 3000)
    assert "sessions of max_model_len 32,768 beside the prompt" in size(max_model_len=32768)[1]
    assert sized(size(output="json"))["maxModelLen"] is None


@pytest.mark.parametrize(("length", "said"), [("3100", "engines refuse longer ones"), ("900000", "does not start so")])
def test_a_greatest_length_that_the_load_or_the_cache_exceeds_is_refused(size, length, said):
    status, _, error = size(max_model_len=length)
    assert status == 2
    assert said in error


def test_prompts_of_guests_take_the_room_of_sessions(size):
    alone, crowded = sized(size(output="json")), sized(size(output="json", prompts=40))
    assert (alone["workload"]["prompts"], crowded["workload"]["prompts"]) == (1, 40)
    assert crowded["kv"]["tokensPerReplica"] == alone["kv"]["tokensPerReplica"]
    assert crowded["expected"]["kvUse"] > alone["expected"]["kvUse"]
    text = " ".join(size(prompts=100)[1].split())
    assert "100 of them take 300,000 tokens of each replica" in text
    assert "leaves sessions too little (PromptsOutgrowCache)" in text


def test_prompts_that_fill_the_cache_are_refused(size):
    status, _, error = size(prompts=1000)
    assert status == 2
    assert "--prompts 1000: 3,000,000 tokens of prompts leave no room" in error

from pathlib import Path

import pytest

from promptgroup_local.engine.flags import POOL_BLOCKS, FlagError, Speech, knobs, parse


def test_the_arguments_of_a_vllm_deployment_are_understood() -> None:
    names = ["meta/llama", "--served-model-name", "a", "b", "--host", "127.0.0.1", "--port=9000"]
    cache = ["--block-size", "32", "--num-gpu-blocks-override=100", "--no-enable-prefix-caching"]
    rest = ["--enable-prompt-tokens-details", "--max_model_len=2k", "--max-num-seqs", "8"]
    flags = parse([*names, *cache, *rest])
    assert (flags.model, flags.served_names, flags.host, flags.port) == ("meta/llama", ("a", "b"), "127.0.0.1", 9000)
    assert (flags.block_size, flags.blocks, flags.max_model_len, flags.limits.requests) == (32, 100, 2000, 8)
    assert (flags.prefix_caching, flags.prompt_tokens_details, flags.unknown) == (False, True, ())


def test_the_defaults_are_those_of_vllm() -> None:
    flags = parse(["m"])
    assert (flags.served_names, flags.port, flags.block_size, flags.blocks) == (("m",), 8000, 16, 25_000)
    assert (flags.prefix_caching, flags.prompt_tokens_details) == (True, False)
    assert (flags.limits.tokens, flags.limits.requests, flags.max_model_len) == (8192, 256, 131_072)
    assert parse(["--model", "m", "--num-gpu-blocks-override", "10"]).max_model_len == 160


def test_flags_that_mean_nothing_here_are_skipped_with_their_values_and_named_without() -> None:
    flags = parse(["m", "--api-key", "secret", "--dtype=half", "-O", "2", "--trust_remote_code", "--port", "9"])
    assert flags.unknown == ("--api-key", "--dtype", "-O", "--trust-remote-code")
    assert flags.port == 9


def test_only_the_first_node_of_a_replica_serves() -> None:
    nodes = ["--nnodes=2", "--master-addr=leader"]
    assert not parse(["m", "-tp", "2", *nodes, "--node-rank=0"]).headless
    assert parse(["m", "-tp", "2", *nodes, "--node-rank=1", "--headless"]).headless
    sglang = ["python3", "-m", "sglang.launch_server", "--model-path", "m", "--tp=2", "--nnodes", "2"]
    assert not parse([*sglang, "--node-rank", "0"]).headless
    assert parse([*sglang, "--node-rank", "1"]).headless


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "9"], "MODEL is missing"),
        (["--trust-remote-code", "m"], "before the first flag"),
        (["m", "--max-model-len", "32k", "--num-gpu-blocks-override=100"], "more than the 1600 tokens"),
        (["m", "--nnodes=2"], "--nnodes is 2, and must evenly divide"),
        (["m", "--nnodes=2", "-tp=3"], "must evenly divide"),
    ],
)
def test_a_command_line_that_cannot_be_used_says_why(argv: list[str], message: str) -> None:
    with pytest.raises(FlagError, match=message):
        parse(argv)


def test_a_size_that_is_no_whole_number_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["m", "--block-size", "0"])
    assert "'0' is no whole number from 1" in capsys.readouterr().err


def test_own_knobs_come_from_the_environment() -> None:
    assert knobs({}) == knobs({"STANDIN_STEP_MS": "7", "OTHER": "x"})
    settings = knobs({"STANDIN_STEP_MS": "10", "STANDIN_TIME_SCALE": "0", "STANDIN_ERROR_RATE": "0.5"})
    assert (settings.cost.step, settings.time_scale, settings.error_rate) == (0.01, 0, 0.5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("STANDIN_STEP_MS", "fast"),
        ("STANDIN_STEP_MS", "nan"),
        ("STANDIN_STEP_MS", "-1"),
        ("STANDIN_ERROR_RATE", "1.1"),
        ("STANDIN_PREFILL_TOKENS_PER_SECOND", "0"),
    ],
)
def test_a_knob_that_cannot_be_used_is_named(name: str, value: str) -> None:
    with pytest.raises(FlagError, match=f"{name} is '{value}', expected a number"):
        knobs({name: value})


SGLANG = ["python3", "-m", "sglang.launch_server", "--model-path", "meta/llama"]


def test_the_arguments_of_an_sglang_deployment_are_understood() -> None:
    own = ["--host=127.0.0.9", "--port=8000", "--enable-cache-report", "--enable-metrics", "--disable-radix-cache"]
    sizes = ["--page-size=64", "--max-total-tokens=6400", "--context-length", "2048", "--max-running-requests=8"]
    flags = parse(["--host", "127.0.0.2", *SGLANG, *own, *sizes, "--chunked-prefill-size=1024", "--ep=2"])
    assert (flags.speech, flags.model, flags.host, flags.port) == (Speech.SGLANG, "meta/llama", "127.0.0.9", 8000)
    assert (flags.block_size, flags.blocks, flags.max_model_len, flags.limits.requests) == (64, 100, 2048, 8)
    assert (flags.limits.tokens, flags.unknown) == (1024, ("--ep",))
    assert (flags.prefix_caching, flags.prompt_tokens_details, flags.metrics) == (False, True, True)


def test_sglang_reports_nothing_that_it_is_not_asked_for() -> None:
    flags = parse(SGLANG)
    assert (flags.host, flags.port, flags.block_size, flags.blocks) == ("127.0.0.1", 30000, 1, 400_000)
    assert (flags.prefix_caching, flags.prompt_tokens_details, flags.metrics) == (True, False, False)


def test_the_arguments_of_a_tensorrt_llm_deployment_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_text(
        "return_perf_metrics: true\nenable_iter_perf_stats: true\n"
        "kv_cache_config: {enable_block_reuse: false, tokens_per_block: 64, max_tokens: 6400}\n"
    )
    own = ["--host=127.0.0.9", f"--extra_llm_api_options={file}", "--max_num_tokens=1024", "--max_batch_size=8"]
    flags = parse(["trtllm-serve", "meta/llama", *own, "--max_seq_len", "2048"])
    assert (flags.speech, flags.model, flags.host) == (Speech.TENSORRT_LLM, "meta/llama", "127.0.0.9")
    assert (flags.block_size, flags.blocks, flags.max_model_len, flags.limits.requests) == (64, 100, 2048, 8)
    assert (flags.limits.tokens, flags.prefix_caching, flags.prompt_tokens_details, flags.metrics) == (
        *(1024, False, True),
        True,
    )


def test_tensorrt_llm_serves_no_metrics_unless_its_file_says_so(tmp_path: Path) -> None:
    assert parse(["trtllm-serve", "m"]).metrics is False
    (tmp_path / "x").write_text("return_perf_metrics: true\n")
    assert parse(["trtllm-serve", "m", "--config", str(tmp_path / "x")]).metrics is False


@pytest.mark.parametrize("text", [None, "- 1", "a: b: c", "kv_cache_config: 1"])
def test_a_file_of_settings_that_cannot_be_used_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "engine.yaml").write_text(text)
    with pytest.raises(FlagError, match=r"--config .*engine\.yaml: "):
        parse(["trtllm-serve", "m", f"--config={tmp_path}/engine.yaml"])


@pytest.mark.parametrize(
    ("argv", "blocks", "source"),
    [
        (["m"], 0, "host"),
        (["m", "--kv-offloading-size=2"], 1024, "host"),
        (
            ["m", '--kv-transfer-config={"kv_connector_extra_config":{"cpu_bytes_to_use":1073741824}}'],
            512,
            "host",
        ),
        (["m", '--kv-transfer-config={"kv_connector":"LMCacheMPConnector"}'], POOL_BLOCKS, "external_unspecified"),
        (
            [
                "python3",
                "-m",
                "sglang.launch_server",
                "--model-path=m",
                "--page-size=16",
                "--enable-hierarchical-cache",
                "--hicache-size=1",
            ],
            476,
            "host",
        ),
    ],
)
def test_a_tier_holds_what_its_memory_has_room_for(argv: list[str], blocks: int, source: str) -> None:
    flags = parse(argv)
    assert (flags.tier_blocks, flags.tier_source) == (blocks, source)


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_connector_that_is_no_object_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["m", f"--kv-transfer-config={text}"])
    assert "JSON" in capsys.readouterr().err

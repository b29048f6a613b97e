"""Dynamo's frontend with its KV router, over engines that speak OpenAI's API.

    python dynamo_adapter.py --port 8000 --folder /tmp/run --model mix http://127.0.0.1:9001 http://127.0.0.1:9002

It runs in the environment of `ai-dynamo` and imports nothing of this project. Dynamo's router chooses among workers of
its own runtime, so each engine gets one, which forwards requests to the engine over HTTP. Workers register by files and
are called over TCP: neither etcd nor NATS is needed.

The tokenizer has a token for each byte, so a worker gets the messages back from the tokens exactly as they were sent.
Stand-in engines have four bytes a token: a block of the router has four times as many tokens as one of theirs, for the
same text. They publish no events about their caches, so the router predicts what they hold (`--no-router-kv-events`).
"""

import argparse
import asyncio
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

_PR_SET_PDEATHSIG = 1
NAMESPACE = "bench"
BYTES_A_TOKEN = 4
"""Of the stand-in engine's tokenizer."""
BLOCK = 16
"""Tokens of a block of the engine."""
FIRST_BYTE = 4
"""Token of the byte 0; those below mark the parts of a chat."""
MARKS = ("<|bos|>", "<|eos|>", "<|start|>", "<|end|>")
TEMPLATE = (
    "<|bos|>{% for message in messages %}<|start|>{{ message['role'] }}\n{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>{% endif %}"
)
_MESSAGE = re.compile(r"<\|start\|>([a-z]+)\n(.*?)<\|end\|>", re.DOTALL)


def alphabet() -> list[str]:
    """Return the character that stands for each byte in byte-level tokenizers, as GPT-2 has them."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    shown = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [shown[byte] for byte in range(256)]


def write_model(folder: Path, tokens: int = 0) -> None:
    """Write a model's folder: a configuration, and a tokenizer with a token for each byte.

    Args:
        folder: is made where there is none.
        tokens: of the vocabulary at least: those beyond the bytes are words, which prompts are never cut into.
    """
    folder.mkdir(parents=True, exist_ok=True)
    special = [
        {"id": number, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for number, mark in enumerate(MARKS)
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    vocabulary = {mark: number for number, mark in enumerate(MARKS)}
    vocabulary |= {character: FIRST_BYTE + byte for byte, character in enumerate(alphabet())}
    vocabulary |= {f"{number:04x}": number for number in range(len(vocabulary), tokens)}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []},
    }  # fmt: skip
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(vocabulary), "bos_token_id": 0,
        "eos_token_id": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 1,
        "num_hidden_layers": 1, "num_key_value_heads": 1, "max_position_embeddings": 1 << 20,
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": MARKS[0], "eos_token": MARKS[1],
        "add_bos_token": False, "chat_template": TEMPLATE, "model_max_length": 1 << 20,
    }  # fmt: skip
    for name, content in (
        ("tokenizer.json", tokenizer),
        ("config.json", config),
        ("tokenizer_config.json", settings),
        ("generation_config.json", {"bos_token_id": 0, "eos_token_id": 1}),
    ):
        (folder / name).write_text(json.dumps(content))


def text_of(tokens: list[int]) -> str:
    """Return the text of a prompt's tokens, with the marks of the chat template."""
    parts = (MARKS[token].encode() if token < FIRST_BYTE else bytes([token - FIRST_BYTE]) for token in tokens)
    return b"".join(parts).decode("utf-8", "replace")


def messages_of(text: str) -> list[dict[str, str]]:
    """Return the messages from which the chat template made a prompt."""
    return [{"role": role, "content": content} for role, content in _MESSAGE.findall(text)]


def engine_body(request: dict[str, Any], model: str) -> dict[str, Any]:
    """Return the request for an engine that stands for one of Dynamo's."""
    most = (request.get("stop_conditions") or {}).get("max_tokens") or BYTES_A_TOKEN
    return {
        "model": model,
        "messages": messages_of(text_of(request["token_ids"])),
        "max_tokens": max(1, most),
        "ignore_eos": True,
        "stream": True,
    }


async def answer(
    http: aiohttp.ClientSession, url: str, model: str, request: dict[str, Any]
) -> AsyncIterator[dict[str, Any]]:
    """Send a request to an engine, and give its answer as tokens."""
    async with http.post(f"{url}/v1/chat/completions", json=engine_body(request, model)) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            for choice in json.loads(line[len(b"data: ") :]).get("choices") or []:
                text = (choice.get("delta") or {}).get("content")
                if text:
                    yield {"token_ids": [FIRST_BYTE + byte for byte in text.encode()]}
    yield {"token_ids": [], "finish_reason": "length"}


async def serve_engine(http: aiohttp.ClientSession, url: str, model: str, folder: Path) -> None:
    """Have Dynamo know an engine as one of its workers, until the process ends."""
    # only this project's tests import the module without Dynamo
    from dynamo.llm import ModelInput, ModelType, WorkerType, register_model  # noqa: PLC0415
    from dynamo.runtime import DistributedRuntime  # noqa: PLC0415

    runtime = DistributedRuntime(asyncio.get_running_loop(), "file", "tcp", event_plane="zmq")
    endpoint = runtime.endpoint(f"{NAMESPACE}.backend.generate")
    await register_model(
        ModelInput.Tokens, ModelType.Chat, endpoint, str(folder), model, worker_type=WorkerType.Aggregated,
        kv_cache_block_size=BYTES_A_TOKEN * BLOCK, ignore_weights=True,
    )  # fmt: skip

    async def generate(request: dict[str, Any], context: object = None) -> AsyncIterator[dict[str, Any]]:
        async for part in answer(http, url, model, request):
            yield part

    await endpoint.serve_endpoint(generate, graceful_shutdown=False)


async def serve(engines: list[str], model: str, folder: Path) -> None:
    """Serve until the process is ended, or until a worker ends."""
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    async with (
        aiohttp.ClientSession(connector=connector, timeout=timeout) as http,
        asyncio.TaskGroup() as workers,
    ):
        for url in engines:
            workers.create_task(serve_engine(http, url, model, folder))


def start_frontend(port: int) -> None:
    """Start Dynamo's frontend; it ends with this process."""
    flags = [
        "--http-host", "127.0.0.1", "--http-port", str(port), "--namespace", NAMESPACE,
        "--router-mode", "kv", "--no-router-kv-events", "--kv-cache-block-size", str(BYTES_A_TOKEN * BLOCK),
        "--discovery-backend", "file", "--request-plane", "tcp", "--event-plane", "zmq",
    ]  # fmt: skip
    command = [sys.executable, "-m", "dynamo.frontend", *flags]
    subprocess.Popen(command, preexec_fn=_die_with_parent)  # noqa: PLW1509 - one prctl, no lock is taken in it


def _die_with_parent() -> None:
    """Runs in the child before exec: the kernel ends it when its parent ends (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the frontend")
    parser.add_argument("--folder", type=Path, required=True, help="for the tokenizer and the registry of workers")
    parser.add_argument("--model", required=True, help="name of the model")
    parser.add_argument("engines", nargs="+", metavar="URL", help="base URL of an engine")
    given = parser.parse_args()
    os.environ |= {"DYN_FILE_KV": str(given.folder / "dynamo-registry"), "DYN_LOG": "warn", "HF_HUB_OFFLINE": "1"}
    model = given.folder / "dynamo-model"
    write_model(model)
    start_frontend(given.port)
    asyncio.run(serve(given.engines, given.model, model))


if __name__ == "__main__":
    main()

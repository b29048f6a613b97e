"""What engines' tiers have in common: names in stores, releases of images, the gate before an engine."""

import socket
import subprocess
import sys

import pytest

from promptgroup_operator.engines.dialects import pod_parts
from support.builders import spec
from support.kvtiers import VOLUME


@pytest.mark.parametrize(
    "other",
    [
        {"image": "vllm/vllm-openai:v0.33.0"},
        {"args": ["--revision=2"]},
        {"type": "SGLang"},
        {"template": {"metadata": {"labels": {"a": "b"}}}},
    ],
)
def test_kv_of_other_engines_has_another_name(other):
    assert pod_parts.namespace(spec(engine=other)) != pod_parts.namespace(spec())


def test_the_tiers_themselves_do_not_change_the_name():
    assert pod_parts.namespace(spec(cache=VOLUME)) == pod_parts.namespace(spec())


@pytest.mark.heavy
def test_the_gate_waits_for_the_pool_and_says_for_what():
    with socket.socket() as pool:
        pool.bind(("127.0.0.1", 0))
        port = pool.getsockname()[1]
        made = pod_parts.PodParts(awaits=("127.0.0.1", str(port)))
        command = [sys.executable, *made.gate[1:]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as gate:
            assert gate.stdout is not None
            assert f"the pool at 127.0.0.1:{port} is away" in gate.stdout.readline()
            pool.listen()
            assert gate.wait(timeout=30) == 0


@pytest.mark.parametrize(
    ("image", "old"),
    [
        ("example/engine:v1.9.3", True),
        ("registry/example/engine:2.0", False),
        ("example/engine:nightly", False),
        ("example/engine@sha256:" + "0" * 64, False),
        ("example/another:1.0", False),
    ],
)
def test_the_release_of_an_image_is_its_tag(image, old):
    assert bool(pod_parts.too_old(image, "Engine", "example/engine", (2, 0))) is old


def test_an_address_of_ipv6_keeps_its_brackets():
    assert pod_parts.split_address("[fd00::1]:5555") == ("[fd00::1]", "5555")

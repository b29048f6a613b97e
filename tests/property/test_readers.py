"""Readers of JSON and YAML that others wrote: hostile documents cost time and memory in proportion to their size.

docs/security.md lists all readers. The memory that pages of metrics take is here, their time in test_hostile_pages, and
bytes of HTTP are in test_fuzz.
"""

import contextlib
import gc
import json
import time
from pathlib import Path

import orjson
import pytest

from promptgroup_cli.base import bounded_json, bounded_yaml
from promptgroup_contract.table import TableError
from promptgroup_operator.api.model import KeyRef
from promptgroup_operator.base import nesting
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.load import promql, router_metrics
from promptgroup_operator.plan.prompt import _Ref, _tools
from promptgroup_operator.rollout import annotations
from promptgroup_operator.world import engine_facts
from promptgroup_operator.world.trimmed import trimmed
from promptgroup_router.apis import request, structure
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.usage import MessagesTail
from promptgroup_router.base.errors import ApiError
from promptgroup_router.feed import table_file
from promptgroup_router.feed.prompt_routes import Expired, Routes
from support.hostile_pages import NAME, QUERIES, ROUTER, SHAPES
from support.hostiledocuments import DOCUMENTS

SIZES = [1 << 18, pytest.param(1 << 20, marks=pytest.mark.slow)]
SLOWEST = 16.0
"""Most CPU time for a document, in units of what the standard library takes to read as many bytes of small numbers. For
1 MiB that is 30 ms on a machine of 2024, so that a reader ends within half a second."""

EXPECTED = (
    ApiError,
    TableError,
    EngineError,
    Expired,
    bounded_json.JsonError,
    bounded_yaml.YamlError,
    orjson.JSONDecodeError,
)
"""What readers raise of documents that are none of theirs."""


TOOLS = _Ref("Secret", KeyRef(name="prompts", key="tools"), "tools")


def of_api(kind):
    def read(body):
        structure.check(body)
        request.parse(kind, body)

    return read


def of_prometheus(body):
    with contextlib.suppress(ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        promql.parse_result(json.loads(body))


def of_route(body):
    Routes().event("chat", {"type": "ADDED", "object": {"metadata": {"name": "a"}, "spec": orjson.loads(body)}})


def of_usage(body):
    tail = MessagesTail()
    for at in range(0, len(body), 16_384):
        tail.add(body[at : at + 16_384])
    tail.usage()


def of_group(body):
    text = b'{"metadata":{"name":"a","namespace":"b"},"spec":{"model":"m","prompt":' + body + b"}}"
    try:
        found = nesting.parse(text)
    except ValueError:  # as the client of the API server takes it
        return
    trimmed(found, "PromptGroup")


READERS = {
    "a chat request": (of_api(ApiKind.CHAT), 24),
    "a request for a completion": (of_api(ApiKind.TEXT), 24),
    "a message request": (of_api(ApiKind.MESSAGES), 24),
    "a responses request": (of_api(ApiKind.RESPONSES), 24),
    "token counts in passing": (of_usage, 1),
    "a table file": (lambda body: table_file.parse(body, "table.json"), 32),
    "a PromptRoute": (of_route, 32),
    "an answer of Prometheus": (of_prometheus, 32),
    "a PromptGroup": (of_group, 32),
    "tools of a prompt": (lambda body: _tools(TOOLS, body.decode()), 32),
    "an engine's annotation": (lambda body: engine_facts.decode(body.decode()), 32),
    "a revision's annotation": (lambda body: annotations.rolled_back({annotations.ROLLED_BACK: body.decode()}), 32),
    "a file of the command line, as JSON": (bounded_json.parse, 32),
}
"""Reader → what it does with a document, and the most bytes that it takes for each byte of one."""


def cost(read, document):
    """Least CPU time of several tries, in seconds."""
    least = float("inf")
    for _ in range(2):
        began = time.thread_time()
        with contextlib.suppress(*EXPECTED):
            read(document)
        least = min(least, time.thread_time() - began)
    return least


def unit(size):
    return cost(json.loads, DOCUMENTS["numbers"](size))


@pytest.mark.heavy
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_document_costs_no_more_time_than_an_honest_one(reader, size):
    read, honest = READERS[reader][0], unit(size)
    slow = {shape: cost(read, make(size)) / honest for shape, make in DOCUMENTS.items()}
    assert {shape: ratio for shape, ratio in slow.items() if ratio > SLOWEST} == {}


def peak():
    """The most memory that the process touched since the last call, in bytes; more may be reserved."""
    status = Path("/proc/self/status").read_text()
    Path("/proc/self/clear_refs").write_text("5")  # proc(5): begin anew
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) * 1024


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_a_hostile_document_takes_memory_in_proportion_to_its_size(reader):
    read, most = READERS[reader]
    dear = {}
    for shape, make in DOCUMENTS.items():
        document = make(1 << 20)
        gc.collect()
        peak()
        before = peak()
        with contextlib.suppress(*EXPECTED):
            read(document)
        dear[shape] = (peak() - before) / len(document)
    assert {shape: ratio for shape, ratio in dear.items() if ratio > most} == {}


PAGES = {
    "an engine's page": (lambda page: engine_metrics.reading(page, VLLM), NAME),
    "an engine's counters": (lambda page: engine_metrics.reading(page, VLLM), QUERIES),
    "a router's page": (lambda page: router_metrics.parse(page, lambda key: True), ROUTER),
}
"""Reader → what it does with a page of metrics, and the name of a metric that it reads."""


@pytest.mark.slow
@pytest.mark.parametrize("reader", PAGES)
def test_a_hostile_page_of_metrics_takes_less_memory_than_its_own_size_and_some_for_what_is_read(reader):
    read, name = PAGES[reader]
    dear = {}
    for shape, make in SHAPES.items():
        page = make(name, 4 << 20)
        gc.collect()
        peak()
        before = peak()
        with contextlib.suppress(*EXPECTED):
            read(page)
        dear[shape] = peak() - before
    assert {shape: most >> 10 for shape, most in dear.items() if most > 8 << 20} == {}


@pytest.mark.heavy
@pytest.mark.parametrize("size", SIZES)
def test_a_hostile_file_of_yaml_costs_time_in_proportion_to_its_size(size):
    def read(document):
        bounded_yaml.load_all(document.decode())

    # a microsecond a byte, thirty times what JSON takes
    slow = {shape: cost(read, make(size // 32)) / unit(size) for shape, make in DOCUMENTS.items()}
    assert {shape: ratio for shape, ratio in slow.items() if ratio > SLOWEST} == {}

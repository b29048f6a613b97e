"""The hook is run as a pod runs it, against an engine's port."""

import os
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from promptgroup_operator.engines import drain_hook
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import VLLM

BUSY = 'vllm:num_requests_running{engine="0"} 0.0\nvllm:num_requests_running{engine="1"} 1.0\n'
IDLE = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"


def test_vllm_ends_what_came_after_the_last_look_before_it_is_killed():
    (told,) = [arg for arg in VLLM.args if arg.startswith("--shutdown-timeout=")]
    assert 0 < int(told.partition("=")[2]) < drain_hook.END_SECONDS


class Port:
    """A port whose page of metrics is each of these in turn, and then the last one for ever.

    A page may be a text, a status, or what is done with the connection. `health` is the same for any other path.
    """

    def __init__(self, *pages, health=404):
        self.pages, self.looks = list(pages), 0
        self.closing = threading.Event()
        port = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                page = health
                if self.path.endswith("/metrics"):
                    page = port.pages[min(port.looks, len(port.pages) - 1)]
                    port.looks += 1
                if callable(page):
                    page(port, self)
                    return
                self.send_response(200 if isinstance(page, str) else page)
                self.end_headers()
                self.wfile.write(page.encode() if isinstance(page, str) else b"")

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()


def no_answer(port, handler):
    port.closing.wait(60)


def no_http(port, handler):
    handler.wfile.write(b"\x16\x03 garbage\n" * 99)


def words(speech=VLLM, port=8000, *, seconds=300, template=None, least=0, since="/nothing", silent=60):
    parts = drain_hook.pod_parts(speech, "engine", port, seconds, template or {}, tls=False)
    command = parts["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    return [*command[:8], str(least), *command[9:12], str(since), command[13], str(silent)]


def leave(*command, path=None):
    """Seconds until the hook has ended well."""
    began = time.monotonic()
    variables = {"PATH": path if path is not None else os.environ["PATH"], "POD_IP": "127.0.0.1"}
    subprocess.run(["/bin/sh", *command[1:]], check=True, timeout=60, env=variables)
    return time.monotonic() - began


@pytest.mark.slow
def test_a_pod_stays_while_its_engine_answers_and_until_it_says_twice_that_it_does_not():
    with Port(BUSY, IDLE, BUSY, IDLE) as port:
        leave(*words(port=port.server.server_port))
        assert port.looks == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "health"),
    [(BUSY, no_answer), ("", 200), (404, 404), (no_answer, 200), (no_http, "ok"), (500, 404)],
    ids=["busy", "nothing said", "no page", "slow to say it", "garbage", "a fault"],
)
def test_an_engine_that_is_not_known_to_be_idle_keeps_its_whole_time(page, health):
    with Port(page, health=health) as port:
        assert leave(*words(port=port.server.server_port, seconds=6, silent=3)) >= 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "health"),
    [(no_answer, no_answer), (no_http, no_http), (no_answer, 503), ("", 500)],
    ids=["hangs", "garbage", "says that it is broken", "has nothing to say"],
)
def test_an_engine_that_answers_nothing_at_all_is_given_up(page, health):
    with Port(page, health=health) as port:
        assert 3 <= leave(*words(port=port.server.server_port, silent=3)) < 60


@pytest.mark.slow
def test_one_answer_gives_an_engine_all_of_its_patience_again():
    with Port(no_answer, BUSY, no_answer, health=no_answer) as port:
        leave(*words(port=port.server.server_port, silent=6))
        assert port.looks == 4


@pytest.mark.slow
def test_an_engine_whose_gauges_come_with_its_first_request_is_idle_without_them():
    with Port('sglang:http_requests_active{method="GET"} 1.0\n') as port:
        leave(*words(SGLANG, port.server.server_port))
        assert port.looks == 2


@pytest.mark.slow
def test_requests_that_the_scheduler_has_not_seen_count_where_the_engine_says_so():
    page = 'sglang:num_running_reqs 0.0\nsglang:http_requests_active{endpoint="/v1",method="POST"} 1.0\n'
    with Port(page, "sglang:num_running_reqs 0.0\n") as port:
        leave(*words(SGLANG, port.server.server_port))
        assert port.looks == 3


@pytest.mark.slow
def test_an_engine_that_nobody_can_connect_to_runs_nothing():
    with Port(IDLE) as port:
        number = port.server.server_port
    assert leave(*words(port=number)) < 60


@pytest.mark.slow
def test_routers_have_time_to_let_go_of_an_engine_that_is_idle():
    with Port(IDLE) as port:
        assert leave(*words(port=port.server.server_port, least=4)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ago", "least", "most"),
    [(295, 5, 60), (9999, 0, 60), (-9999, 12, 99)],
    ids=["a part of its time is left", "none is left", "a clock that is behind"],
)
def test_a_replica_that_drains_already_has_what_is_left_of_its_time(tmp_path, ago, least, most):
    since = tmp_path / "draining-since"
    since.write_text(time.strftime("%Y-%m-%dT%H:%M:%SZ", (datetime.now(UTC) - timedelta(seconds=ago)).timetuple()))
    with Port(BUSY) as port:
        took = leave(*words(port=port.server.server_port, seconds=300 if ago > 0 else 12, since=since))
    assert least - 1.5 <= took < most


def test_a_pod_finds_since_when_it_drains():
    spec = drain_hook.pod_parts(VLLM, "engine", 8000, 300, {}, tls=False)["spec"]
    (mount,), (volume,) = spec["containers"][0]["volumeMounts"], spec["volumes"]
    (item,) = volume["downwardAPI"]["items"]
    assert item["fieldRef"]["fieldPath"] == "metadata.annotations['promptgroup.dev/draining-since']"
    assert (
        spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][12] == f"{mount['mountPath']}/{item['path']}"
    )
    assert volume["name"] == mount["name"]


@pytest.mark.slow
def test_an_image_without_a_python_serves_for_the_whole_time(tmp_path):
    (tmp_path / "sleep").write_text('#!/bin/sh\necho "$1" >>"${0%/*}/slept"\n')
    (tmp_path / "sleep").chmod(0o755)
    leave(*words(), path=str(tmp_path))
    assert (tmp_path / "slept").read_text() == "300\n"


def test_the_hook_reads_the_page_of_its_engine():
    assert words(TENSORRT_LLM)[7] == "/prometheus/metrics"
    assert "trtllm_num_requests_running" in words(TENSORRT_LLM)[11].split(",")


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [(timedelta(minutes=5), 300), (timedelta(milliseconds=300), 5), (timedelta(seconds=90.2), 91)],
)
def test_the_drain_time_is_in_whole_seconds_and_long_enough_for_routers(timeout, seconds):
    assert drain_hook.drain_seconds(timeout) == seconds


TEMPLATES = {
    "no lifecycle": ({"name": "engine"}, True),
    "another container's": ({"name": "side", "lifecycle": {"preStop": {}}}, True),
    "another hook": ({"name": "engine", "lifecycle": {"postStart": {}}}, True),
    "its own": ({"name": "engine", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}}, False),
    "none": ({"name": "engine", "lifecycle": {"preStop": None}}, False),
    "no lifecycle at all": ({"name": "engine", "lifecycle": None}, False),
    "replaced": ({"name": "engine", "lifecycle": {"$patch": "replace"}}, False),
    "no container": ("engine", True),
}


@pytest.mark.parametrize("case", TEMPLATES)
def test_a_template_with_a_hook_of_its_own_gets_no_second_one(case):
    container, given = TEMPLATES[case]
    parts = drain_hook.pod_parts(VLLM, "engine", 8000, 300, {"spec": {"containers": [container]}}, tls=False)
    assert ("containers" in parts["spec"], "volumes" in parts["spec"]) == (given, given)


@pytest.mark.parametrize("template", [{"spec": None}, {"spec": {"containers": None}}, {}])
def test_a_template_of_another_form_changes_nothing(template):
    assert words(template=template) == words()


def test_a_drain_time_is_read_from_the_hook_that_was_made_with_it():
    made = drain_hook.pod_parts(VLLM, "engine", 8000, 77, {}, tls=False)
    assert drain_hook.hook_seconds(made, "engine") == 77
    assert drain_hook.hook_seconds(made, "side") is None
    assert drain_hook.hook_seconds({"spec": {"containers": [{"name": "engine"}]}}, "engine") is None
    made["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][9] = "x"
    assert drain_hook.hook_seconds(made, "engine") is None

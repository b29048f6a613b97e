"""The vendor-neutral suite of the endpoint-picker protocol, run as anybody would against this project's picker."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from promptgroup_local.ports import free_ports
from promptgroup_router.feed import table_file
from support.envoy import PYTHON, needs_grpc
from support.wire import chat, table_of

pytestmark = [pytest.mark.integration, needs_grpc]
SUITE = Path(__file__).parents[2] / "lab" / "epp-core"


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_the_picker_passes(tmp_path, tls):
    addresses = ["10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"]
    table_file.write(tmp_path / "table.json", table_of(*addresses))
    (tmp_path / "requests.json").write_text(json.dumps({"body": chat(), "endpoints": addresses}))
    port, health, admin = free_ports(3)
    flags = ["--table", str(tmp_path / "table.json"), "--host", "127.0.0.1", "--endpoints", "3"]
    flags += ["--port", str(port), "--health-port", str(health), "--admin-port", str(admin)]
    picker = subprocess.Popen([sys.executable, "-m", "promptgroup_picker", *flags, *([] if tls else ["--plaintext"])])
    try:
        deadline = time.monotonic() + 90
        while not listens(port):
            assert picker.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        env = os.environ | {"EPP_ADDRESS": f"127.0.0.1:{port}", "EPP_REQUESTS": str(tmp_path / "requests.json")}
        env |= {"EPP_TLS": "1"} if tls else {}
        only = ["-k", "header or order or health"] if tls else []
        # an environment of its own: the suite knows nothing of this project's settings
        command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", SUITE]
        done = subprocess.run(
            [*command, *only, SUITE], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert " skipped" not in done.stdout
    finally:
        picker.terminate()
        picker.wait()

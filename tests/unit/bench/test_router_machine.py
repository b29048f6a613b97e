import os
import subprocess
import sys

from bench.router.machine import cpu_seconds, memory_bytes, tree


def test_a_process_counts_with_its_children() -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        while len(tree(parent.pid)) < 2:
            pass
        assert parent.pid in tree(os.getpid())
        assert memory_bytes(parent.pid) > 0
    finally:
        parent.communicate(b"\n")


def test_cpu_time_grows_with_work() -> None:
    before = cpu_seconds(os.getpid())
    while cpu_seconds(os.getpid()) <= before:
        sum(range(100_000))

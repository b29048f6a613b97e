"""Run pytest in several processes, each of which collects only the files that it runs.

    python scripts/run_in_shards.py COUNT [PYTEST ARGUMENT ...] -- FILE ...

The processes of pytest-xdist collect all tests each, and tell another process of every single one. For 9,000 tests of
a few milliseconds that takes longer than the tests. Here the files are dealt out by their size, so one process may end
before the others. The output of the first is shown while it runs, that of the others when they have ended. The exit
status is that of the last process in their order that failed, and 0 if none did.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path


def dealt(files: Sequence[str], count: int) -> list[list[str]]:
    """Return `count` lists with about as many bytes each: the largest file first, each to the list that has least."""
    shards: list[list[str]] = [[] for _ in range(count)]
    held = [0] * count
    for size, name in sorted(((Path(name).stat().st_size, name) for name in files), reverse=True):
        least = held.index(min(held))
        shards[least].append(name)
        held[least] += size
    return [sorted(shard) for shard in shards if shard]


def main(arguments: Sequence[str]) -> int:
    """Run all shards at once."""
    count, *rest = arguments
    split = rest.index("--")
    flags, files = rest[:split], rest[split + 1 :]
    with ExitStack() as exit_stack:
        running = []
        for number, shard in enumerate(dealt(files, int(count))):
            output = exit_stack.enter_context(tempfile.TemporaryFile()) if number else None
            command = [sys.executable, "-m", "pytest", *flags, *shard]
            running.append((subprocess.Popen(command, stdout=output, stderr=output), output))
        failed = 0
        for process, output in running:
            failed = process.wait() or failed
            if output is not None:
                output.seek(0)
                sys.stdout.buffer.write(output.read())
                sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

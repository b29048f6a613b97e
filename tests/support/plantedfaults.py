"""Faults that tests plant into the router, to see that what should find them does.

    PYTHONPATH=tests python -m support.plantedfaults FAULT MODULE ARGUMENTS...

runs MODULE as `python -m` does, in a process whose router has the fault.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import promptgroup_router

ROOT = Path(promptgroup_router.__file__).parent


@dataclass(frozen=True)
class Fault:
    """A change of one module's text."""

    module: str
    """Below `promptgroup_router`."""
    old: str
    new: str


FAULTS = {
    "a paused client's next request begins": Fault(
        "proxy.downstream",
        "while self._phase is ClientPhase.OPEN and not self._writing_paused:",
        "while self._phase is ClientPhase.OPEN:",
    ),
    "a connection is pooled with its request unsent": Fault(
        "proxy.upstream", "if self._unwritten or transport.get_write_buffer_size():", "if False:"
    ),
    "a connection is pooled paused": Fault(
        "proxy.upstream",
        "            self.resume()\n            self._connections.put",
        "            self._connections.put",
    ),
    "a cut answer looks whole": Fault(
        "proxy.client_answer", "visibly=not reported and not self.cut_shows", "visibly=False"
    ),
    "the end of an answer is a close": Fault(
        "proxy.downstream", "self._transport.write_eof()", "self._transport.close()"
    ),
    "a paused client does not pause its engine": Fault(
        "proxy.relay", "        self._paused = True\n        if self._engine is not None:", "        if False:"
    ),
    "bytes behind an answer are overlooked": Fault("http11.reader", "self._surplus = True", "self._surplus = False"),
    "an answer that nobody asked for is overlooked": Fault(
        "proxy.upstream", "self.close()  # an answer that nobody asked for", "pass"
    ),
    "HEAD is answered with a body": Fault("proxy.downstream", 'head.method == b"HEAD"', "False"),
    "HTTP/1.0 gets chunks": Fault(
        "proxy.response", "answer.framing is Framing.CHUNKED and (minor == 0 or rewritten)", "answer.framing is None"
    ),
    "a request that was left stays counted": Fault("decision.life", "self.exchange.abandoned(now)", "pass"),
    "the body of a request that was left is never given back": Fault(
        "proxy.downstream",
        "        self.intake.release_body()\n        if active is not None:",
        "        if active is not None:",
    ),
    "an engine that closes early ends the answer": Fault(
        "proxy.upstream", "if self._reader.ends_by_close and exc is None and self._saw_end:", "if self._reader.begun:"
    ),
}


class Planter(importlib.abc.MetaPathFinder, importlib.abc.SourceLoader):
    """Loads one module with other text; a compiled one from its source."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._name = f"promptgroup_router.{fault.module}"
        self._path = ROOT.joinpath(*fault.module.split(".")).with_suffix(".py")

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self._path))

    def get_filename(self, _: str) -> str:
        return str(self._path)

    def get_data(self, path: str | Path) -> bytes:
        text = Path(path).read_text()
        if text.count(self._fault.old) != 1:
            raise LookupError(f"{self._path} has {self._fault.old!r} not once: mend the fault in plantedfaults.py")
        return text.replace(self._fault.old, self._fault.new).encode()

    def path_stats(self, path):
        raise OSError(path)  # so that no compiled copy on disk is used


def main() -> None:
    name, module, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, Planter(FAULTS[name]))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__")


if __name__ == "__main__":
    main()

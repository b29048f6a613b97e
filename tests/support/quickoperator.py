"""The operator with shorter windows: `python quickoperator.py run ...`.

Readings of a group are half as far apart, and the windows of loads that rest on them half as long (those of Prometheus
a quarter), so that a test of what follows a load waits for less. All else is the operator as it is; tests of the
windows' own lengths, and `test_diagnosis`, run that.
"""

import importlib
import sys
from datetime import timedelta

from promptgroup_operator.world import load

PERIOD = timedelta(seconds=7.5)
"""Time between two readings, of 15 s."""
WINDOW = 4 * PERIOD


def main() -> int:
    """Shorten the windows before any module takes them from where they are defined, then run the operator."""
    load.PERIOD, load.LOAD_WINDOW = PERIOD, WINDOW
    handlers = importlib.import_module("promptgroup_operator.handlers")  # imports all of the operator
    importlib.import_module("promptgroup_operator.load.promql").WINDOW = WINDOW  # type: ignore[attr-defined]
    own = [module for name, module in sys.modules.items() if name.startswith(handlers.__name__.partition(".")[0])]
    for name in ("PERIOD", "LOAD_WINDOW"):
        found = {module.__name__: vars(module)[name] for module in own if name in vars(module)}
        assert set(found.values()) == {vars(load)[name]}, f"{name} was taken before it was shortened: {found}"
    return int(importlib.import_module("promptgroup_operator.__main__").main())


if __name__ == "__main__":
    sys.exit(main())

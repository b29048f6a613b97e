"""Hypothesis for all tests: no deadline, since a busy machine is no fault; how to repeat a failure is printed.

The suite tries the same examples everywhere, so that it says something of the change that it runs for: a tenth of
them in `make check` (`--hypothesis-profile=quick`), all in `make integration`. New ones are looked for with
`--hypothesis-profile=search`.

The garbage collector does not look at what collection leaves: thousands of test items that stay until the end, and that
it would go through again and again, for a twentieth of the time of all.

`make heavy` and `make integration` look for their tests in files that have one of their marks in their text, and in
tests/integration: a mark that comes from elsewhere is refused, since its test would never run.

Where the router is compiled (`make test-compiled`), tests marked `interpreted` are skipped.
"""

import gc
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from promptgroup_router.base import build

INTEGRATION = Path(__file__).parent / "integration"
MARKS = ("slow", "heavy", "integration")
WRITTEN = re.compile(rf"pytest\.mark\.({'|'.join(MARKS)})")
"""What the Makefile looks for."""

# how long a draw takes says more of a busy machine than of what is drawn
ON_BUSY_MACHINES = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("project", print_blob=True, derandomize=True, **ON_BUSY_MACHINES)
settings.register_profile("quick", settings.get_profile("project"), max_examples=25)
settings.register_profile("search", print_blob=True, **ON_BUSY_MACHINES)
settings.load_profile("project")


def pytest_collectstart() -> None:
    """Collect no garbage while modules are imported: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, and only what tests make: what imports dropped is little, and long to look for."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = {each.path for each in items if any(each.get_closest_marker(mark) for mark in MARKS)}
    for path in sorted(each for each in marked if INTEGRATION not in each.parents):
        if not WRITTEN.search(path.read_text()):
            raise pytest.UsageError(f"{path}: write the mark in the file itself, as pytest.mark.NAME: one of {MARKS}")
    if not build.compiled():
        return
    for item in items:
        if item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip(reason="it replaces what is compiled"))

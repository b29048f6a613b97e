"""Hypothesis for all tests: no deadline, since a busy machine is no fault; how to repeat a failure is printed.

The suite tries the same examples everywhere, so that it says something of the change that it runs for: a quarter of
them in `make check` (`--hypothesis-profile=quick`), all in `make integration`. New ones are looked for with
`--hypothesis-profile=search`.

The garbage collector does not look at what collection leaves: thousands of test items that stay until the end, and that
it would go through again and again, for a twentieth of the time of all.

Where the router is compiled (`make test-compiled`), tests marked `interpreted` are skipped.
"""

import gc

import pytest
from hypothesis import settings

from promptgroup_router.base import build

settings.register_profile("project", deadline=None, print_blob=True, derandomize=True)
settings.register_profile("quick", settings.get_profile("project"), max_examples=25)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("project")


def pytest_collectstart() -> None:
    """Collect no garbage while modules are imported: nearly all of it stays."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage from here on, and only what tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not build.compiled():
        return
    for item in items:
        if item.get_closest_marker("interpreted"):
            item.add_marker(pytest.mark.skip(reason="it replaces what is compiled"))

import sys

import pytest

from bench.router.contestants import describe

THIS = f"Python {sys.version.split()[0]} "


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-m", "promptgroup_router"],
        ["env", "LANG=C", sys.executable, "-m", "promptgroup_router", "--port=8080"],
        [sys.executable],
    ],
)
def test_the_build_that_is_measured_is_described_whatever_stands_before_the_interpreter(command) -> None:
    assert describe(command).startswith(THIS)


def test_a_command_that_is_no_python_is_an_unknown_one() -> None:
    assert describe(["true", "-m", "promptgroup_router"]) == "unknown Python"

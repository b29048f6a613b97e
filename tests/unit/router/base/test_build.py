import sys

from promptgroup_router.base import build, metrics


def test_what_runs_is_told_by_the_module_itself():
    assert build.compiled() == (not metrics.__file__.endswith(".py"))
    # a compiled function has no code of Python
    assert build.compiled() == (not hasattr(build.compiled, "__code__"))


def test_the_python_is_the_one_that_runs():
    assert tuple(map(int, build.python().rstrip("+abcr").split(".")[:2])) == sys.version_info[:2]

"""Reports how this router was built: from source, or compiled by mypyc (docs/development/decisions/0019)."""

import platform


def compiled() -> bool:
    """Return True if the data path is compiled, as it is in images and wheels."""
    return not __file__.endswith(".py")


def python() -> str:
    """Return the version of the Python that runs the router, such as `3.13.5`."""
    return platform.python_version()


def about() -> dict[str, object]:
    """Return the version, and whether the data path is compiled, for a log line."""
    return {"python": python(), "compiled": compiled()}

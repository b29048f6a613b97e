"""Compile the router's data path with mypyc, so that a request costs a third less CPU.

    python scripts/compile_router.py FOLDER

Writes extension modules to FOLDER, which is meant to hold the sources too: Python prefers the former and reads the
latter in tracebacks. Needs the router's libraries, mypy, setuptools and a C compiler. The result runs on this version
of Python and this kind of machine only. docs/development/decisions/0019 says why there are two forms.
"""

import os
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "router"
PACKAGE = "promptgroup_router"
FOLDERS = ("apis", "base", "contract", "http11", "peers", "policy", "proxy", "rings", "routing")
"""The folders that a request passes through. The others start the process and follow the table."""


def compile_to(folder: Path) -> None:
    """Compile the modules of FOLDERS."""
    # these are in the environment that compiles, and in no other
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution  # noqa: PLC0415

    os.chdir(SOURCES)  # names of modules are paths from here
    packages = [Path(PACKAGE, "__init__.py"), *(Path(PACKAGE, each, "__init__.py") for each in FOLDERS)]
    modules = sorted(str(path) for each in FOLDERS for path in Path(PACKAGE, each).glob("[!_]*.py"))
    with tempfile.TemporaryDirectory() as work:
        os.environ["MYPY_CACHE_DIR"] = f"{work}/mypy"
        extensions = mypycify(
            ["--config-file=", "--strict", *map(str, packages), *modules],
            only_compile_paths=modules,
            target_dir=f"{work}/c",
            group_name=PACKAGE,
            opt_level="2",
            debug_level="0",
        )
        distribution = Distribution({"name": PACKAGE, "ext_modules": extensions})
        build = distribution.get_command_obj("build_ext")
        build.build_lib, build.build_temp = str(folder), f"{work}/o"
        build.ensure_finalized()
        build.run()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    compile_to(Path(sys.argv[1]).resolve())

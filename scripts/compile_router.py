"""Compile the router's data path with mypyc, so that a request costs a third less CPU.

    python scripts/compile_router.py FOLDER [WORKLOAD [ARGUMENT ...]]

Writes extension modules to FOLDER, which is meant to hold the sources too: Python prefers the former and reads the
latter in tracebacks. Needs the router's libraries, mypy, setuptools and a C compiler. The result runs on this version
of Python and this kind of machine only. docs/development/decisions/0019 says why there are two forms.

With a WORKLOAD, a program that sends requests through the router, the C compiler runs twice: it lays the code out by
which ways the workload took through the first result (docs/development/decisions/0072). That takes twice as long.

Two things are told to mypyc that the text does not say, on the lines where they are so that tracebacks stay true:

- mypyc leaves to the interpreter what `dataclass` writes, and such a constructor costs as much as the work of a small
  module. So dataclasses that are not frozen, which are made for every request, have their methods written out.
- mypyc looks every global name up in a dictionary, unless it is Final. So what a module assigns is.
"""

import ast
import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE, CONTRACT = "promptgroup_router", "promptgroup_contract"
SOURCES = {PACKAGE: ROOT / "router" / PACKAGE, CONTRACT: ROOT / "contract" / CONTRACT}
FOLDERS = (
    "access", "apis", "base", "callers", "decision", "documents", "features", "features/isolation",
    "features/resumed_stream", "features/sleeping", "features/stored_responses", "features/tracing", "http11", "peers",
    "placement", "policy", "prefixes", "proxy", "response_cache", "rings", "routing", "undeclared",
)  # fmt: skip
"""The folders that a request passes through. The others start the process and follow the table."""
INTERPRETED = frozenset(
    {
        f"{PACKAGE}/base/core_settings.py",
        f"{PACKAGE}/base/settings.py",
        f"{PACKAGE}/response_cache/points.py",
        f"{PACKAGE}/response_cache/purge.py",
        f"{CONTRACT}/command_line.py",
    }
)
"""Modules of them that stay as they are: what is interpreted has subclasses of their classes (the picker, those of the
settings), and an interpreted class cannot inherit from a compiled one. No request passes through `purge`, whose
dataclass has a default that is made by a factory."""


FLAGS = "-fvisibility=hidden"
"""All modules are one library, whose functions call each other and are called by nobody else."""
COUNTING = ("-fprofile-generate", "-fprofile-update=single")
"""Flags of a build that counts how often each branch is taken; gcc's, which clang takes, too."""
COUNTED = ("-fprofile-partial-training", "-Wno-missing-profile")
"""Flags of a build that knows the counts: what the workload never ran is made as fast as without them, not as small."""
SET_BY_TESTS = frozenset(
    (
        "EXHAUSTED_SECONDS", "HANDSHAKE_SECONDS", "IDLE_SECONDS", "KEY_EVERY_SECONDS", "LIMIT", "LINGER_SECONDS",
        "LIVE_SECONDS", "LOOKUP_EVERY_SECONDS", "LOOKUP_SECONDS", "MOST_BYTES", "MOST_WAITING", "NEW_SECONDS",
        "READ_SECONDS", "REFUSED_CONNECTIONS", "REMEMBERED_TOKENS", "SILENT_SECONDS", "SLICE_SECONDS", "STALL_SECONDS",
        "TURN_SECONDS", "WAIT_SECONDS",
    )
)  # fmt: skip
"""Numbers that stay variables, because tests set them. Others become a part of the code that uses them."""
_MUTABLE = "dataclass(slots=True)"
_CONSTANT = re.compile("_?[A-Z0-9_]+|_?[a-z0-9_]+")


def compile_to(folder: Path, workload: Sequence[str] = ()) -> None:
    """Compile the modules of FOLDERS, and lay them out for a workload if there is one."""
    # these are in the environment that compiles, and in no other
    from mypyc.build import mypycify  # noqa: PLC0415
    from setuptools import Distribution, Extension  # noqa: PLC0415
    from setuptools.command.build_ext import build_ext  # noqa: PLC0415

    class OnAllCores(build_ext):
        """setuptools compiles the files of one extension one after the other: here each core has one at a time."""

        def build_extension(self, ext: Extension) -> None:
            def compiled(source: str) -> list[str]:
                options = {"include_dirs": ext.include_dirs, "extra_postargs": ext.extra_compile_args}
                return self.compiler.compile([source], output_dir=self.build_temp, **options)

            with ThreadPoolExecutor(os.cpu_count()) as cores:
                # large files first, so that none is left alone at the end; linked in the order of their names
                sources = sorted(ext.sources, key=os.path.getsize, reverse=True)
                result = dict(zip(sources, cores.map(compiled, sources), strict=True))
            ext.extra_objects = [name for source in ext.sources for name in result[source]]
            ext.sources = []
            super().build_extension(ext)

    def build(extensions: Sequence[Extension], target: Path, objects: str, flags: Sequence[str]) -> None:
        """Compile and link the C files of extensions with further flags."""
        some = [copy.copy(extension) for extension in extensions]
        for item in some:
            item.extra_compile_args = [*item.extra_compile_args, *flags]
            item.extra_link_args = [*item.extra_link_args, *flags]
        command = OnAllCores(Distribution({"name": PACKAGE, "ext_modules": some}))
        command.build_lib, command.build_temp = str(target), objects
        command.ensure_finalized()
        command.run()

    with tempfile.TemporaryDirectory() as work:
        _copy_sources(Path(work, "src"))
        os.chdir(f"{work}/src")  # names of modules are paths from here
        folders = [Path(CONTRACT), *(Path(PACKAGE, name) for name in FOLDERS)]
        packages = [Path(PACKAGE, "__init__.py"), *(folder / "__init__.py" for folder in folders)]
        modules = sorted({path.as_posix() for folder in folders for path in folder.glob("[!_]*.py")} - INTERPRETED)
        for module in modules:
            text = Path(module).read_text(encoding="utf-8")
            Path(module).write_text(prepared(text), encoding="utf-8")
        os.environ["MYPY_CACHE_DIR"] = f"{work}/mypy"
        # assertions name their file: without the folder's name, which is another in each build
        os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} {FLAGS} -ffile-prefix-map={work}/="
        extensions = mypycify(
            ["--config-file=", "--strict", *map(str, packages), *modules],
            only_compile_paths=modules,
            target_dir=f"{work}/c",
            group_name=PACKAGE,
            multi_file=True,  # two thirds of the work, for a router that is slower by 1 %
            opt_level="2",
            debug_level="0",
        )
        # counts are found again by the name of the object, which is therefore the same in both builds
        objects, counts, flags = f"{work}/o", f"{work}/counts", ()
        if workload:
            counting = Path(work, "counting")
            _copy_sources(counting)
            build(extensions, counting, objects, (*COUNTING, f"-fprofile-dir={counts}"))
            environment = {**os.environ, "PYTHONPATH": str(counting), "PYTHONHASHSEED": "0"}
            subprocess.run([sys.executable, *workload], env=environment, check=True)
            shutil.rmtree(objects)
            flags = (f"-fprofile-use={counts}", *COUNTED)
        build(extensions, folder, objects, flags)


def _copy_sources(folder: Path) -> None:
    """Put the packages beside each other."""
    for name, sources in SOURCES.items():
        shutil.copytree(sources, folder / name, ignore=shutil.ignore_patterns("__pycache__"))


def prepared(text: str) -> str:
    """Return a module with constructors of dataclasses that are not frozen, and with names that are Final."""
    lines, module = text.splitlines(), ast.parse(text)
    for result in module.body:
        if isinstance(result, ast.ClassDef) and [ast.unparse(item) for item in result.decorator_list] == [_MUTABLE]:
            _write_out(result, lines)
        elif isinstance(result, ast.Assign | ast.AnnAssign):
            _make_final(result, lines)
    lines[(module.body[0].end_lineno or 0) - 1] += "; from typing import ClassVar, Final"  # behind its docstring
    return "\n".join(lines) + "\n"


def _make_final(result: ast.Assign | ast.AnnAssign, lines: list[str]) -> None:
    """Make a name Final, unless it is a type, set by tests, or a tuple (mypyc reads some too early)."""
    target = result.target if isinstance(result, ast.AnnAssign) else result.targets[0]
    if isinstance(target, ast.Tuple) and isinstance(result.value, ast.Tuple):
        _make_each_final(target, result.value, lines)
        return
    if not isinstance(target, ast.Name) or not _CONSTANT.fullmatch(target.id) or result.value is None:
        return
    if target.id in SET_BY_TESTS or isinstance(result.value, ast.Tuple):
        return
    if isinstance(result.value, ast.Call) and ast.unparse(result.value.func) in ("TypeVar", "NewType"):
        return
    line, end = result.lineno - 1, target.end_col_offset or 0
    if isinstance(result, ast.Assign):
        lines[line] = f"{lines[line][:end]}: Final{lines[line][end:]}"
    elif "Final" not in ast.unparse(result.annotation):
        begin, stop = result.annotation.col_offset, result.annotation.end_col_offset or 0
        lines[line] = f"{lines[line][:begin]}Final[{lines[line][begin:stop]}]{lines[line][stop:]}"


def _make_each_final(targets: ast.Tuple, values: ast.Tuple, lines: list[str]) -> None:
    """Make the names final that one line gives values."""
    names = [ast.unparse(elt) for elt in targets.elts]
    if SET_BY_TESTS.isdisjoint(names):
        pairs = zip(names, values.elts, strict=True)
        lines[targets.lineno - 1] = "; ".join(f"{name}: Final = {ast.unparse(value)}" for name, value in pairs)
        for line in range(targets.lineno, values.end_lineno or 0):
            lines[line] = ""


def _write_out(result: ast.ClassDef, lines: list[str]) -> None:
    """Put the methods of a dataclass in place of its docstring, and its defaults where its constructor has them."""
    fields = [item for item in result.body if isinstance(item, ast.AnnAssign)]
    names = [ast.unparse(field.target) for field in fields]
    docstring = result.body[0]
    if not isinstance(docstring, ast.Expr) or lines[docstring.end_lineno or 0]:
        sys.exit(f"class {result.name} has no docstring with a blank line behind it, in place of which methods are put")
    copy = f"def __copy__(self) -> '{result.name}': return {result.name}({', '.join(f'self.{name}' for name in names)})"
    lines[result.decorator_list[0].lineno - 1], lines[result.lineno - 1] = lines[result.lineno - 1], f"    {copy}"
    for line in range(docstring.lineno, docstring.end_lineno or 0):
        lines[line] = ""
    parameters = ", ".join(
        f"{name}: {ast.unparse(item.annotation)}" + (f" = {ast.unparse(item.value)}" if item.value is not None else "")
        for name, item in zip(names, fields, strict=True)
    )
    for field in fields:
        for line in range(field.lineno, field.end_lineno or 0):
            lines[line] = ""
        lines[field.lineno - 1] = f"    {ast.unparse(field.target)}: {ast.unparse(field.annotation)}"
    lines[fields[0].lineno - 1] += f"; __match_args__: ClassVar[tuple[str, ...]] = {tuple(names)}"
    assigned = "; ".join(f"self.{name} = {name}" for name in names)
    same = " and ".join(f"self.{name} == other.{name}" for name in names)
    constructor = f"def __init__(self, {parameters}) -> None: {assigned}"
    equal = f"def __eq__(self, other: object) -> bool: return isinstance(other, {result.name}) and {same}"
    lines[docstring.lineno - 1] = f"    {constructor}"
    lines[docstring.end_lineno or 0] = f"    {equal}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    compile_to(Path(sys.argv[1]).resolve(), [*(str(Path(item).resolve()) for item in sys.argv[2:3]), *sys.argv[3:]])

"""Build the archives of the kubectl plugin, one for each platform, and krew's manifest of them.

    python scripts/krew_archive.py --output dist [--platform linux-amd64 ...] [--python 3.13 ...]

An archive holds a launcher and the locked dependencies, from wheels whose hashes are checked. Some of them are compiled
for one Python, so there is a folder for each Python that is supported, as lib/cp313, and lib/any for what they share.
Nothing is compiled here, so one machine builds all platforms, and two builds give the same bytes.
"""

import argparse
import filecmp
import gzip
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = ROOT / "scripts" / "uv"
PLATFORMS = {
    "linux-amd64": "x86_64-manylinux_2_28",
    "linux-arm64": "aarch64-manylinux_2_28",
    "darwin-amd64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}
"""krew's name of a platform → uv's."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
UNUSED = ("aiohttp", "kopf", "uvloop")
"""Dependencies of the two programs that no command imports: with them an archive is half as large again."""
PACKAGES = (
    "contract/promptgroup_contract",
    "cli/promptgroup_cli",
    "operator/promptgroup_operator",
    "router/promptgroup_router",
)

LAUNCHER = """\
#!/usr/bin/env python3
import os
import sys

home = os.path.dirname(os.path.realpath(__file__))
own = os.path.join(home, "lib", "cp%d%d" % sys.version_info[:2])
if not os.path.isdir(own):
    found = sys.version.split()[0]
    sys.stderr.write("kubectl-promptgroup: needs {pythons} as python3 on the PATH, found %s\\n" % found)
    sys.exit(2)
sys.dont_write_bytecode = True
sys.path[:1] = [own, os.path.join(home, "lib", "any")]

from promptgroup_cli.__main__ import main

sys.exit(main())
"""


def build(platform: str, pythons: Sequence[str], archive: Path) -> None:
    """Write one platform's archive.

    Raises:
        subprocess.CalledProcessError: uv found no wheel of a locked dependency.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        locked = folder / "locked.txt"
        prune = [f"--prune={name}" for name in UNUSED]
        _uv("export", "--frozen", "--no-default-groups", "--no-emit-project", *prune, f"--output-file={locked}")
        trees = {f"cp{python.replace('.', '')}": folder / python for python in pythons}
        for python, tree in zip(pythons, trees.values(), strict=True):
            desired = [f"--python-platform={PLATFORMS[platform]}", f"--python-version={python}", f"--target={tree}"]
            _uv("pip", "install", "--no-deps", "--only-binary=:all:", "--require-hashes", *desired, f"-r{locked}")
        content = folder / "content"
        _share(trees, content / "lib")
        for package in PACKAGES:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / package, content / "lib" / "any" / Path(package).name, ignore=ignored)
        described = content / "lib" / "any" / f"promptgroup-{project_version()}.dist-info" / "METADATA"
        described.parent.mkdir()
        described.write_text(f"Metadata-Version: 2.4\nName: promptgroup\nVersion: {project_version()}\n")
        shutil.copy(ROOT / "LICENSE", content)
        launcher = content / "kubectl-promptgroup"
        launcher.write_text(LAUNCHER.replace("{pythons}", f"Python {' or '.join(pythons)}"))
        launcher.chmod(0o755)
        _pack(content, archive)


def project_version() -> str:
    """Return the version that pyproject.toml gives the project."""
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return version


def _uv(*arguments: str) -> None:
    subprocess.run([UV, *arguments, "--quiet"], cwd=ROOT, check=True, timeout=600)


def _share(trees: dict[str, Path], lib: Path) -> None:
    """Move what is the same for each Python to lib/any, the rest to a folder of its own for each."""
    first = next(iter(trees.values()))
    for name, tree in trees.items():
        for entry in sorted(tree.iterdir()):
            if entry.name in {"bin", ".lock"}:
                continue
            shared = all((item / entry.name).exists() and _same(entry, item / entry.name) for item in trees.values())
            if tree is first or not shared:
                target = lib / ("any" if shared and len(trees) > 1 else name) / entry.name
                target.parent.mkdir(parents=True, exist_ok=True)
                (shutil.copytree if entry.is_dir() else shutil.copy)(entry, target)


def _same(one: Path, other: Path) -> bool:
    if one.is_file():
        return other.is_file() and filecmp.cmp(one, other, shallow=False)
    names = {path.relative_to(one) for path in one.rglob("*")}
    return names == {path.relative_to(other) for path in other.rglob("*")} and all(
        filecmp.cmp(one / name, other / name, shallow=False) for name in names if (one / name).is_file()
    )


def _pack(folder: Path, archive: Path) -> None:
    """Write an archive that has the same bytes whenever and by whomever it is made."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
        return info

    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts:
                tar.add(path, arcname=path.relative_to(folder).as_posix(), recursive=False, filter=plain)


URI = re.compile(r'\{\{addURIAndSha "(?P<uri>[^"]+)" \.TagName }}')


def manifest(template: str, version: str, archives: dict[str, str]) -> str:
    """Return krew's manifest.

    Args:
        template: .krew.yaml.
        version: as in 0.1.0.
        archives: name of an archive's file → its SHA-256.

    Raises:
        ValueError: the template names an archive that was not built.
    """

    def filled(result: re.Match[str]) -> str:
        name = result["uri"].rpartition("/")[2]
        if name not in archives:
            raise ValueError(f".krew.yaml names {name}, which was not built: there are {', '.join(archives) or 'none'}")
        return f'uri: {result["uri"]}\n      sha256: "{archives[name]}"'

    return URI.sub(filled, template).replace("{{ .TagName }}", f"v{version}")


def main() -> None:
    """Build what the arguments name; write the manifest if that is every platform."""
    parser = argparse.ArgumentParser(description="Build the archives of the kubectl plugin.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--platform", action="append", choices=PLATFORMS)
    parser.add_argument("--python", action="append", choices=PYTHONS)
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    digests = {}
    for platform in given.platform or PLATFORMS:
        archive = given.output / f"kubectl-promptgroup-{platform}.tar.gz"
        build(platform, given.python or PYTHONS, archive)
        digests[archive.name] = hashlib.sha256(archive.read_bytes()).hexdigest()
        print(f"{digests[archive.name]}  {archive} {archive.stat().st_size >> 20} MiB")
    if len(digests) == len(PLATFORMS):
        text = manifest((ROOT / ".krew.yaml").read_text(), project_version(), digests)
        (given.output / "promptgroup.yaml").write_text(text)


if __name__ == "__main__":
    sys.exit(main())

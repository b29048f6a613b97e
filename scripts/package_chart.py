"""Package the chart for a release: with its version, a registry, and the images by digest.

    python scripts/package_chart.py --registry ghcr.io/NAME --version 1.2.3 \
        --operator-digest D --router-digest D --picker-digest D

Needs `helm` on the PATH. The chart in the working tree is not changed.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "promptgroup"
PROGRAMS = ("operator", "router", "picker")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def with_images(values: str, registry: str, digests: dict[str, str]) -> str:
    """Return the text of values.yaml, comments and all, with other images.

    Args:
        values: the text.
        registry: as in `ghcr.io/name`: what stands before the images' own names.
        digests: program, as in `operator` → digest.

    Raises:
        ValueError: a digest is none, or the text has no place for it.
    """
    for program, digest in digests.items():
        if not DIGEST.fullmatch(digest):
            raise ValueError(f"digest of {program}: {digest!r} is not sha256: and 64 hexadecimal digits")
        values = _set(values, rf"^{program}:\n(?:(?:  .*)?\n)*?    digest: ", f'"{digest}"')
    return _set(values, r"^imageRegistry: ", registry)


def _set(values: str, key: str, value: str) -> str:
    text, times = re.subn(rf"({key})\S+", lambda result: f"{result[1]}{value}", values, count=1, flags=re.MULTILINE)
    if times != 1:
        raise ValueError(f"values.yaml has no {key}")
    return text


def package(version: str, registry: str, digests: dict[str, str], output: Path) -> None:
    """Write promptgroup-VERSION.tgz to a folder."""
    with tempfile.TemporaryDirectory() as made:
        chart = Path(made) / CHART.name
        shutil.copytree(CHART, chart)
        values = chart / "values.yaml"
        values.write_text(with_images(values.read_text(), registry, digests))
        flags = [f"--version={version}", f"--app-version={version}", f"--destination={output}"]
        subprocess.run(["helm", "package", str(chart), *flags], check=True, timeout=120)


def main() -> None:
    """Package what the arguments say."""
    parser = argparse.ArgumentParser(description="Package the chart for a release.")
    parser.add_argument("--registry", required=True)
    parser.add_argument("--version", required=True)
    for program in PROGRAMS:
        parser.add_argument(f"--{program}-digest", required=True)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    digests = {program: getattr(given, f"{program}_digest") for program in PROGRAMS}
    package(given.version, given.registry, digests, given.output)


if __name__ == "__main__":
    sys.exit(main())

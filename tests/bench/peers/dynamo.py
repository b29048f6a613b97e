"""Dynamo's KV router as a contestant: how its packages are installed, and its command line.

`ai-dynamo` depends on `aisimulate`, of which PyPI has a placeholder only; the router does without it, so packages are
named one by one.
"""

import subprocess
import venv
from pathlib import Path

from bench.peers.drive import NAME

PACKAGE, VERSION = "ai-dynamo", "1.6.1"
NEEDS = (f"ai-dynamo-runtime=={VERSION}", "aiohttp", "msgspec", "packaging", "prometheus-client", "pyyaml")
"""Requirements of its frontend, and of the adapter."""
ADAPTER = Path(__file__).parent / "dynamo_adapter.py"
NAMED = "ai-dynamo kv"
"""Of the contestant."""


def command(folder: Path, port: int, run: Path, engines: list[str]) -> list[str]:
    """Return the command line.

    Args:
        folder: the environment with its packages.
        port: the port of its frontend.
        run: a folder for its files.
        engines: base URLs.
    """
    flags = ["--port", str(port), "--folder", str(run), "--model", NAME]
    return [str(folder / "bin" / "python"), "-P", str(ADAPTER), *flags, *engines]


def install(folder: Path) -> None:
    """Have its packages in an environment of their own.

    Raises:
        subprocess.CalledProcessError: pip could not get one; it has said why.
    """
    done = folder / "installed"
    if done.exists():
        return
    venv.create(folder, with_pip=True, clear=True)
    pip = [folder / "bin" / "pip", "install", "--quiet"]
    subprocess.run([*pip, *NEEDS], check=True)
    subprocess.run([*pip, "--no-deps", f"{PACKAGE}=={VERSION}"], check=True)
    done.touch()

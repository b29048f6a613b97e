"""Put the compiled router into a wheel, for this version of Python and this kind of machine (see compile_router.py)."""

import subprocess
import sys
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompiledRouter(BuildHookInterface):
    """A hook of hatchling, which pyproject.toml names and which runs when it is asked for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable installation keeps to its sources."""
        if version == "editable":
            return
        self.folder = TemporaryDirectory()
        subprocess.run([sys.executable, f"{self.root}/scripts/compile_router.py", self.folder.name], check=True)
        build_data["force_include"][self.folder.name] = "/"
        build_data["infer_tag"] = True
        build_data["pure_python"] = False

"""The environment `.venv-envoy`: a real Envoy, and gRPC by its own authors with the stubs of Envoy's API.

It is apart from the one that the tests run in, since those stubs have files of OpenTelemetry's. A test starts a process
of it.
"""

import shutil

import pytest

from promptgroup_local import lab

_FOLDER = lab.ROOT / ".venv-envoy"

ENVOY = shutil.which("envoy", path=str(_FOLDER / "bin")) or shutil.which("envoy")
needs_envoy = pytest.mark.skipif(ENVOY is None, reason="NO ENVOY HERE, so that no gateway is tested: run `make envoy`")

PYTHON = _FOLDER / "bin" / "python"
needs_grpc = pytest.mark.skipif(
    not PYTHON.exists(), reason="NO GRPC HERE, so that the picker's protocol is not tested: run `make envoy`"
)

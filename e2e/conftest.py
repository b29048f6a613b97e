"""Black box: kubectl and HTTP against the cluster that KUBECONFIG names, local, kind or another."""

import os
import shutil
from pathlib import Path

import pytest

from promptgroup_local.kubectl import Kubectl


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    path = os.environ.get("KUBECONFIG")
    if not path or shutil.which("kubectl") is None:
        pytest.skip("no cluster: set KUBECONFIG, or run `make e2e`, which starts a local one")
    return Path(path)


@pytest.fixture
def kubectl(kubeconfig: Path) -> Kubectl:
    return Kubectl(kubeconfig, "e2e")

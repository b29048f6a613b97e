"""What tests of several commands share."""

import pytest

from promptgroup_cli.__main__ import main
from support.rawobjects import kubeconfig
from support.scriptedkube import scripted_kube


@pytest.fixture
def kube(tmp_path, monkeypatch):
    """A scripted API server, which KUBECONFIG names."""
    with scripted_kube(tmp_path) as kube:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(kube, tmp_path)))
        yield kube


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command line: exit status, output and errors; `exits`: also where the parser ends it."""

    def run(*words, exits=False):
        monkeypatch.setattr("sys.argv", ["promptgroup", *words])
        try:
            status = main()
        except SystemExit as ended:
            if not exits:
                raise
            status = ended.code
        return status, *capsys.readouterr()

    return run

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from promptgroup_operator import __main__ as command

KUBECONFIGS = {
    "missing": None,
    "YAML that ends in the middle": "clusters: [\n",
    "a list": "- kind: Config\n",
    "a text": "hello\n",
    "a number": "7\n",
    "empty": "",
    "clusters that are a text": "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters: many\ncontexts: 3\n",
    "a folder": ...,
}


@pytest.mark.parametrize("case", KUBECONFIGS)
def test_run_without_a_usable_kubeconfig_says_so_in_one_line(case, tmp_path, monkeypatch, capsys):
    file, text = tmp_path / "config", KUBECONFIGS[case]
    if text is ...:
        file.mkdir()
    elif text is not None:
        file.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(file))
    monkeypatch.setattr(sys, "argv", ["promptgroup-operator", "run", "--metrics-port=0"])
    assert command.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("promptgroup-operator run: no cluster: ")
    assert said.count("\n") == 1


@pytest.mark.heavy
def test_crd_ends_quietly_when_its_reader_leaves():
    shell = f"set -o pipefail; {sys.executable} -m promptgroup_operator crd | head -n 1"
    found = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, "---\n", "")


def test_crd_to_a_place_that_cannot_be_written_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["promptgroup-operator", "crd", "--output", str(tmp_path / "file" / "below")])
    assert command.main() == 2
    said = capsys.readouterr().err
    assert said.startswith("promptgroup-operator crd: cannot write to --output ")
    assert said.count("\n") == 1


def test_the_version_is_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["promptgroup-operator", "--version"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 0
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    assert capsys.readouterr().out == f"promptgroup-operator {project['version']}\n"


@pytest.mark.heavy
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_crd_to_a_full_disk_says_so_in_one_line():
    command = [sys.executable, "-m", "promptgroup_operator", "crd"]
    with Path("/dev/full").open("w") as full:
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert found.returncode == 2
    assert found.stderr == "promptgroup-operator crd: cannot write the output: No space left on device\n"

import hashlib
import io
import os
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from promptgroup_local.cluster import binaries
from promptgroup_local.cluster.binaries import MissingPrograms

KUBERNETES, ETCD = binaries.version("k8s.io/kubernetes"), binaries.version("go.etcd.io/etcd/server/v3")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no other source."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(binaries, "KUBERNETES_RELEASES", "http://127.0.0.1:9")
    monkeypatch.setattr(binaries, "ETCD_RELEASES", "http://127.0.0.1:9")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    return tmp_path / "cache/promptgroup/kube" / KUBERNETES


@pytest.fixture
def releases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[Path]:
    """A download server with all programs, and where its files lie."""
    folder = tmp_path / "releases"
    kubernetes = folder / KUBERNETES / "bin/linux/amd64"
    kubernetes.mkdir(parents=True)
    for name in binaries.PROGRAMS[1:]:
        (kubernetes / name).write_text(name)
        (kubernetes / f"{name}.sha256").write_text(hashlib.sha256(name.encode()).hexdigest())
    archive = folder / ETCD / f"etcd-{ETCD}-linux-amd64.tar.gz"
    archive.parent.mkdir()
    with tarfile.open(archive, "w:gz") as tar:
        entry = tarfile.TarInfo(f"etcd-{ETCD}-linux-amd64/etcd")
        entry.size = 4
        tar.addfile(entry, io.BytesIO(b"etcd"))
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (archive.parent / "SHA256SUMS").write_text(f"00  other-{archive.name}\n{digest}  {archive.name}\n")
    handler = partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        monkeypatch.setattr(binaries, "KUBERNETES_RELEASES", url)
        monkeypatch.setattr(binaries, "ETCD_RELEASES", url)
        yield folder
        server.shutdown()
        thread.join()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        return


def fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).touch(mode=0o755)
    return folder


def silent(_: str) -> None:
    return


def test_assets_come_first(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assets = fill(tmp_path / "assets", *binaries.PROGRAMS)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    assert binaries.find(silent) == assets


def test_assets_without_kubectl_do_when_it_is_on_the_path(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = fill(tmp_path / "assets", *binaries.PROGRAMS[:-1])
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(assets))
    fill(cache, *binaries.PROGRAMS)
    said: list[str] = []
    assert binaries.find(said.append) == cache
    assert "has no kubectl" in said[0]
    fill(tmp_path / "bin", "kubectl")
    assert binaries.find(silent) == assets
    assert binaries.kubectl(assets) == str(tmp_path / "bin/kubectl")
    assert binaries.kubectl(cache) == str(cache / "kubectl")


def test_a_filled_cache_is_used(cache: Path) -> None:
    fill(cache, *binaries.PROGRAMS)
    assert binaries.find(silent) == cache


def test_releases_are_downloaded_and_checked(releases: Path, cache: Path) -> None:
    assert binaries.find(silent) == cache
    assert {name: (cache / name).read_text() for name in binaries.PROGRAMS} == {
        name: name for name in binaries.PROGRAMS
    }
    assert all(os.access(cache / name, os.X_OK) for name in binaries.PROGRAMS)
    assert {entry.name for entry in cache.iterdir()} == {*binaries.PROGRAMS, ".lock"}


@pytest.mark.parametrize("name", ["kube-scheduler", f"etcd-{ETCD}-linux-amd64.tar.gz"])
def test_a_download_that_is_not_what_was_published_is_refused(releases: Path, cache: Path, name: str) -> None:
    (changed,) = releases.rglob(name)
    changed.write_bytes(changed.read_bytes() + b"x")
    with pytest.raises(MissingPrograms, match=rf"{name}: SHA-256 is \w+, not the published one"):
        binaries.find(silent)
    assert [entry.name for entry in cache.iterdir()] == [".lock"]


def test_with_no_source_at_all_one_line_names_each_way_out(cache: Path) -> None:
    with pytest.raises(MissingPrograms) as caught:
        binaries.find(silent)
    message = str(caught.value)
    assert "\n" not in message
    for way in ("KUBEBUILDER_ASSETS", "dl.k8s.io", "Go 1.26", "no go on PATH", "refused"):
        assert way in message


GO = """#!/bin/sh
echo "$PWD $GOFLAGS $GOTOOLCHAIN $*" >> {log}
while [ "$1" != -o ]; do shift; done
echo built > "$2"
"""


def test_where_nothing_can_be_downloaded_the_programs_are_built(cache: Path, tmp_path: Path) -> None:
    go = tmp_path / "bin/go"
    go.parent.mkdir()
    go.write_text(GO.format(log=tmp_path / "go.log"))
    go.chmod(0o755)
    assert binaries.find(silent) == cache
    assert all((cache / name).read_text() == "built\n" for name in binaries.PROGRAMS)
    calls = (tmp_path / "go.log").read_text().splitlines()
    assert len(calls) == 5
    assert all(call.startswith(f"{binaries.GO_MODULE} -mod=readonly local build") for call in calls)
    assert calls[0].endswith("go.etcd.io/etcd/server/v3")
    assert all(f"gitVersion={KUBERNETES}" in call for call in calls)


def test_a_build_that_fails_says_why(cache: Path, tmp_path: Path) -> None:
    go = tmp_path / "bin/go"
    go.parent.mkdir()
    go.write_text("#!/bin/sh\necho 'no such module' >&2; exit 1\n")
    go.chmod(0o755)
    with pytest.raises(MissingPrograms, match="no such module"):
        binaries.find(silent)


def test_a_cache_that_cannot_be_written_is_named(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(MissingPrograms, match=r"cannot be written .*XDG_CACHE_HOME"):
        binaries.find(silent)

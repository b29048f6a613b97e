"""Where the control plane's programs come from.

The first of these that has them all:

1. KUBEBUILDER_ASSETS, as other projects' tests use it
2. the cache that an earlier run filled
3. the official releases, checked against their published SHA-256
4. built from their Go modules (local/kube), where only a module proxy can be reached
"""

import fcntl
import hashlib
import io
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""What a cluster consists of, and the client to it."""

GO_MODULE = Path(__file__).parents[2] / "kube"
"""Folder of the Go module that pins the programs' sources."""

CONNECT_SECONDS = 5.0
"""Longest wait for a connection to a download server: without a network the next source is tried at once."""
BUILD_SECONDS = 3600.0
"""Longest build: about five minutes on two cores."""

Say = Callable[[str], None]
"""Tells the user what is going on, a line at a time."""


class MissingPrograms(Exception):  # noqa: N818 - names what is the matter, as the one line that users see
    """No source has the programs; the message is one line with each way out."""


def cache() -> Path:
    """The cache's folder for the pinned release."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "promptgroup" / "kube" / version("k8s.io/kubernetes")


def version(module: str) -> str:
    """Release that local/kube/go.mod pins, as in `v1.36.3`."""
    match = re.search(rf"^\t{re.escape(module)} (v[0-9.]+)", (GO_MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise MissingPrograms(f"{GO_MODULE / 'go.mod'} pins no {module}")
    return match[1]


def find(say: Say = print) -> Path:
    """A folder that holds all programs, filled first when need be.

    Raises:
        MissingPrograms: no source has them.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and _complete(Path(assets), kubectl=False):
        return Path(assets)
    folder = cache()
    with _locked(folder):
        if not _complete(folder):
            _fill(folder, say)
    return folder


def kubectl(folder: Path) -> str:
    """The client: the cluster's own release when it is there, else the one on PATH."""
    own = folder / "kubectl"
    return str(own) if own.exists() else shutil.which("kubectl") or "kubectl"


def _complete(folder: Path, *, kubectl: bool = True) -> bool:
    return all(os.access(folder / name, os.X_OK) for name in PROGRAMS if kubectl or name != "kubectl")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process fills the cache, the others wait for it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, say: Say) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        problems = []
        for source in (_download, _build):
            try:
                source(Path(made), say)
            except (OSError, urllib3.exceptions.HTTPError, _Unavailable) as error:
                problems.append(str(error) or type(error).__name__)
                continue
            for name in PROGRAMS:
                (Path(made) / name).chmod(0o755)
                (Path(made) / name).rename(folder / name)
            return
    raise MissingPrograms(
        f"missing: {', '.join(PROGRAMS)}. Point KUBEBUILDER_ASSETS at a folder that has them, or give access to "
        f"dl.k8s.io and github.com, or install Go 1.26 and give access to a Go module proxy ({'; '.join(problems)})"
    )


class _Unavailable(Exception):  # noqa: N818
    """A source that cannot be had on this machine."""


# --- official releases -----------------------------------------------------------------------------------------


def _download(folder: Path, say: Say) -> None:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if platform.system() != "Linux" or architecture is None:
        raise _Unavailable(f"no release for {platform.system()} {platform.machine()}")
    pool = urllib3.PoolManager(
        timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=60), retries=urllib3.Retry(2, connect=0)
    )
    release = f"https://dl.k8s.io/release/{version('k8s.io/kubernetes')}/bin/linux/{architecture}"
    for name in PROGRAMS[1:]:
        say(f"downloading {name} {version('k8s.io/kubernetes')}")
        data = _get(pool, f"{release}/{name}")
        _check(name, data, _get(pool, f"{release}/{name}.sha256").decode())
        (folder / name).write_bytes(data)
    etcd = version("go.etcd.io/etcd/server/v3")
    say(f"downloading etcd {etcd}")
    archive = f"etcd-{etcd}-linux-{architecture}.tar.gz"
    release = f"https://github.com/etcd-io/etcd/releases/download/{etcd}"
    data = _get(pool, f"{release}/{archive}")
    sums = _get(pool, f"{release}/SHA256SUMS").decode()
    _check(archive, data, next((line for line in sums.splitlines() if line.endswith(archive)), ""))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        member = tar.extractfile(f"{archive.removesuffix('.tar.gz')}/etcd")
        if member is None:
            raise _Unavailable(f"{archive} has no etcd")
        (folder / "etcd").write_bytes(member.read())


def _get(pool: urllib3.PoolManager, url: str) -> bytes:
    response = pool.request("GET", url)
    if response.status != 200:
        raise _Unavailable(f"{url}: status {response.status}")
    return response.data


def _check(name: str, data: bytes, published: str) -> None:
    digest = hashlib.sha256(data).hexdigest()
    if published.split()[:1] != [digest]:
        raise _Unavailable(f"{name}: SHA-256 is {digest}, not the published one")


# --- Go modules ------------------------------------------------------------------------------------------------


def _build(folder: Path, say: Say) -> None:
    go = shutil.which("go")
    if go is None:
        raise _Unavailable("no go on PATH")
    release = version("k8s.io/kubernetes")
    minor = release.split(".")[1]
    stamp = " ".join(
        f"-X {package}.gitVersion={release} -X {package}.gitMajor=1 -X {package}.gitMinor={minor}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamp}", "-o", f"{folder}/"]
    say(f"building Kubernetes {release} and etcd from their Go modules: about five minutes, once")
    packages = [f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS[1:]]
    for what in (["go.etcd.io/etcd/server/v3"], packages):
        done = subprocess.run(
            [go, "build", *flags, *what],
            cwd=GO_MODULE, env=environment, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise _Unavailable(f"go build: {done.stderr.strip().splitlines()[-1][:300] if done.stderr.strip() else ''}")
    if (folder / "v3").exists():  # the package's folder names the program
        (folder / "v3").rename(folder / "etcd")
    elif (folder / "server").exists():
        (folder / "server").rename(folder / "etcd")

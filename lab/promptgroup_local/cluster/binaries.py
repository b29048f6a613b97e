"""The sources of the control plane's programs.

The first of these that has them all:

1. KUBEBUILDER_ASSETS, as other projects' tests use it
2. the cache that an earlier run filled
3. the official releases, checked against their published SHA-256
4. built from their Go modules (lab/kube), where only a module proxy can be reached
"""

import fcntl
import hashlib
import http.client
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
"""The programs of a cluster, and the client to it."""

GO_MODULE = Path(__file__).parents[2] / "kube"
"""Folder of the Go module that pins the programs' sources."""

KUBERNETES_RELEASES = "https://dl.k8s.io/release"
ETCD_RELEASES = "https://github.com/etcd-io/etcd/releases/download"
CHUNK = 1 << 20
SILENCE_SECONDS = 10.0
"""Longest silence of a download server: where it cannot be reached the next source is tried soon."""
DOWNLOAD_SECONDS = 1800.0
"""Longest download of one file; the largest has 100 MiB."""
PROGRESS_SECONDS = 5.0
"""Between two lines about a download."""
BUILD_SECONDS = 3600.0
"""Longest build: about five minutes on two cores."""

Say = Callable[[str], None]
"""Reports progress to the user, a line at a time."""


class MissingPrograms(Exception):  # noqa: N818 - names what is the matter, as the one line that users see
    """No source has the programs; the message is one line with each way out."""


def cache() -> Path:
    """The cache's folder for the pinned release."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "promptgroup" / "kube" / version("k8s.io/kubernetes")


def version(module: str) -> str:
    """Release that lab/kube/go.mod pins, as in `v1.36.3`."""
    match = re.search(rf"^\t{re.escape(module)} (v[0-9.]+)", (GO_MODULE / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise MissingPrograms(f"{GO_MODULE / 'go.mod'} pins no {module}")
    return match[1]


def find(say: Say = print) -> Path:
    """A folder that holds all programs, filled first if necessary.

    Raises:
        MissingPrograms: no source has them.
    """
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets:
        missing = _missing(Path(assets))
        if not missing or (missing == ["kubectl"] and shutil.which("kubectl")):
            return Path(assets)
        say(f"KUBEBUILDER_ASSETS={assets} has no {', '.join(missing)}: looking elsewhere")
    folder = cache()
    with _locked(folder):
        if _missing(folder):
            _fill(folder, say)
    return folder


def kubectl(folder: Path) -> str:
    """The client: the cluster's own release when it is there, else the one on PATH."""
    own = folder / "kubectl"
    return str(own) if own.exists() else shutil.which("kubectl") or "kubectl"


def _missing(folder: Path) -> list[str]:
    return [name for name in PROGRAMS if not os.access(folder / name, os.X_OK)]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One process fills the cache, the others wait for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise MissingPrograms(f"the cache cannot be written ({error}): set XDG_CACHE_HOME") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fill(folder: Path, say: Say) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        problems = []
        for source in (_download, _build):
            try:
                source(Path(made), say)
            except (OSError, http.client.HTTPException, tarfile.TarError, _Unavailable) as error:
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
    release = f"{KUBERNETES_RELEASES}/{version('k8s.io/kubernetes')}/bin/linux/{architecture}"
    for name in PROGRAMS[1:]:
        _save(f"{release}/{name}", folder / name, _text(f"{release}/{name}.sha256"), say)
    etcd = version("go.etcd.io/etcd/server/v3")
    archive = f"etcd-{etcd}-linux-{architecture}.tar.gz"
    sums = _text(f"{ETCD_RELEASES}/{etcd}/SHA256SUMS")
    published = next((line for line in sums.splitlines() if line.split()[1:] == [archive]), "")
    _save(f"{ETCD_RELEASES}/{etcd}/{archive}", folder / archive, published, say)
    with tarfile.open(folder / archive) as tar:
        member = tar.extractfile(f"{archive.removesuffix('.tar.gz')}/etcd")
        if member is None:
            raise _Unavailable(f"{archive} has no etcd")
        (folder / "etcd").write_bytes(member.read())


def _open(url: str) -> http.client.HTTPResponse:
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(url, timeout=SILENCE_SECONDS)  # noqa: S310 - ours
    except OSError as error:  # URLError and TimeoutError are such
        raise _Unavailable(f"{url}: {getattr(error, 'reason', None) or error}") from error
    return answer


def _text(url: str) -> str:
    with _open(url) as answer:
        return answer.read(CHUNK).decode()


def _save(url: str, path: Path, published: str, say: Say) -> None:
    """Download a file, checked against the line that publishes its SHA-256."""
    say(f"downloading {url}")
    digest, monotonic, deadline = hashlib.sha256(), time.monotonic(), time.monotonic() + DOWNLOAD_SECONDS
    with _open(url) as answer, path.open("wb") as file:
        while chunk := answer.read(CHUNK):
            digest.update(chunk)
            file.write(chunk)
            if time.monotonic() - monotonic > PROGRESS_SECONDS:
                monotonic = time.monotonic()
                say(f"  {file.tell() >> 20} of {int(answer.headers.get('Content-Length', 0)) >> 20} MiB")
            if time.monotonic() > deadline:
                raise _Unavailable(f"{url}: not downloaded within {DOWNLOAD_SECONDS:.0f} s")
    if published.split()[:1] != [digest.hexdigest()]:
        raise _Unavailable(f"{url}: SHA-256 is {digest.hexdigest()}, not the published one")


# --- Go modules ------------------------------------------------------------------------------------------------


def _build(folder: Path, say: Say) -> None:
    go = shutil.which("go")
    if go is None:
        raise _Unavailable("no go on PATH")
    release = version("k8s.io/kubernetes")
    major, minor = release.removeprefix("v").split(".")[:2]
    stamp = " ".join(
        f"-X {package}.gitVersion={release} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    )
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    say(f"building Kubernetes {release} and etcd from their Go modules: about five minutes on two cores, once")
    packages = {name: f"k8s.io/kubernetes/cmd/{name}" for name in PROGRAMS} | {"etcd": "go.etcd.io/etcd/server/v3"}
    deadline = time.monotonic() + BUILD_SECONDS
    for name, package in packages.items():
        say(f"  {name}")
        flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {stamp}", "-o", str(folder / name)]
        try:
            done = subprocess.run(
                [go, "build", *flags, package],
                cwd=GO_MODULE,
                env=environment,
                capture_output=True,
                text=True,
                timeout=deadline - time.monotonic(),
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _Unavailable(f"go build: not done within {BUILD_SECONDS:.0f} s") from error
        if done.returncode != 0:
            raise _Unavailable(f"go build {package}: {' '.join(done.stderr.split())[-300:]}")

"""The three images, built from a source tree, under tags that name their content."""

import os
from dataclasses import dataclass
from pathlib import Path

from harness.cluster import shell

ROOT = Path(__file__).parents[2]
"""The project's folder."""
REGISTRY = "promptgroup.invalid"
TARGETS = {"operator": "operator", "router": "router", "engine": "standin-engine"}
"""Target of the Dockerfile → name of its image in the manifests."""


@dataclass(frozen=True, slots=True)
class Images:
    """Images of one source tree."""

    tags: dict[str, str]
    """Name without registry → tag."""

    def name(self, image: str) -> str:
        """An image's whole name."""
        return f"{REGISTRY}/{image}:{self.tags[image]}"

    @property
    def names(self) -> list[str]:
        """All whole names."""
        return [self.name(image) for image in self.tags]


def build(source: Path = ROOT) -> Images:
    """Build what a source tree makes; what did not change keeps its tag, so it is not rolled out again.

    The router of this tree is compiled, as releases have it. Others stand beside it for a test, and need not be.
    """
    options = () if source == ROOT else ("--build-arg", "COMPILE=no")
    tags = {}
    for target, image in TARGETS.items():
        shell(
            "docker", "build", "--quiet", *options, "--target", target, "--tag", f"{REGISTRY}/{image}:e2e", str(source)
        )
        [identity] = shell("docker", "image", "inspect", "--format={{.Id}}", f"{REGISTRY}/{image}:e2e").split()
        tags[image] = f"e2e-{identity.removeprefix('sha256:')[:12]}"
        shell("docker", "tag", f"{REGISTRY}/{image}:e2e", f"{REGISTRY}/{image}:{tags[image]}")
    return Images(tags)


def forget() -> None:
    """Take away the tags that name content: a builder that prunes can then free what earlier trees were made of."""
    if tags := shell("docker", "images", "--format={{.Repository}}:{{.Tag}}", f"{REGISTRY}/*:e2e-*").split():
        shell("docker", "rmi", "--no-prune", *tags, check=False)


def build_again() -> dict[str, str]:
    """Build the images of this tree a second time, which shares no layer with the first. Return target → name.

    The router is compiled a second time only where E2E_RECOMPILE is set, as it is each night: that takes three minutes
    of CPU.
    """
    anew = ["--build-arg", "REBUILD=again"]
    if os.environ.get("E2E_RECOMPILE"):
        anew += ["--build-arg", "RECOMPILE=again"]
    again = {target: f"{REGISTRY}/{image}:e2e-again" for target, image in TARGETS.items()}
    for target, name in again.items():
        shell("docker", "build", "--quiet", *anew, "--target", target, "--tag", name, str(ROOT))
    return again

"""What all files use: images of a source tree, and a cluster that has them. Made once, and found by who comes later."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness import cluster as kind
from harness.cluster import Cluster
from harness.images import Images, build


def made(source: Path, *, with_cluster: bool = True) -> tuple[Images, Cluster | None]:
    """Return the images of a source tree, and the cluster: it comes up while they are built, and gets them."""
    with kind.locked("making"), ThreadPoolExecutor(1) as executor:
        creating = executor.submit(kind.create) if with_cluster else None
        images = build(source)
        cluster = creating.result() if creating is not None else None
        if cluster is not None:
            kind.load(cluster, images.names)
            kind.equip(cluster)
    return images, cluster

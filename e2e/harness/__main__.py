"""Make the cluster, and all images that the tests use, before they begin: `make e2e` finds them, and takes less time.

The cluster stays until `make e2e` has ended, or `kind delete cluster --name promptgroup-e2e`.
"""

import tempfile
from pathlib import Path

from harness import before
from harness.cluster import load
from harness.gateway import images_of_gateways
from harness.images import ROOT, build, build_again
from harness.made import made


def main() -> None:
    """Make what is slow first: the router is compiled for the images, and once more for what compares two builds."""
    _, cluster = made(ROOT)
    assert cluster is not None
    images_of_gateways(cluster)
    build_again()
    try:
        with tempfile.TemporaryDirectory() as folder, before.source(Path(folder) / "tree") as source:
            load(cluster, build(source).names)
    except LookupError as error:  # the test of an upgrade is skipped then
        print(error)


if __name__ == "__main__":
    main()

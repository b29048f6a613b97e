"""The sources of engines that are installed read no field of headers or bodies that nobody has judged.

They are looked for in the folders of `make real`, and in those that ENGINE_SOURCES names, with colons between:
folders that have `vllm`, `sglang` or `tensorrt_llm` as `pip download` and `unzip` leave them. Skipped without any.
"""

import os
from pathlib import Path

import pytest

from support import enginefields
from support.engineheaders import JUDGED, NOT_OF_REQUESTS
from support.fieldreads import PLACES, fields_of
from support.headerreads import reads_of

PACKAGES = ("vllm", "sglang", "tensorrt_llm")


def installed() -> list[Path]:
    """Return the folders of the engines' packages that are here."""
    named = [Path(each) for each in os.environ.get("ENGINE_SOURCES", "").split(":") if each]
    kits = [Path(each) for variable in ("VLLM", "SGLANG", "VLLM_POOL") if (each := os.environ.get(variable))]
    places = [*named, *(place for kit in kits for place in kit.glob("*venv/lib/python*/site-packages"))]
    return [place / package for place in places for package in PACKAGES if (place / package).is_dir()]


FOUND = installed()
pytestmark = [
    pytest.mark.real,
    pytest.mark.integration,
    pytest.mark.skipif(not FOUND, reason="ENGINE_SOURCES, VLLM and SGLANG name no folder with an engine's sources"),
]


@pytest.mark.parametrize("package", FOUND, ids=str)
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_every_header_field_that_an_engine_reads_was_judged(package):
    names, unknown = reads_of(package)
    assert "authorization" in names, "the reads of headers are not found any more: engines have another shape"
    assert not names - JUDGED.keys() - NOT_OF_REQUESTS
    assert not unknown


@pytest.mark.parametrize("package", [each for each in FOUND if each.name in PLACES], ids=str)
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_every_field_of_bodies_that_an_engine_reads_was_judged(package):
    fields = fields_of(package)
    assert {"cache_salt", "messages", "priority"} <= fields, "bodies have another shape: their fields are not found"
    assert not fields - enginefields.JUDGED

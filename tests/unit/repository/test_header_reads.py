"""The search for header fields in engines' sources finds each way in which they are read."""

import pytest

from support.headerreads import reads_of

READS = {
    "by get": 'value = raw_request.headers.get("X-Field")',
    "by get with bytes": 'dict(scope["headers"]).get(b"x-field")\nvalue = scope["headers"][b"X-Field"]',
    "by index": 'value = request.headers["x-field"]',
    "by question": 'if "x-field" in request.headers: pass',
    "of a scope": 'value = Headers(scope=scope).get("x-field")',
    "by a constant": 'FIELD = "x-field"\ndef read(self): return self.headers.get(FIELD)',
    "by a constant of another file": "from fields import OTHER\nvalue = headers.get(OTHER)",
    "in a loop": 'FIELDS = ["x-field"] + OWN\ndef read(headers): return {f: headers[f] for f in FIELDS}',
    "in a loop over a table": 'TABLE = {"x-field": ("rid", str)}\nfor f, (a, c) in TABLE.items(): headers.get(f)',
    "as a parameter": 'def serve(field: str = Header(alias="X-Field")): pass',
    "by a text somewhere": 'headers = 1\nread(request, "x-field")',
}


@pytest.mark.parametrize("way", READS)
def test_each_way_of_reading_is_found(tmp_path, way):
    (tmp_path / "serving.py").write_text(READS[way])
    if "OTHER" in READS[way]:
        (tmp_path / "fields.py").write_text('OTHER = "x-field"  # of headers')
    names, unknown = reads_of(tmp_path)
    assert names == {"x-field"}
    assert unknown == set()


def test_a_read_whose_name_only_a_run_tells_is_told_by_its_place(tmp_path):
    (tmp_path / "serving.py").write_text("def read(request, name): return request.headers.get(name)")
    assert reads_of(tmp_path) == (set(), {"serving.py: request.headers.get(name)"})
    (tmp_path / "serving.py").write_text("def serve(x_field: str = Header(None)): pass")
    assert reads_of(tmp_path) == (set(), {"serving.py: Header(None)"})


def test_lists_and_tests_are_no_reads(tmp_path):
    (tmp_path / "table.py").write_text("first, last = headers[0], headers[at + 1:]\nrest = headers[at + 1]")
    (tmp_path / "test_serving.py").write_text('headers["x-field"]')
    assert reads_of(tmp_path) == (set(), set())

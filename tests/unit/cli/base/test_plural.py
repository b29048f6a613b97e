from promptgroup_cli.base.plural import counted


def test_one_has_no_s():
    assert [counted(count, "byte") for count in (0, 1, 2, 1200)] == ["0 bytes", "1 byte", "2 bytes", "1,200 bytes"]

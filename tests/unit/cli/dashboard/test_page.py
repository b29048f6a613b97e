import base64
import hashlib
import re

from promptgroup_cli.dashboard import page

FORBIDDEN = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "Function(",
    "setTimeout('",
    "http://",
    "https://",
)


def text():
    return page.load().body.decode()


def inside(element):
    return re.search(rf"<{element}>(.*)</{element}>", text(), re.DOTALL)[1]


def test_the_page_is_one_document_that_asks_nobody_else():
    assert not re.findall(r"<(?:link|script|img|iframe)[^>]+(?:src|href)=\"(?!data:)", text())
    assert "@import" not in text()
    assert "url(" not in inside("style").replace("url(#hatch)", "")
    assert "/* style */" not in text()
    assert "/* script */" not in text()


def test_its_programs_make_no_markup_from_data():
    program = inside("script").replace("http://www.w3.org/2000/svg", "")
    assert [each for each in FORBIDDEN if each in program] == []
    assert not re.search(r"\son[a-z]+=|javascript:|style=", text())


def test_the_policy_lets_nothing_run_but_what_is_inside():
    policy = dict(each.partition(" ")[::2] for each in page.load().policy.split("; "))
    assert policy["default-src"] == "'none'"
    for directive, element in (("script-src", "script"), ("style-src", "style")):
        digest = base64.b64encode(hashlib.sha256(inside(element).encode()).digest()).decode()
        assert policy[directive] == f"'sha256-{digest}'"
    assert (policy["connect-src"], policy["frame-ancestors"], policy["trusted-types"]) == ("'self'", "'none'", "'none'")


def test_each_id_that_programs_name_is_there_once():
    ids = re.findall(r'\bid="([^"]+)"', text().split("<script>")[0])
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'byId\("([^"]+)"\)', text())) <= set(ids)

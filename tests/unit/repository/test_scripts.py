"""The scripts that check files, run tests and make releases."""

import ast
import errno
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.pathlib import on_rm_rf_error

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
DIGEST = f"sha256:{64 * 'a'}"


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.py", b"x = 1\n", []),
        ("a.py", b"x = 1 \n", ["line 1 has spaces at its end"]),
        ("a.md", b"break  \nhere\n", []),
        ("a.py", b"x = 1", ["does not end with exactly one newline"]),
        ("a.py", b"x = 1\n\n", ["does not end with exactly one newline"]),
        ("a.py", b"x = 1\r\n", ["has carriage returns"]),
        ("a.py", b"<<<<<<< HEAD\n", ["has marks of a merge conflict"]),
        ("a.yaml", b"a: !mark b\n---\nc: d\n", []),
        ("a.py", b"\xff\n", ["is no UTF-8: invalid start byte at byte 0"]),
        ("a.png", b"\xff", []),
        ("a.txt", bytes(2 << 20), ["has 2097152 bytes, more than 1048576", "does not end with exactly one newline"]),
    ],
)
def test_faults_of_files_are_named(name, content, said):
    assert list(script("check_files").problems(name, content)) == said


def test_broken_yaml_is_named():
    (said,) = script("check_files").problems("a.yaml", b"a: [b\n")
    assert said.startswith("is no YAML: ")
    assert "\n" not in said


def test_each_file_is_dealt_to_one_shard_and_shards_are_alike(tmp_path):
    names = []
    for number in range(1, 21):
        path = tmp_path / f"test_{number}.py"
        path.write_bytes(bytes(100 * number))
        names.append(str(path))
    shards = script("run_in_shards").dealt(names, 3)
    assert sorted(name for shard in shards for name in shard) == sorted(names)
    sizes = [sum(Path(name).stat().st_size for name in shard) for shard in shards]
    assert max(sizes) - min(sizes) <= 200
    assert script("run_in_shards").dealt(names[:2], 3) == [[names[1]], [names[0]]]


@pytest.mark.heavy
@pytest.mark.parametrize("failing", [(), (0,), (1,), (0, 1, 2)])
def test_shards_show_all_output_and_fail_when_one_fails(tmp_path, failing):
    for number in range(3):
        text = f"def test_{number}():\n    assert {number not in failing}, 'fault {number}'\n"
        (tmp_path / f"test_{number}.py").write_text(text)
    files = [str(tmp_path / f"test_{number}.py") for number in range(3)]
    command = [sys.executable, str(ROOT / "scripts/run_in_shards.py"), "3", "-q", f"--rootdir={tmp_path}", "--", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == bool(failing), done.stdout
    assert done.stdout.count("1 passed") == 3 - len(failing)
    assert [number for number in range(3) if f"fault {number}" in done.stdout] == list(failing)


CHANGELOG = "# Changelog\n\n## Unreleased\n\n## 0.2.0 - 2026-12-01\n\n### Added\n- One.\n\n## 0.1.0\n- First.\n"


def test_release_notes_are_a_versions_section():
    notes = script("release_notes")
    assert notes.section(CHANGELOG, "0.2.0") == "### Added\n- One."
    assert notes.section(CHANGELOG, "0.1.0") == "- First."


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "Unreleased", "0x2.0"])
def test_a_release_without_a_section_is_refused(version):
    with pytest.raises(ValueError, match="has no section"):
        script("release_notes").section(CHANGELOG, version)


def test_a_tag_of_another_version_is_refused(capsys):
    assert script("release_notes").main(["99.0.0"]) == 2
    assert "pyproject.toml says" in capsys.readouterr().err


def test_a_released_chart_names_its_registry_and_digests():
    text = (ROOT / "charts/promptgroup/values.yaml").read_text()
    digests = {"operator": DIGEST, "router": f"sha256:{64 * 'b'}", "picker": f"sha256:{64 * 'c'}"}
    made = script("package_chart").with_images(text, "ghcr.io/someone", digests)
    before, after = document(text), document(made)
    assert after["imageRegistry"] == "ghcr.io/someone"
    for program, digest in digests.items():
        assert after[program]["image"].pop("digest") == digest
        assert before[program]["image"].pop("digest") == ""
    del before["imageRegistry"], after["imageRegistry"]
    assert after == before
    assert made.count("#") == text.count("#")


@pytest.mark.parametrize("digest", ["", "latest", "sha256:12", f"{DIGEST}\n"])
def test_a_digest_that_is_none_is_refused(digest):
    text = (ROOT / "charts/promptgroup/values.yaml").read_text()
    with pytest.raises(ValueError, match="digest of operator"):
        script("package_chart").with_images(text, "ghcr.io/someone", {"operator": digest})


def test_no_class_of_the_picker_has_a_compiled_base():
    compiler = script("compile_router")
    bases = {
        f"{module.replace('.', '/')}.py"
        for path in (ROOT / "picker").rglob("*.py")
        for module in _bases_from_the_router(ast.parse(path.read_text()))
    }
    folders = {*compiler.FOLDERS, *(path.name for path in (ROOT / "contract/promptgroup_contract").iterdir())}
    compiled = {path for path in bases if path.split("/")[1] in folders} - compiler.INTERPRETED
    assert bases
    assert compiled == set()


def _bases_from_the_router(tree):
    imported = {
        name.asname or name.name: each.module
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom)
        and (each.module or "").startswith(("promptgroup_router.", "promptgroup_contract."))
        for name in each.names
    }
    classes = (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
    named = (base.id for each in classes for base in each.bases if isinstance(base, ast.Name))
    return [imported[name] for name in named if name in imported]


@pytest.mark.heavy
def test_numbers_that_tests_set_are_no_part_of_compiled_code():
    compiler = script("compile_router")
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if "setattr(" in path.read_text()]
    numbers = {name for path in tests for folder, name in _set_numbers(path) if folder in compiler.FOLDERS}
    assert numbers
    assert numbers == compiler.SET_BY_TESTS


def _set_numbers(path):
    """Yield folder and name of each constant of a module of the router that a test sets."""
    tree = ast.parse(path.read_text())
    modules = {
        name.asname or name.name: (each.module or "").split(".")
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom)
        for name in each.names
    }
    calls = (each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute))
    for call in calls:
        if call.func.attr != "setattr" or ast.unparse(call.func) != "monkeypatch.setattr":
            continue
        where = call.args[0]
        if isinstance(where, ast.Constant):
            *module, name = where.value.split(".")
        else:
            module, name = modules.get(ast.unparse(where), []), ast.unparse(call.args[1]).strip("'")
        if module[:1] == ["promptgroup_router"] and len(module) > 1 and name.isupper():
            yield module[1], name


def test_krews_manifest_names_each_archive_with_its_sum():
    krew = script("krew_archive")
    archives = {f"kubectl-promptgroup-{platform}.tar.gz": 64 * str(n) for n, platform in enumerate(krew.PLATFORMS)}
    made = document(krew.manifest((ROOT / ".krew.yaml").read_text(), "1.2.3", archives))
    assert made["spec"]["version"] == "v1.2.3"
    assert {each["uri"].rpartition("/")[2]: each["sha256"] for each in made["spec"]["platforms"]} == archives
    assert all("/download/v1.2.3/" in each["uri"] for each in made["spec"]["platforms"])
    assert {"-".join(each["selector"]["matchLabels"].values()) for each in made["spec"]["platforms"]} == {
        *krew.PLATFORMS
    }


def test_krews_manifest_names_no_archive_that_was_not_built():
    krew = script("krew_archive")
    with pytest.raises(ValueError, match="which was not built"):
        krew.manifest((ROOT / ".krew.yaml").read_text(), "1.2.3", {})


def test_the_archives_wheels_are_for_platforms_that_krew_knows():
    krew = script("krew_archive")
    assert {name.rpartition("-")[0] for name in krew.PLATFORMS} == {"linux", "darwin"}


WORDY = "\n\nIt was slow."


@pytest.mark.parametrize(
    ("message", "lines", "says"),
    [
        ("Refuse headers that no engine needs", 20, None),
        ("Bring the ring back", 20, None),
        ("Process requests in order", 20, None),
        ("Discuss the release in its record", 20, None),
        ("Refuse headers that no engine needs" + WORDY, 2000, None),
        ("Refuse headers that no engine needs", 2000, "has no body"),
        ("Refuse headers" + "\nright here", 20, "no empty line"),
        ("Refuse headers that no engine needs, in routers, in pickers and in all else", 20, "has 75 characters"),
        ("Refuse headers.", 20, "full stop"),
        ("Refuse", 20, "one word"),
        *(
            (f"{first} headers that no engine needs", 20, f"begins with `{first}`")
            for first in ("A", "What", "Refuses", "Refused", "Refusing", "refuse", "Tests", "fix:", "Nobody")
        ),
    ],
)
def test_a_commit_says_what_changes_and_why(message, lines, says):
    check = script("check_commits")
    found = list(check.problems(check.Commit("0123abcd", message, lines)))
    assert (found == []) if says is None else (len(found) == 1 and says in found[0])


@pytest.mark.parametrize(
    ("message", "status"),
    [("Refuse it\n# a comment\n", 0), ("refused it", 1), ("Merge branch 'one'", 0), ("fixup! what it was", 0)],
)
def test_the_hook_judges_the_message_in_a_file(tmp_path, message, status):
    (tmp_path / "message").write_text(message)
    words = [sys.executable, ROOT / "scripts" / "check_commits.py", "--message", tmp_path / "message"]
    assert subprocess.run(words, check=False).returncode == status


def test_a_run_does_not_fail_where_another_run_removes_the_same_old_folder(tmp_path):
    other = OSError(errno.ENOTEMPTY, "Directory not empty")
    assert not on_rm_rf_error(os.rmdir, str(tmp_path), other, start_path=tmp_path)

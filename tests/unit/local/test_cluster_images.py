from pathlib import Path

import pytest

from promptgroup_local.cluster import images


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("busybox", "busybox"),
        ("busybox:1.37", "busybox"),
        ("ghcr.io/a/b:v1", "ghcr.io/a/b"),
        ("localhost:5000/a", "localhost:5000/a"),
        ("localhost:5000/a:v1", "localhost:5000/a"),
        ("a/b@sha256:00ff", "a/b"),
        ("localhost:5000/a:v1@sha256:00ff", "localhost:5000/a"),
    ],
)
def test_a_repository_is_the_name_without_tag_and_digest(image: str, repository: str) -> None:
    assert images.repository(image) == repository


def test_an_image_takes_the_pods_address() -> None:
    known = {"web": ("serve", "--bind={pod_ip}", "{pod_ip}")}
    assert images.argv(known, "web:1", "127.64.0.9") == ["serve", "--bind=127.64.0.9", "127.64.0.9"]
    assert images.argv(known, "other", "127.64.0.9") is None


@pytest.mark.parametrize(
    "text", ['{"vllm/vllm-openai": ["run.sh", "{pod_ip}"]}', "vllm/vllm-openai: [run.sh, '{pod_ip}']"]
)
def test_a_file_names_more_images(tmp_path: Path, text: str) -> None:
    file = tmp_path / "images"
    file.write_text(text)
    assert images.load(file) == {"vllm/vllm-openai": ["run.sh", "{pod_ip}"]}
    assert images.load(None) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "expected a mapping"),
        ("{", "--images"),
        ("a: run.sh", "a is no list of strings"),
        ("a: []", "a is no list of strings"),
        ("a: [1]", "a is no list of strings"),
        ("a:v1: [run.sh]", "a:v1 is no repository"),
    ],
)
def test_a_wrong_file_is_refused_and_the_entry_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "images"
    file.write_text(text)
    with pytest.raises(ValueError, match=message):
        images.load(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(tmp_path / "none")):
        images.load(tmp_path / "none")

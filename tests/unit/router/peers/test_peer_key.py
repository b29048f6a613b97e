import pytest

from promptgroup_router.peers.peer_key import MAX_BYTES, MIN_BYTES, BadKeyError, read_key


@pytest.mark.parametrize("secret", [bytes(range(MIN_BYTES)), b"\n" * 32, bytes(MAX_BYTES)])
def test_the_secret_is_the_file_byte_for_byte(tmp_path, secret):
    (tmp_path / "key").write_bytes(secret)
    assert read_key(tmp_path / "key") == secret


@pytest.mark.parametrize(
    ("secret", "words"),
    [(b"", "has 0 bytes"), (b"k" * 15, "has 15 bytes, expected 16 to 4096"), (bytes(5000), "more than 4096")],
)
def test_what_is_no_key_is_said_and_not_shown(tmp_path, secret, words):
    (tmp_path / "key").write_bytes(secret)
    with pytest.raises(BadKeyError, match=words) as caught:
        read_key(tmp_path / "key")
    assert "kkk" not in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(BadKeyError, match="absent cannot be read: No such file"):
        read_key(tmp_path / "absent")
    with pytest.raises(BadKeyError, match="cannot be read: Is a directory"):
        read_key(tmp_path)

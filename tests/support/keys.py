"""Secrets with API keys in a folder, as a kubelet mounts them."""

from pathlib import Path

from promptgroup_contract.access import Access, AccessType

KEY_A, KEY_A2, KEY_B = (f"sk-{each * 24}" for each in ("a", "c", "b"))
BY_KEY = Access(AccessType.API_KEY, secrets=("keys",))


def write_keys(folder: Path, secret: str = "keys", namespace: str = "chat", **callers: str) -> None:
    """Replace a Secret: caller's name → keys, one a line. A name's `_` stands for `-`."""
    path = folder / namespace / secret
    path.mkdir(parents=True, exist_ok=True)
    for old in path.iterdir():
        if old.name.replace("-", "_") not in callers:
            old.unlink()
    for name, keys in callers.items():
        beside = path / f".{name}"
        beside.write_text(keys)
        beside.replace(path / name.replace("_", "-"))

"""Write every generated block and picture of docs/, or list the pages that differ from the code (`--check`)."""

import sys

from sitegen import drawings, recordings
from sitegen.pages import pages, rendered


def main() -> int:
    """Entry point; returns the exit status."""
    desired = {path: rendered(path) for path in pages()} | drawings.files() | recordings.files()
    stale = [(path, text) for path, text in desired.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path, _ in stale:
            print(f"{path} differs from the code: run `make generate`")
        return 1 if stale else 0
    for path, text in stale:
        path.write_text(text)
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

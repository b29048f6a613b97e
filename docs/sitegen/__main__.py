"""Write every generated block of docs/, or list the pages that differ from the code (`--check`)."""

import sys

from sitegen.pages import pages, rendered


def main() -> int:
    """Entry point; returns the exit status."""
    stale = [(path, text) for path in pages() if (text := rendered(path)) != path.read_text()]
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

"""The index of decision records, from the first lines of each."""

import re
from pathlib import Path

from sitegen.tables import table

FOLDER = Path(__file__).parents[1] / "development" / "decisions"

HEAD = re.compile(r"# (?P<number>\d{4}) (?P<title>.+)\n\n(?P<status>\w[\w ]*), (?P<date>\d{4}-\d\d-\d\d)")
"""The first lines of a record: number and title, then status and date."""


def index() -> str:
    """Return a table of all records.

    Raises:
        ValueError: a record does not say its number, title, status and date.
    """
    rows = []
    for path in sorted(FOLDER.glob("[0-9]*.md")):
        result = HEAD.match(path.read_text())
        if result is None or result["number"] != path.name[:4]:
            raise ValueError(f"{path}: expected `# {path.name[:4]} Title`, an empty line, and `Status, YYYY-MM-DD`")
        rows.append([f"[{result['number']}]({path.name})", result["title"], result["status"], result["date"]])
    return table(["Record", "Decision", "Status", "Date"], rows)

"""Terminal recordings as SVG: the command line's own output for a group that is written down here."""

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from promptgroup_cli.reach.group_status import group_status
from promptgroup_cli.reach.top_rates import Rates, ReplicaRate
from promptgroup_cli.render import status_output, top_output

ASSETS = Path(__file__).parents[1] / "assets"
FINGERPRINT = "9f2c61d0" + "0" * 24
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

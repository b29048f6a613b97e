"""Write the pictures of the dashboard for the documentation: a real browser looks at a namespace of the tests."""

import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from promptgroup_cli.dashboard.server import serving

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.browser import Page, browse  # noqa: E402 - found by the line above
from support.dashboards import ScriptedDashboard  # noqa: E402

PICTURES = (("dashboard-release", "chat%2Fcode", "light"), ("dashboard-ring", "chat%2Fsupport", "dark"))
"""Name, group and colour scheme of each picture."""
WIDTH, HEIGHT, SCALE, QUALITY = 1180, 1130, 1.25, 78


def main() -> int:
    """Write all pictures."""
    dashboard = ScriptedDashboard(399)
    for name, group, scheme in PICTURES:
        with serving(dashboard) as url, tempfile.TemporaryDirectory() as folder:
            file = ROOT / "docs" / "assets" / f"{name}.webp"
            picture = bytearray()
            browse(Path(folder), _visit(f"{url}#group={group}", scheme, picture))
            file.write_bytes(picture)
            print(f"{file.relative_to(ROOT)}: {file.stat().st_size >> 10} KiB")
    return 0


def _visit(url: str, scheme: str, picture: bytearray) -> Callable[[Page], Awaitable[None]]:
    async def visit(page: Page) -> None:
        await page.prefer(scheme=scheme)
        await page.resize(WIDTH, HEIGHT, SCALE)
        await page.open(url)
        await page.until("document.querySelector('.chart circle')")
        await page.until("document.fonts.status === 'loaded'")
        if "support" in url:  # with sessions on their way
            await page.until("document.querySelector('.move')")
            await page.run("document.getAnimations().forEach((each) => { each.pause(); each.currentTime = 750; })")
        picture.extend(await page.picture(whole=False, kind="webp", quality=QUALITY))

    return visit


if __name__ == "__main__":
    sys.exit(main())

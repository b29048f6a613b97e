"""The page of `promptgroup dashboard` in a real browser: drawn, reached by keyboard, readable, asking nobody else."""

import itertools
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from promptgroup_cli.dashboard.server import serving
from promptgroup_contract.fingerprint import short
from support.browser import Page, browse, find_browser
from support.dashboards import SUPPORT, ScriptedDashboard, cluster

pytestmark = pytest.mark.integration

Visit = Callable[[Page], Awaitable[None]]
SLOT = f"chat/support/{short(SUPPORT)}/2"
HOSTILE = '<img src=x onerror="window.broken=1"><script>window.broken=1</script>'

CONTRAST = """(() => {
  const lit = (color) => {
    const [r, g, b, a = 1] = color.match(/[\\d.]+/g).map(Number);
    const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    const [x, y, z] = [r, g, b].map((c) => linear(c / 255));
    return { light: 0.2126 * x + 0.7152 * y + 0.0722 * z, a };
  };
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const found = lit(getComputedStyle(at).backgroundColor);
      if (found.a > 0.99) return found.light;
    }
    return 1;
  };
  const low = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement, hidden = "script, style, noscript, title, .unseen";
    if (!walk.currentNode.data.trim() || !node.checkVisibility() || node.closest(hidden)) continue;
    const style = getComputedStyle(node), svg = node instanceof SVGElement;
    const one = lit(svg ? style.fill : style.color).light, other = behind(node);
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.push(`${walk.currentNode.data.trim().slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return low;
})()"""
"""WCAG 2.2, success criterion 1.4.3: texts whose contrast with what is behind them is below 4.5."""


@pytest.fixture
def dashboard() -> ScriptedDashboard:
    find_browser()
    return ScriptedDashboard(60)


@pytest.fixture
def visit(dashboard: ScriptedDashboard, tmp_path: Path) -> Callable[..., None]:
    """Opens the page, runs a visit, and sees that nothing was wrong and nobody else was asked."""

    def visit(visit: Visit, group: str = "", **preferences: str) -> None:
        with serving(dashboard) as url:

            async def whole(page: Page) -> None:
                await page.prefer(**preferences)
                await page.resize(1280, 900)
                await page.open(f"{url}#group={group}")
                await page.until("page.view !== null")
                await visit(page)
                assert page.errors == []
                assert [each for each in page.requests if not each.startswith((url, "data:"))] == []

            browse(tmp_path, whole)

    return visit


def test_groups_are_drawn_and_said(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        names = "[...document.querySelectorAll('#groups tbody button')].map((each) => each.textContent)"
        assert await page.run(names) == ["write", "code", "support"]  # the worst first
        assert await page.run("document.querySelectorAll('.ring .key').length") == 4
        words = await page.run("document.querySelector('.ring').getAttribute('aria-label')")
        assert f"Ring of revision {short(SUPPORT)}: Slot 0: warm, 25.0 % of the keys, 12 sessions" in words
        assert await page.run("document.querySelectorAll('#replicas tbody tr').length") == 4
        charts = "[...document.querySelectorAll('.chart svg')].map((each) => each.getAttribute('aria-label'))"
        assert all("now" in each and "lowest" in each for each in await page.run(charts))
        assert "keep 4 replicas busy" in await page.run("byId('why').textContent")
        assert await page.run("document.title") == "chat/support · PromptGroup"
        number = await page.run("page.view.number")
        await page.until(f"page.view.number > {number}")  # it is live

    visit(look, "chat%2Fsupport")


def test_a_release_has_its_steps_both_revisions_and_the_opinion(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        assert await page.run("[...byId('steps').children].map((each) => each.className)") == [
            "done",
            "current",
            "ahead",
        ]
        assert await page.run("byId('release-figures').tBodies[0].rows.length") == 2
        assert "is not significant" in await page.run("byId('opinion').textContent")
        assert await page.run("document.querySelectorAll('.ring').length") == 2

    visit(look, "chat%2Fcode")


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_moves_fly_once_and_stand_still_for_those_who_want_rest(visit: Callable[..., None], motion: str) -> None:
    async def look(page: Page) -> None:
        # it flies for a second and a half, so it is looked at as soon as it is there
        flies = "document.querySelector('.ring .move').getAnimations()[0].effect.getKeyframes()"
        await page.until(f"window.flown = {flies}")
        assert "moved to another slot" in await page.run("byId('moves').textContent")
        frames = await page.run("window.flown")
        assert any("strokeDashoffset" in each for each in frames) == (motion == "no-preference")
        await page.until("!document.querySelector('.ring .move')")

    visit(look, "chat%2Fsupport", motion=motion)


def test_everything_is_reached_by_keyboard(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        reached: list[str] = []
        name = "(document.activeElement.textContent || document.activeElement.id).trim().slice(0, 30)"
        while "Explain" not in reached:
            await page.press("Tab")
            reached.append(await page.run(name))
            assert len(reached) < 30
            assert await page.run("document.activeElement.matches(':focus-visible')")
            width = await page.run("parseFloat(getComputedStyle(document.activeElement).outlineWidth)")
            assert width >= 2
            if reached[-1] == "write":
                await page.press("Enter")
                await page.until("page.view.group.label === 'chat/write'")
                assert await page.run(name) == "write"  # what was chosen keeps the focus
        assert reached[:3] == ["Skip to the group", "Pause", "words"]
        assert [each for each in reached if each in ("code", "support", "write")] == ["write", "code", "support"]
        fields = await page.run("['body', 'headers'].every((id) => byId(id).labels.length === 1)")
        assert fields
        assert {"As a table", "body", "headers", "Explain"} <= set(reached)

    visit(look)


def test_a_request_is_explained_and_its_slot_marked(visit: Callable[..., None], dashboard: ScriptedDashboard) -> None:
    dashboard.answer = {
        "by": "router r", "choice": SLOT, "refused": False, "facts": [["Group", "chat/support"], ["Goes to", SLOT]],
        "rows": [["REPLICA", "RING", "STATE"], [SLOT, "0", "Ready"]],
    }  # fmt: skip

    async def look(page: Page) -> None:
        await page.run("byId('body').focus()")
        await page.type('{"model": "llama"}')
        await page.press("Tab")
        await page.type("X-Session-Id: 7")
        await page.press("Tab")
        await page.press("Enter")
        await page.until("byId('answer').querySelector('dd')")
        assert dashboard.explained == [('{"model": "llama"}', {"x-session-id": "7"})]
        assert await page.run("byId('answer').getAttribute('aria-live')") == "polite"
        assert await page.run("document.querySelectorAll('.ring .marked').length") == 1
        assert await page.run("byId('candidates').tBodies[0].rows[0].cells[0].textContent") == SLOT

    visit(look, "chat%2Fsupport")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_in_light_and_in_dark(visit: Callable[..., None], scheme: str) -> None:
    async def look(page: Page) -> None:
        ground = await page.run("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 384) == (scheme == "light")
        for group in ("chat/support", "chat/code", "chat/write"):
            await page.run(f"choose({json.dumps(group)})")
            await page.until(f"page.view.group.label === {json.dumps(group)}")
            assert await page.run(CONTRAST) == []

    visit(look, scheme=scheme)


def test_screen_readers_get_names_and_order(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        tree: list[dict[str, Any]] = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        seen = [
            (each["role"]["value"], each.get("name", {}).get("value", ""))
            for each in tree
            if not each["ignored"] and each["role"]["value"] != "none"
        ]
        nameless = [
            role for role, name in seen if role in ("button", "textbox", "table", "image", "region") and not name
        ]
        assert nameless == []
        assert [name for role, name in seen if role == "heading"][:3] == ["PromptGroup chat", "Groups", "chat/write"]
        headings = "[...document.querySelectorAll('h1, h2, h3, h4')].filter((each) => each.checkVisibility())"
        levels = await page.run(f"{headings}.map((each) => Number(each.tagName[1]))")
        assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
        assert {"banner", "main", "contentinfo"} <= {role for role, _ in seen}

    visit(look)


def test_what_others_wrote_is_text(visit: Callable[..., None], dashboard: ScriptedDashboard) -> None:
    objects = cluster()
    for group in objects.groups:
        group["spec"] |= {"model": HOSTILE, "modelAliases": [HOSTILE]}
        for condition in group["status"]["conditions"]:
            condition["message"] = condition["reason"] = HOSTILE
    for event in objects.events:
        event["message"] = event["reason"] = HOSTILE
    for pod in objects.pods:
        pod["metadata"]["name"] = HOSTILE
    dashboard.cluster = objects

    async def look(page: Page) -> None:
        for group in ("chat/code", "chat/write"):
            await page.run(f"choose({json.dumps(group)})")
            await page.until(f"page.view.group.label === {json.dumps(group)} && page.view.group.model.includes('<img')")
            assert await page.run("byId('group-model').textContent") == f"{HOSTILE}, also {HOSTILE}"
        assert await page.run("[typeof window.broken, document.querySelectorAll('img').length]") == ["undefined", 0]

    visit(look)


def test_the_page_says_when_nobody_answers_and_when_it_is_paused(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        await page.run("byId('pause').click()")
        assert await page.run("byId('pause').getAttribute('aria-pressed')") == "true"
        assert (await page.run("byId('fresh').textContent")).startswith("Paused at")
        await page.run("byId('pause').click()")
        await page.until("byId('fresh').textContent.startsWith('Live')")
        await page.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
        await page.until("byId('fresh').textContent.includes('does not answer')")
        assert await page.run("byId('news').textContent") == "The page is no longer up to date"

    visit(look)


@pytest.mark.parametrize("size", [24, 240])
def test_one_of_many_groups_is_found_and_comes_into_sight(
    visit: Callable[..., None], dashboard: ScriptedDashboard, size: int
) -> None:
    objects = cluster()
    support = next(each for each in objects.groups if each["metadata"]["name"] == "support")
    spaces = [
        support | {"metadata": support["metadata"] | {"namespace": space, "name": f"a{number:03}"}}
        for space in ("eins", "zwei")
        for number in range(size)
    ]
    dashboard.cluster = replace(objects, groups=[*objects.groups, *spaces])

    async def look(page: Page) -> None:
        rows = "[...document.querySelectorAll('#groups tbody button')].map((each) => each.textContent)"
        assert (await page.run(rows))[:3] == ["chat/write", "chat/code", "chat/support"]
        assert await page.run("byId('groups-count').textContent") == f"{2 * size + 3} of {2 * size + 3} groups"
        assert await page.run("document.querySelector('.list').clientHeight") <= 400  # the detail is in sight
        await page.run("byId('words').focus()")
        await page.type("zwei/a007 ready")
        await page.until("byId('groups').tBodies[0].rows.length === 1")
        await page.run("document.querySelector('#groups tbody button').click()")
        await page.until("page.view.group.label === 'zwei/a007'")
        await page.until("byId('group').getBoundingClientRect().top < innerHeight")
        await page.run("byId('words').value = ''; byId('namespaces').value = 'eins'")
        await page.run("byId('find').dispatchEvent(new Event('change'))")
        assert await page.run("byId('groups').tBodies[0].rows.length") == size

    visit(look)


def test_without_a_cluster_the_page_says_what_it_does_not_know(
    visit: Callable[..., None], dashboard: ScriptedDashboard
) -> None:
    dashboard.cluster = None

    async def look(page: Page) -> None:
        said = await page.run("document.querySelector('main').innerText")
        assert "is not known: no cluster is asked" in said
        assert "Nothing keeps" not in said
        assert "There is no PromptGroup" not in said

    visit(look)


@pytest.mark.parametrize("width", [360, 412])
def test_on_a_phone_the_list_has_what_fits(visit: Callable[..., None], width: int) -> None:
    async def look(page: Page) -> None:
        await page.resize(width, 800)
        await page.until(f"innerWidth === {width}")
        assert await page.run("document.documentElement.scrollWidth") <= width
        assert await page.run("document.querySelector('.list').scrollWidth") <= width
        assert (
            await page.run("parseFloat(getComputedStyle(byId('words')).fontSize)") >= 16
        )  # none that a phone zooms in on
        assert await page.run("byId('words').offsetHeight") >= 40

    visit(look)


def test_a_narrow_page_scrolls_its_tables_and_not_itself(visit: Callable[..., None]) -> None:
    async def look(page: Page) -> None:
        await page.resize(360, 800)
        await page.until("innerWidth === 360")
        assert await page.run("document.documentElement.scrollWidth") <= 360

    visit(look, "chat%2Fcode")

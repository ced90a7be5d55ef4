# SPDX-License-Identifier: Apache-2.0
"""The page as people see it: at two widths, in both themes and both languages, and what its buttons do."""

from pathlib import Path
from typing import Any

import pytest
from tests.report._browser import Browser

# Text that ends outside the window, or would be cut off, unless it is in a box that scrolls by itself.
OUTSIDE = """[...document.querySelectorAll('body *')].filter(e => !e.closest('.scroll, pre, #tip')
  && e.getClientRects().length && e.getBoundingClientRect().right > WIDTH + 0.5).map(e => e.outerHTML.slice(0, 120))"""

# Text that is shown with less contrast than WCAG asks of small print, against the page.
FAINT = """(() => {
  const light = (css) => {
    const [r, g, b] = css.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
      .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.documentElement).backgroundColor);
  const faint = [];
  for (const e of document.querySelectorAll('p, h2, h3, figcaption, td, th, svg text, pre code, header button, a')) {
    if (!e.getClientRects().length) continue;
    const style = getComputedStyle(e);
    const ink = light(e instanceof SVGElement ? style.fill : style.color);
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${e.textContent.slice(0, 30)}`);
  }
  return faint;
})()"""

SMALLEST_TEXT = """Math.min(...[...document.querySelectorAll('.chart text')].filter(e => e.getClientRects().length)
  .map(e => parseFloat(getComputedStyle(e).fontSize) * e.getScreenCTM().a))"""

VISIBLE = "[...document.querySelectorAll('{css}')].filter(e => e.getClientRects().length).map(e => e.textContent)"


def visible(browser: Browser, css: str) -> list[str]:
    found: list[str] = browser.ask(VISIBLE.format(css=css))
    return found


def click(browser: Browser, css: str) -> None:
    browser.ask(f"document.querySelector('{css}').click()")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_leaves_the_window_and_all_can_be_read(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width, dark=dark)
    for _ in ("en", "zh"):
        assert browser.ask("document.documentElement.scrollWidth") <= width
        assert browser.ask(OUTSIDE.replace("WIDTH", str(width))) == []
        assert browser.ask(FAINT) == []
        assert browser.ask(SMALLEST_TEXT) >= 10.5
        click(browser, "#language")
    assert browser.complaints() == []


def test_the_language_switch(browser: Browser, report: Path) -> None:
    browser.open(report, 1280)
    english = visible(browser, "h2 span")
    assert english[:2] == ["Training", "Success"]
    click(browser, "#language")
    assert visible(browser, "h2 span")[:2] == ["训练过程", "成功率"]
    assert browser.ask("document.documentElement.lang") == "zh-Hans"
    assert browser.ask("document.title") == "学到了什么，保住了什么"
    assert visible(browser, ".en") == []
    assert visible(browser, "#language span") == ["English"]
    click(browser, "#language")
    assert visible(browser, "h2 span") == english


@pytest.mark.parametrize("dark", [False, True])
def test_the_theme_follows_the_system_until_it_is_switched(browser: Browser, report: Path, dark: bool) -> None:
    browser.open(report, 1280, dark=dark)
    assert is_dark(browser) is dark
    assert visible(browser, "#theme .en") == ["Light" if dark else "Dark"]
    click(browser, "#theme")
    assert is_dark(browser) is not dark
    assert visible(browser, "#theme .en") == ["Dark" if dark else "Light"]


def is_dark(browser: Browser) -> bool:
    colour = browser.ask("getComputedStyle(document.documentElement).backgroundColor")
    return sum(int(part) for part in colour.strip("rgb()").split(",")) < 3 * 128


def test_a_click_on_a_head_sorts(browser: Browser, report: Path) -> None:
    browser.open(report, 1280)
    old = "#success table.sortable th:nth-child(2) button"
    click(browser, old)
    assert numbers(browser, 2) == sorted(numbers(browser, 2), reverse=True)
    assert names(browser)[0] == "teacher, before"
    click(browser, old)
    assert numbers(browser, 2) == sorted(numbers(browser, 2))
    assert names(browser)[0] == "plain, as LeRobot does it"
    # The teacher forgets nothing and has no number there: it stays below in both directions.
    for _ in range(2):
        click(browser, "#success table.sortable th:nth-child(4) button")
        assert names(browser)[-1] == "teacher, before"
    click(browser, "#success table.sortable th:nth-child(1) button")
    assert names(browser) == sorted(names(browser), key=str.lower)


def numbers(browser: Browser, column: int) -> list[float]:
    cells: list[str] = browser.ask(
        f"[...document.querySelector('#success table').tBodies[0].rows].map(row => row.cells[{column - 1}].dataset.v)"
    )
    return [float(cell) for cell in cells]


def names(browser: Browser) -> list[str]:
    found: list[str] = browser.ask(
        "[...document.querySelector('#success table').tBodies[0].rows].map(row => row.cells[0].innerText.trim())"
    )
    return found


def test_values_show_under_the_pointer(browser: Browser, report: Path) -> None:
    browser.open(report, 1280)
    point_at_first_row(browser)
    assert visible(browser, "#tip") == ["teacher, before, old tasks\n0.97 (0.95–0.99)"]
    click(browser, "#language")
    point_at_first_row(browser)
    assert visible(browser, "#tip") == ["教师（微调前），旧任务\n0.97 (0.95–0.99)"]
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=3, y=3)
    assert visible(browser, "#tip") == []


def point_at_first_row(browser: Browser) -> None:
    place: dict[str, Any] = browser.ask(
        """(() => {
          const hit = document.querySelector('#success .wide .hit');
          hit.scrollIntoView({block: 'center', behavior: 'instant'});
          const box = hit.getBoundingClientRect();
          return {x: box.x + box.width / 2, y: box.y + box.height / 2};
        })()"""
    )
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=place["x"], y=place["y"])


def test_on_paper_it_is_light_and_without_buttons(browser: Browser, report: Path) -> None:
    browser.open(report, 1280)
    click(browser, "#theme")
    browser.call(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    try:
        assert not is_dark(browser)
        assert visible(browser, "header button, nav") == []
        assert len(visible(browser, ".chart")) == 10
    finally:
        browser.call("Emulation.setEmulatedMedia", media="")

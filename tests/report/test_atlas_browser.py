"""The atlas in a real browser: search, filters, keyboard, dark, a phone, and what a screen reader is told."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "atlas.html"
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SHOWN = "article:not([hidden])"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """The page opened from its file, with all that the console says and all that is asked for."""
    page = browser.new_page(viewport=DESK, color_scheme="light")
    page.said, page.requests = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(PAGE.as_uri())
    yield page
    page.close()


def names(page: Any) -> list[str]:
    return page.locator(f"{SHOWN} h3").all_inner_texts()


def overflow(page: Any) -> list[str]:
    """What reaches beyond the right edge, pictures aside, which scale."""
    return page.evaluate(
        """() => Array.from(document.querySelectorAll("body *"))
          .filter((each) => !each.closest("svg") && each.checkVisibility()
            && each.getBoundingClientRect().right > innerWidth + 0.5)
          .map((each) => each.outerHTML.slice(0, 120))"""
    )


def test_nothing_is_fetched_and_nothing_fails(page: Any) -> None:
    assert page.title() == "The atlas of kinks"
    assert page.said == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert page.locator("article").count() > 100


class TestSearch:
    def test_finds_operations_by_name_and_spellings_of_frameworks(self, page: Any) -> None:
        page.fill("#search", "hardswish")
        assert names(page) == ["hardswish"]
        page.fill("#search", "jnp.clip")
        assert "clamp" in names(page)
        assert "relu" not in names(page)

    def test_takes_several_words_and_says_what_is_left(self, page: Any) -> None:
        page.fill("#search", "elu scale=1.5")
        assert names(page) == ["elu"]
        assert page.inner_text("#counted") == "1 place of 1 operation"

    def test_says_that_nothing_matches_and_shows_all_again(self, page: Any) -> None:
        everything = len(names(page))
        page.fill("#search", "no such operation")
        assert names(page) == []
        page.get_by_role("button", name="Show all").click()
        assert len(names(page)) == everything
        assert page.input_value("#search") == ""

    def test_opens_what_is_folded_where_a_match_lies(self, page: Any) -> None:
        folded = page.locator("#op-leaky-relu details")
        assert folded.get_attribute("open") is None
        page.fill("#search", "negative_slope=-0.2")
        assert page.get_by_text("leaky_relu(negative_slope=-0.2)").first.is_visible()


class TestFilters:
    @pytest.mark.parametrize(
        ("kind", "has", "lacks"),
        [("disagree", "abs", "floor"), ("changed", "clamp", "relu"), ("breaks", "hypot", "abs")],
    )
    def test_leave_what_they_say(self, page: Any, kind: str, has: str, lacks: str) -> None:
        button = page.locator(f"[data-filter={kind}]")
        button.click()
        assert button.get_attribute("aria-pressed") == "true"
        marks = page.eval_on_selector_all(".spot:not([hidden])", "spots => spots.map((each) => each.dataset.is)")
        assert marks
        assert all(kind in each.split() for each in marks)
        assert str(len(marks)) == button.locator("span").inner_text()
        assert page.inner_text("#counted").startswith(f"{len(marks)} places")
        assert lacks not in names(page)
        assert has in names(page)
        button.click()
        assert len(page.locator(".spot:not([hidden])").all()) == page.locator(".spot").count()

    def test_narrow_each_other_and_the_search(self, page: Any) -> None:
        page.locator("[data-filter=changed]").click()
        changed = names(page)
        page.locator("[data-filter=disagree]").click()
        both = names(page)
        assert set(both) <= set(changed)
        page.fill("#search", "fmax")
        assert names(page) == ["fmax"]


class TestKeyboard:
    def test_reaches_everything_and_shows_where_it_is(self, page: Any) -> None:
        reached = []
        for _ in range(7):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate(
                    "() => [document.activeElement.id || document.activeElement.textContent.trim(),"
                    " getComputedStyle(document.activeElement).outlineStyle]"
                )
            )
        assert [each[0] for each in reached[:2]] == ["To the operations", "search"]
        assert re.match("Answers disagree", reached[2][0])
        assert reached[5][0] == "theme"
        assert re.match("All [0-9]+ operations", reached[6][0])
        assert {each[1] for each in reached} == {"solid"} or {each[1] for each in reached} == {"solid", "auto"}

    def test_slash_goes_to_the_search_and_escape_clears(self, page: Any) -> None:
        page.keyboard.press("/")
        page.keyboard.type("prelu")
        assert names(page) == ["prelu"]
        page.keyboard.press("Escape")
        assert len(names(page)) > 100

    def test_filters_answer_to_the_space_bar(self, page: Any) -> None:
        page.locator("[data-filter=breaks]").focus()
        page.keyboard.press("Space")
        assert page.locator("[data-filter=breaks]").get_attribute("aria-pressed") == "true"

    def test_a_link_shows_what_a_search_had_hidden(self, page: Any) -> None:
        page.fill("#search", "prelu")
        page.evaluate("() => { location.hash = 'op-hypot'; }")
        page.wait_for_function("() => !document.getElementById('op-hypot').hidden")
        assert page.locator("#op-hypot").is_visible()


class TestScreenReader:
    def test_headings_go_down_one_by_one(self, page: Any) -> None:
        levels = page.eval_on_selector_all("h1, h2, h3, h4", "each => each.map((h) => Number(h.tagName[1]))")
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))

    def test_every_picture_is_told_or_hidden(self, page: Any) -> None:
        untold = page.eval_on_selector_all(
            "svg", "each => each.filter((svg) => !svg.ariaHidden && !(svg.role === 'img' && svg.ariaLabel)).length"
        )
        assert untold == 0
        told = page.locator("#op-relu svg.curve").get_attribute("aria-label")
        assert told == "The value along self: slope 0 to the left and 1 to the right of the point"

    def test_every_dot_is_in_the_list_below(self, page: Any) -> None:
        """Of each place the sources with a dot are those that the list names with a weight."""
        unlike = page.eval_on_selector_all(
            ".spot",
            """spots => spots.filter((spot) => {
              const drawn = Array.from(spot.querySelectorAll("use"));
              const dots = new Set(drawn.map((use) => use.getAttribute("href").replace("#dot-", "")));
              const named = new Set();
              for (const line of spot.querySelectorAll(".answers > li")) {
                if (line.querySelector("b").textContent === "nothing") continue;
                for (const source of line.querySelectorAll("strong"))
                  named.add(source.textContent.replaceAll(" ", "-").replaceAll(".", "-"));
              }
              return dots.size !== named.size || [...dots].some((each) => !named.has(each));
            }).map((spot) => spot.textContent.slice(0, 80))""",
        )
        assert unlike == []

    def test_controls_have_names_and_what_is_left_is_announced(self, page: Any) -> None:
        assert page.get_by_role("searchbox", name="Search operations, calls and spellings").count() == 1
        assert page.get_by_role("group", name="Show only places where").count() == 1
        assert page.locator("#counted").get_attribute("aria-live") == "polite"
        assert page.get_by_role("article", name="clamp", exact=True).count() == 1


class TestDark:
    def ground(self, page: Any) -> int:
        colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall("[0-9]+", colour)[:3]))

    def test_follows_the_system_and_the_switch(self, browser: Any) -> None:
        page = browser.new_page(viewport=DESK, color_scheme="dark")
        page.goto(PAGE.as_uri())
        assert self.ground(page) < 150
        switch = page.get_by_role("button", name="Dark")
        assert switch.get_attribute("aria-pressed") == "true"
        switch.click()
        assert self.ground(page) > 700
        page.reload()
        assert self.ground(page) > 700
        page.close()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_words_can_be_read_on_their_ground(self, browser: Any, scheme: str) -> None:
        """A contrast of 4.5 at least, as WCAG asks of text."""
        page = browser.new_page(viewport=DESK, color_scheme=scheme)
        page.goto(PAGE.as_uri())
        found = page.evaluate(CONTRASTS)
        assert len(found) > 8
        assert {name: each for name, each in found.items() if each < 4.5} == {}
        page.close()


CONTRASTS = """() => {
  const numbers = (colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = (colour) => {
    const linear = (c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const [r, g, b] = numbers(colour).map((c) => linear(c / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    for (let at = each; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)$/.test(colour) && colour !== "transparent") return colour;
    }
  };
  const found = {};
  for (const each of document.querySelectorAll("p, li, b, code, em, h1, h2, h3, summary, button, strong, .marks li")) {
    if (!each.checkVisibility()) continue;
    const [one, other] = [light(getComputedStyle(each).color), light(ground(each))];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    const name = `${each.tagName} ${each.className}`;
    found[name] = Math.min(found[name] ?? 99, contrast);
  }
  return found;
}"""


class TestPhone:
    @pytest.fixture
    def phone(self, browser: Any) -> Iterator[Any]:
        page = browser.new_page(viewport=PHONE, color_scheme="light", has_touch=True)
        page.goto(PAGE.as_uri())
        yield page
        page.close()

    def test_nothing_reaches_beyond_the_edge(self, phone: Any) -> None:
        phone.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert phone.evaluate("() => document.documentElement.scrollWidth") == PHONE["width"]
        assert overflow(phone) == []

    def test_no_word_is_cut(self, phone: Any) -> None:
        phone.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        cut = phone.evaluate(
            """() => Array.from(document.querySelectorAll("body *")).filter((each) => !each.closest("svg")
              && !each.closest(".sr") && each.checkVisibility() && getComputedStyle(each).overflowX !== "visible"
              && each.tagName !== "INPUT" && each.scrollWidth > each.clientWidth + 1)
              .map((each) => each.outerHTML.slice(0, 120))"""
        )
        assert cut == []

    def test_labels_of_pictures_stay_inside_of_them(self, phone: Any) -> None:
        phone.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        outside = phone.evaluate(
            """() => Array.from(document.querySelectorAll("svg.dots > text, svg.dots > use")).filter((each) => {
              const [mine, whole] = [each.getBoundingClientRect(), each.closest("svg").getBoundingClientRect()];
              return mine.left < whole.left - 1 || mine.right > whole.right + 1 || mine.top < whole.top - 1;
            }).map((each) => each.closest(".spot").textContent.slice(0, 60) + each.textContent)"""
        )
        assert outside == []

    def test_numbers_in_pictures_are_not_written_over_each_other(self, phone: Any) -> None:
        phone.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        over = phone.evaluate(
            """() => Array.from(document.querySelectorAll("svg.dots")).filter((svg) => {
              const boxes = Array.from(svg.querySelectorAll(":scope > text"), (each) => each.getBoundingClientRect())
                .sort((one, other) => one.left - other.left);
              return boxes.some((box, place) => place && boxes[place - 1].right > box.left);
            }).map((svg) => svg.closest(".spot").textContent.slice(0, 60))"""
        )
        assert over == []

"""Audits are shown as they are: as text, as JSON and back, in notebooks, and as a page in a real browser."""

from __future__ import annotations

import json
import linecache
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import subgrad
from subgrad.audit import Advice, Audit, Cause, Change, Count, Effect, Line, Nonfinite, Reached, Row, Site

HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">'\"&"
PLAIN = Site("/home/me/losses.py", 41, "loss", "return x.clamp(0, 6)")
BAD = Site(f"/tmp/{HOSTILE}.py", 7, HOSTILE, f"x = relu(x)  # {HOSTILE}")


def row(site: Site, module: str, operator: str, hits: list[int], **given: Any) -> Row:
    series = tuple(Count(10 * step, 1, 1000, count, near=2 * count) for step, count in enumerate(hits))
    return Row(site, module, operator, "corner", "self == 0", "[0, 1]", series, **given)


def example(**given: Any) -> Audit:
    rows = (
        row(PLAIN, "head", "clamp", [1152, 9, 5], distances=(0, 1, 2, *[3] * 14)),
        row(Site("/home/me/net.py", 9, "forward", "return relu(x)"), "body.1", "relu", [20, 200, 12]),
        row(BAD, HOSTILE, "relu", [1, 0, 2]),
        row(Site("/home/me/net.py", 30, "forward", "x.abs()"), "", "abs", [0, 0, 0]),
    )
    changes = (
        Change("head.weight", 2000, 1152, 0.25, 1152),
        Change(HOSTILE, 10, 1, None, 0),
        Change("b", 3, 0, 0.0, 0),
    )
    causes = (Cause(PLAIN, "clamp", 2, 1153, 1152), Cause(BAD, "relu", 1, 1, 0, alone=False))
    effect = Effect("torch-2.13", "torch-2.14", 0, PLAIN, changes, 0.2, causes)
    note = f"relu at {HOSTILE} was not looked at"
    found = {"steps": 30, "recorded": (0, 10, 20), "every": 10, "torch": "2.15", "notes": (note,), **given}
    return Audit(rows, (effect,), **found)


def broken(step: int = 3, **given: Any) -> Nonfinite:
    line = Line(PLAIN, "sqrt", "head", (0, 2), (("self", "0"),))
    mask = Line(BAD, "where", HOSTILE, (0, 2))
    reached = (Reached("head.weight", 6, "NaN", 2, 0), Reached(HOSTILE, 3, "infinite"))
    advice = (Advice("Keep it out", f"y = torch.where(keep, x, 1.0)  # {HOSTILE}"), Advice("Else", "z", False))
    found = {"line": line, "nan_line": line, "mask": mask, "cotangent": "0", "gradient": "nan", "last": step, **given}
    return Nonfinite(step, "slope", "NaN", BAD, reached, advice=advice, **found)


def test_json_goes_both_ways() -> None:
    audit = example(ulps=2, ranks=2, convention="min-norm", nonfinite=(broken(), broken(value=None)), is_watched=True)
    assert Audit.from_json(audit.to_json()) == audit


def test_files_from_before_gradients_were_watched_are_read() -> None:
    given = json.loads(example().to_json())
    del given["nonfinite"], given["is_watched"]
    assert Audit.from_json(json.dumps(given)) == example()


def test_what_ranks_found_alike_is_one_finding_and_the_rest_are_sorted_by_steps() -> None:
    other = broken(1, cotangent="2", line=Line(PLAIN, "log"))
    one, two = Audit(nonfinite=(broken(5),), is_watched=True), Audit(nonfinite=(broken(2), other))
    merged = Audit.merge([one, two])
    assert [(each.step, each.steps, each.last) for each in merged.nonfinite] == [(1, 1, 1), (2, 2, 5)]
    assert merged.is_watched


def test_gradients_that_are_not_finite_are_in_the_table_the_sentences_and_the_page() -> None:
    audit = example(nonfinite=(broken(),), is_watched=True)
    text, page = str(audit), audit.to_html()
    for shown in ("losses.py:41", "sqrt", "0, 2", "self = 0"):
        assert shown in text
    assert "The slope of losses.py:41 (`sqrt`) in head is infinite or undefined at entry [0, 2]" in text
    assert "y = torch.where(keep, x, 1.0)" in text
    assert "Gradients that became infinite or NaN" in page
    assert "keeps that entry out of the result" in page
    assert HOSTILE not in page
    assert "Gradients that became infinite or NaN" in audit._repr_html_() or "losses.py:41" in audit._repr_html_()


def test_an_audit_that_watched_gradients_alone_has_no_table_of_kinks() -> None:
    audit = Audit(nonfinite=(broken(),), is_watched=True, every=0, steps=4)
    assert "hits" not in str(audit)
    page = audit.to_html()
    assert 'id="kinks"' not in page
    assert "<script></script>" in page
    assert "no step recorded" in page
    assert str(Audit(is_watched=True, every=0, steps=4)) == "No gradient became infinite or NaN in 4 steps."


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "subgrad.audit/1"}', '{"format": "another"}', "null"])
def test_what_is_no_audit_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no audit that subgrad wrote"):
        Audit.from_json(text)


def test_merging_adds_what_ranks_met_in_the_same_step() -> None:
    one = Audit((row(PLAIN, "m", "relu", [1, 2], distances=(1, 0)),), steps=2, recorded=(0, 10))
    rows = row(PLAIN, "m", "relu", [5, 0, 7], distances=(1, 4)), row(BAD, "", "relu", [1])
    other = Audit(rows, steps=3, recorded=(0, 20))
    merged = Audit.merge([one, other])
    assert [(count.step, count.calls, count.hits, count.near) for count in merged.rows[0].series] == [
        (0, 2, 6, 12),
        (10, 2, 2, 4),
        (20, 1, 7, 14),
    ]
    assert (merged.ranks, merged.steps, merged.recorded, merged.rows[0].distances) == (2, 3, (0, 10, 20), (2, 4))
    assert len(merged.rows) == 2
    with pytest.raises(ValueError, match="no audit to merge"):
        Audit.merge([])


def test_the_table_names_lines_and_the_summary_says_the_verdict() -> None:
    text = str(example(ulps=1))
    assert "losses.py:41" in text
    assert "1,166" in text
    assert "2,332" in text  # near
    assert "abs" not in text  # which was never hit
    assert "changes 2 of 3 gradients, by 20.0% of their norm, all because of losses.py:41 (`clamp`) and" in text
    assert "1,152 entries change sign" in text
    assert "1,401 hits among 12,000 entries, in 3 lines, in 3 recorded of 30 steps." in text


def test_without_rich_there_is_a_table_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rich = str(example())
    monkeypatch.setitem(sys.modules, "rich.console", None)
    text = str(example())
    assert "losses.py:41" in example().to_html()
    assert "losses.py:41" in text
    assert "┃" in with_rich
    assert "┃" not in text


def test_notebooks_get_an_escaped_table() -> None:
    found = example()._repr_html_()
    assert "losses.py:41" in found
    assert "<script" not in found
    assert "<img" not in found


def test_an_empty_audit_can_be_shown() -> None:
    with subgrad.audit() as audit:
        pass
    assert "0 hits" in str(audit)
    assert "<table" in audit.to_html()
    assert Audit.from_json(audit.to_json()) == audit.result


def test_files_are_written_wholly_or_not_at_all(tmp_path: Path) -> None:
    example().to_json(tmp_path / "a.json")
    example().to_html(tmp_path / "a.html")
    assert sorted(os.listdir(tmp_path)) == ["a.html", "a.json"]
    with pytest.raises(FileNotFoundError):
        example().to_html(tmp_path / "none" / "a.html")


# In a real browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("needs a Chromium: apt-get install chromium")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def page(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The report, opened from its file, with all that the console says and all that is asked for."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    example(ulps=1).to_html(path)
    page = browser.new_page()
    page.said, page.requests = [], []
    page.on("console", lambda message: page.said.append(message.text))
    page.on("pageerror", lambda error: page.said.append(str(error)))
    page.on("request", lambda request: page.requests.append(request.url))
    page.goto(path.as_uri())
    yield page
    page.close()


def shown(page: Any, column: int) -> list[str]:
    return page.eval_on_selector_all(
        "#kinks tbody tr:not([hidden])", f"rows => rows.map(row => row.cells[{column}].textContent)"
    )


def test_the_page_renders_every_part(page: Any) -> None:
    assert page.title() == "subgrad audit"
    assert page.locator("h2").all_inner_texts() == [
        "Lines responsible",
        "Gradients",
        "Kinks by call site",
        "Hits over time",
        "Distances to the nearest kink",
        "Source lines",
    ]
    assert page.locator("[role=img]").count() == 3
    for picture in page.locator("[role=img]").all():
        box = picture.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 30
    assert "1,152 entries change sign" in page.locator(".verdict").inner_text()
    assert "return x.clamp(0, 6)" in page.locator(".source").all_inner_texts()[0]


def test_the_verdict_comes_first_with_its_size_the_line_and_what_to_write(page: Any) -> None:
    first = page.locator("header + *")
    assert "verdict" in first.get_attribute("class")
    assert first.locator(".size").inner_text().split("\n") == ["20.0%", "of the gradient"]
    assert "losses.py:41" in first.inner_text()
    assert first.locator(".copy").inner_text().startswith('with subgrad.use("torch-2.13"):\n    return x.clamp(0, 6)\n')


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off_and_no_word_is_broken(browser: Any, tmp_path: Path, scheme: str) -> None:
    plain = Audit(tuple(each for each in example().rows if each.site != BAD), compared=example().compared)
    plain.to_html(tmp_path / "page.html")
    page = browser.new_page(viewport={"width": 390, "height": 844}, color_scheme=scheme)
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    cut = """all => all
        .filter(each => each.scrollWidth > each.clientWidth + 1 && getComputedStyle(each).display !== 'inline')
        .map(each => each.outerHTML.slice(0, 80))"""
    assert page.eval_on_selector_all("body *:not(script):not(svg *)", cut) == []
    # A word is whole where its letters lie on one line.
    whole = """() => [...document.querySelectorAll('td, th, p, h2, h3, .card')].flatMap(each => {
        const found = [];
        const walk = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
        while (walk.nextNode()) for (const word of walk.currentNode.data.matchAll(/[A-Za-z]{2,}/g)) {
          const range = document.createRange();
          range.setStart(walk.currentNode, word.index); range.setEnd(walk.currentNode, word.index + word[0].length);
          if (new Set([...range.getClientRects()].map(box => Math.round(box.top))).size > 1) found.push(word[0]);
        }
        return found; })"""
    assert page.evaluate(whole) == []
    page.close()


def test_lines_are_marked_in_their_source_once_over_all_steps(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("def f(x):\n    # before\n    y = x.clamp(0, 6)\n    return y\n")
    site = Site(str(file), 3, "f", "y = x.clamp(0, 6)")
    met = row(site, "", "clamp", [4, 5]), replace(row(site, "", "clamp", [1, 1]), kink="self == min")
    audit = Audit(met, tuple(effect_at(step, site, step / 40) for step in (0, 10)), steps=20, recorded=(0, 10))
    page = audit.to_html()
    assert page.count('<article class="guilty">') == 1
    assert (
        "<span><i>2</i><code>    # before</code></span><mark><i>3</i><code>    y = x.clamp(0, 6)</code></mark>" in page
    )
    assert "by up to 25.0%, in 2 steps from 0 to 10, of 2 backwards compared" in page
    assert (
        "2 of 2,000 entries (0.1%) lie on <code>self == min</code>, where torch-2.13 has slope 1 and torch-2.14" in page
    )
    file.write_text("something else\n" * 5)
    linecache.checkcache()
    assert "# before" not in audit.to_html()


def effect_at(step: int, site: Site, relative: float) -> Effect:
    changes = (Change("w", 4, 2, relative, 0), Change("b", 4, int(step > 0), 1e-4, 0))
    cause = Cause(site, "clamp", 1, 2, 0, relative=relative)
    return Effect("torch-2.13", "torch-2.14", step, site, changes, relative, (cause,))


def test_the_heat_map_lies_on_a_true_time_axis() -> None:
    audit = Audit(effects=tuple(effect_at(step, PLAIN, 0.5) for step in (0, 10, 100)), steps=101, recorded=(0, 10, 100))
    cells = re.findall(
        r'<i style="left:([\d.]+)%;width:([\d.]+)%;opacity:([\d.]+)" title="w, step (\d+)', audit.to_html()
    )
    left, width, shade, steps = zip(*cells, strict=True)
    assert [int(step) for step in steps] == [0, 10, 100]
    room = 100 - float(width[0])
    assert [float(each) / room for each in left] == pytest.approx([0, 0.1, 1], abs=1e-3)
    assert len(set(shade)) == 1
    assert float(re.search(r"opacity:([\d.]+)\" title=\"b, step 10", audit.to_html())[1]) < float(shade[0])


def test_one_recorded_step_is_drawn_as_bars_and_says_which() -> None:
    page = Audit((row(PLAIN, "head", "clamp", [7]),), (effect_at(0, PLAIN, 0.5),), steps=1, recorded=(0,)).to_html()
    assert "polyline" not in page
    assert "Of step 0, the one that was recorded, by module." in page
    assert '<i style="left:0;width:50.0%"></i><b>50.00%, 2 of 4 entries</b>' in page


def test_advice_never_points_into_an_installed_package() -> None:
    site = Site("/usr/lib/python3/site-packages/torchao/quant.py", 490, "quantize", "q = torch.clamp(q, low, high)")
    effect = effect_at(0, site, 0.41)
    assert effect.pin == (
        'To keep them: subgrad.set_default("torch-2.13") before the run, since quant.py:490 is in an installed package.'
    )
    page = Audit(effects=(effect,), steps=1, recorded=(0,)).to_html()
    assert '<pre class="copy">subgrad.set_default(&quot;torch-2.13&quot;)</pre>' in page
    assert "subgrad.use(" not in page


def test_the_table_sorts_numbers_as_numbers_and_words_as_words(page: Any) -> None:
    hits = page.locator("#kinks th", has_text="hits").get_by_role("button")
    hits.click()
    assert shown(page, 7) == ["1,166", "232", "3", "0"]
    hits.click()
    assert shown(page, 7) == ["0", "3", "232", "1,166"]
    page.locator("#kinks th", has_text="operator").get_by_role("button").click()
    assert shown(page, 3) == ["abs", "clamp", "relu", "relu"]
    assert page.locator("#kinks th[aria-sort]").all_inner_texts() == ["operator"]


def test_the_table_filters_by_words_in_any_column(page: Any) -> None:
    page.fill("#filter", "RELU body")
    assert shown(page, 0) == ["net.py:9"]
    assert page.inner_text("#counted") == "1 of 4"
    page.fill("#filter", "nothing like it")
    assert shown(page, 0) == []
    page.fill("#filter", "")
    assert len(shown(page, 0)) == 4


def test_nothing_from_the_program_is_run_and_nothing_is_fetched(page: Any) -> None:
    assert page.title() == "subgrad audit"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 1
    assert HOSTILE in page.locator("#kinks").inner_text()
    assert page.said == []
    assert [url for url in page.requests if not url.startswith("file:")] == []


def test_what_gets_in_all_the_same_is_kept_from_running(browser: Any, tmp_path: Path) -> None:
    """A second lock: a page into which a script was put does not run it."""
    text = example().to_html().replace("<h1>", "<h1><script>document.title = 'owned'</script>")
    (tmp_path / "page.html").write_text(text)
    page = browser.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.title() == "subgrad audit"
    assert len(shown(page, 0)) == 4
    page.close()

"""Audits are shown as they are: as text, as JSON and back, in notebooks, and as a page in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
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
    assert "changes 2 of 3 gradients, by 50.0% of their norm, all because of losses.py:41 (`clamp`) and" in text
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
        "Kinks by call site",
        "Hits over time",
        "Distances to the nearest kink",
        "Gradients",
        "Source lines",
    ]
    assert page.locator("svg[role=img]").count() == 3
    for picture in page.locator("svg[role=img]").all():
        box = picture.bounding_box()
        assert box["width"] > 100
        assert box["height"] > 30
    assert "1,152 entries change sign" in page.locator(".verdict").inner_text()
    assert "return x.clamp(0, 6)" in page.locator(".source").all_inner_texts()[0]


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

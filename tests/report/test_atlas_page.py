"""The page of the atlas stands alone and is sound, and the command that writes it says what it does not take."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from recorded_atlas import recorded_atlas

from subgrad.cli import main
from subgrad.report.atlas_data import Answer, Atlas, Operation, Spot
from subgrad.report.atlas_made import atlas as make
from subgrad.report.atlas_page import page
from subgrad.survey.frameworks import Answers

PAGE = Path(__file__).parents[2] / "docs" / "atlas.html"


@pytest.fixture(scope="module")
def atlas() -> Atlas:
    return recorded_atlas()


class Read(HTMLParser):
    """What a browser would find: identifiers, links, what is fetched, and tags that are left open."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [str(given["id"])] if "id" in given else []
        self.links += [str(given["href"])] if "href" in given else []
        self.fetched += [f"{tag} {name}" for name in ("src", "srcset", "data", "action") if name in given]
        if tag not in ("meta", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("made", ["committed", "now", "torch alone"])
def test_the_page_stands_alone_and_is_sound(made: str, atlas: Atlas, tmp_path: Path) -> None:
    if made == "torch alone":
        assert main(["survey", "clamp", "amax", "sqrt", "--html", str(tmp_path / "atlas.html")]) == 0
    text = {
        "committed": lambda: PAGE.read_text(),
        "now": lambda: page(atlas),
        "torch alone": lambda: (tmp_path / "atlas.html").read_text(),
    }[made]()
    read = Read(text)
    assert not read.open
    assert not read.fetched
    assert Counter(read.ids).most_common(1)[0][1] == 1
    assert {each for each in read.links if not each.startswith("#")} == set()
    assert {each.removeprefix("#") for each in read.links} <= set(read.ids)
    assert "http:" not in text
    assert "https:" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert len(text) < 1_000_000


def test_what_comes_from_frameworks_is_escaped() -> None:
    hostile = "<img src=x onerror=alert(1)>&\"'"
    answer = Answer("jax", "jax", hostile, (0.0,), hostile)
    failed = Answer("mlx", "mlx", hostile, None, failed=hostile)
    found = Spot(hostile, hostile, (hostile,), hostile, (answer, failed), also=(hostile,))
    made = Atlas(
        (Operation(hostile, hostile, "Jumps", (found,)),),
        "2.15.0",
        {"jax": hostile, "mlx": hostile},
        {"paddle": hostile},
    )
    text = page(made)
    assert "<img" not in text
    assert not Read(text).fetched


def test_a_framework_that_cannot_be_asked_is_named_with_what_its_failure_comes_to() -> None:
    failed = Answers("jax", failed="WARNING: /home/me/packages is ignored\nERROR: No matching distribution found\n")
    made = make([failed], ["relu"])
    assert made.failed == {"jax": "ERROR: No matching distribution found"}


def test_the_page_says_what_was_measured_and_what_was_not() -> None:
    text = page(Atlas((), "2.15.0", {"torch 2.15": "2.15.0", "jax": "0.10.2"}, {"paddle": "no such version"}))
    assert "Measured with torch 2.15.0, jax 0.10.2" in text
    assert "paddle was not measured: no such version" in text
    assert "records of the real versions to the bit" in text
    assert "records of the real 2.13.0 and 2.14.1 to the bit" in PAGE.read_text()
    alone = page(Atlas((), "2.15.0", {"torch 2.13": "", "torch 2.14": "", "torch 2.15": "2.15.0"}, {}))
    assert "Measured with torch 2.15.0, on the CPU" in alone
    assert "No other framework was asked" in alone


class TestCommand:
    def test_writes_the_page_of_some_operators(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        assert main(["survey", "clip", "relu", "--html", str(tmp_path / "atlas.html")]) == 0
        assert "places of 2 operations" in capsys.readouterr().out
        assert '<article id="op-clamp"' in (tmp_path / "atlas.html").read_text()

    def test_measures_the_frameworks_that_are_named(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        command = ["survey", "relu", "--frameworks", "torch", "--html", str(tmp_path / "atlas.html")]
        assert main(command) == 0
        text = (tmp_path / "atlas.html").read_text()
        assert "torch.maximum(x, 0)" in text
        assert "No other framework was asked" in text

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--html", "/no/such/folder/atlas.html"], "'/no/such/folder' is no folder to write to"),
            (["--html", "a.html", "--json"], "not allowed with argument --json"),
            (["--html", "a.html", "--broken"], "not allowed with argument --broken"),
            (["--html", "a.html", "--convention", "mean"], "leave --convention away"),
            (["reluu", "--html", "a.html"], "Did you mean 'relu'?"),
        ],
    )
    def test_refuses_in_words(self, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["survey", *arguments])
        assert ended.value.code == 2
        assert said in capsys.readouterr().err

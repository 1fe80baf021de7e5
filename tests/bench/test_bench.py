"""`subgrad bench`: what it measures, stores, shows, draws and refuses; and the page that is made of its records."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from subgrad.bench import measure
from subgrad.bench.measure import AGAIN, COMPILED, CONTENDERS, Benchmark, Copy, Timing
from subgrad.bench.rows import rows
from subgrad.bench.worker import CAN_FORK, Apart, Forked
from subgrad.cli import main
from subgrad.cli.bench import DTYPES
from subgrad.conventions import Convention
from subgrad.report.bench import milliseconds, picture

ROOT = Path(__file__).parents[2]
SPEED = runpy.run_path(str(ROOT / "scripts" / "speed.py"))
RECORDS = runpy.run_path(str(ROOT / "scripts" / "records.py"))
Captured = pytest.CaptureFixture[str]

# A copy of 1,024 entries in float32 moves 8,192 bytes, in 1 ms here.
RECORD = Benchmark(
    machine="a machine",
    torch="2.15.0",
    convention="min-norm",
    command="subgrad bench --compiled",
    copies=(Copy("float32", 1024, 1.0), Copy("float32", 64, 1.0), Copy("bfloat16", 1024, 1.0)),
    timings=(
        Timing("relu", "torch", "float32", 1024, forward=1.25, backward=2.0, both=4.0, kept=4096),
        Timing("relu", "subgrad", "float32", 1024, forward=2.0, backward=1.015625, both=2.0, kept=128),
        Timing("relu", "torch, compiled", "float32", 1024, forward=1.0, backward=1.25, both=3.0, kept=1024),
        Timing("relu", "subgrad, compiled", "float32", 1024, forward=1.0, backward=1.25, both=2.5, kept=1024),
        Timing("relu", "torch, again", "float32", 1024, forward=1.25, backward=2.5, both=4.1, kept=4096),
        Timing("maximum(x, y)", "torch", "float32", 1024, forward=3.0, backward=6.0, both=9.0, kept=8192),
        Timing("relu_", "torch", "float32", 1024, forward=4.0, backward=4.0, both=8.0, kept=0),
        Timing("amax", "torch", "float32", 1024, forward=1.0, backward=0.5, both=2.0, kept=0),
        Timing("of the past", "torch", "float32", 1024, forward=1.0, backward=0.5, both=2.0, kept=0),
        Timing("abs", "torch", "float32", 64, forward=1.0, backward=1.0, both=2.0, kept=0),
        Timing("relu", "torch", "bfloat16", 1024, forward=0.5, backward=4.0, both=5.0, kept=2048),
        Timing("clamp", "torch", "float32", 1024, forward=1.0, backward=1.0, both=2.0, kept=4096),
        Timing("clamp", "subgrad", "float32", 1024, forward=1.0, backward=1.0, both=1.0, kept=4096, ratio=1.5),
    ),
)
SHOWN = {
    "whole tensors kept are no part of the limit": (
        ("relu", "torch", "1.250", "2.000", "4.000", "-", "80%", "50%", "4"),
    ),
    "bits kept are, of the backward": (("", "subgrad", "2.000", "1.016", "2.000", "2.00", "50%", "100%", "0.125"),),
    "a mask of bytes is not, and like is held against like": (
        ("", "torch, compiled", "1.000", "1.250", "3.000", "-", "100%", "80%", "1"),
        ("", "subgrad, compiled", "1.000", "1.250", "2.500", "1.20", "100%", "80%", "1"),
    ),
    "torch again is held against torch": (("", "torch, again", "1.250", "2.500", "4.100", "0.98", "80%", "40%", "4"),),
    "the ratio by turns, where there is one": (
        ("", "subgrad", "1.000", "1.000", "1.000", "1.50", "100%", "100%", "4"),
    ),
    "two operands are three tensors": (("maximum(x, y)", "torch", "3.000", "6.000", "9.000", "-", "50%", "25%", "8"),),
    "what is overwritten is copied first": (("relu_", "torch", "4.000", "4.000", "8.000", "-", "50%", "25%", "0"),),
    "selections and rows of the past have no limit": (
        ("amax", "torch", "1.000", "0.5000", "2.000", "-", "-", "-", "0"),
        ("of the past", "torch", "1.000", "0.5000", "2.000", "-", "-", "-", "0"),
    ),
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "record.json"
    path.write_text(json.dumps(RECORD.to_json()))
    return path


class TestShow:
    @pytest.fixture
    def shown(self, stored: Path, capsys: Captured) -> str:
        assert main(["bench", "--show", str(stored)]) == 0
        return capsys.readouterr().out

    @pytest.mark.parametrize("expected", SHOWN.values(), ids=SHOWN)
    def test_says_of_each_row(self, shown: str, expected: tuple[tuple[str, ...], ...]) -> None:
        found = [
            tuple(cell.strip() for cell in line[1:-1].split("│")) for line in shown.splitlines() if line[:1] == "│"
        ]
        assert set(expected) <= set(found)

    def test_has_a_table_for_each_dtype_and_size(self, shown: str) -> None:
        titles = re.findall(r"^(\S+) entries, (\w+)", shown, re.MULTILINE)
        assert titles == [("1,024", "float32"), ("64", "float32"), ("1,024", "bfloat16")]

    def test_says_where_it_was_measured(self, shown: str) -> None:
        assert "a machine, torch 2.15.0, convention min-norm, without `subgrad build`." in shown

    def test_measures_nothing(self, stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(measure, "benchmark", None)
        assert main(["bench", "--show", str(stored)]) == 0


def test_a_record_comes_back_from_json_as_it_was() -> None:
    assert Benchmark.from_json(json.loads(json.dumps(RECORD.to_json()))) == RECORD


def test_no_contender_always_has_the_first_turn() -> None:
    class Once:
        def once(self) -> tuple[float, float, float]:
            return 1.0, 2.0, 3.0

    turns: Any = measure._by_turns(dict.fromkeys("abc", Once()), 3)  # type: ignore[arg-type]
    assert "".join(key for key, _ in turns) == "abccabbca"


def test_ratios_are_taken_turn_by_turn() -> None:
    """On a machine that is slow for half of the time, which the median of one contender falls into."""
    torchs, ours = (("relu", contender, "float32", 64) for contender in CONTENDERS)
    times = {
        torchs: [(1.0, 1.0, both) for both in (20.0, 20.0, 20.0, 40.0, 40.0)],
        ours: [(1.0, 1.0, both) for both in (10.0, 10.0, 20.0, 20.0, 20.0)],
    }
    assert measure._timing(ours, times, 0) == Timing(*ours, 1.0, 1.0, 20.0, 0, ratio=2.0)
    assert measure._timing(torchs, times, 0).ratio is None


@pytest.mark.parametrize(
    ("repeats", "device", "wanted"), [(24, "cpu", [8, 8, 8]), (10, "cpu", [5, 5]), (2, "cpu", [2]), (24, "cuda", [24])]
)
def test_processes_are_renewed_on_a_cpu(repeats: int, device: str, wanted: list[int]) -> None:
    assert measure.rounds(repeats, device, CONTENDERS) == wanted


@pytest.mark.skipif(not CAN_FORK, reason="processes tell of their surroundings elsewhere")
@pytest.mark.parametrize("plain", [False, True])
def test_plain_processes_have_the_allocator_as_it_comes(plain: bool) -> None:
    (row,) = rows(["relu"])
    with Apart(Convention("torch"), plain) as apart:
        assert all(time > 0 for time in apart.run(row, 64, torch.float32, "cpu", "torch", 0.001).once())
        assert apart._process is not None
        surroundings = Path(f"/proc/{apart._process.pid}/environ").read_text()
    assert ("MALLOC_TRIM_THRESHOLD_" in surroundings) is not plain


@pytest.mark.skipif(not CAN_FORK, reason="processes are not forked here")
class TestForked:
    """A turn in a process of its own."""

    class Turn:
        count = 0

        def once(self) -> tuple[int, int]:
            type(self).count += 1
            return os.getpid(), self.count

        def kept(self) -> int:
            raise ValueError("nothing is kept")

    class Killed:
        def once(self) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    def test_every_turn_is_the_first_of_a_process(self) -> None:
        forked = Forked(self.Turn)  # type: ignore[arg-type]
        (one, first), (other, second) = forked.once(), forked.once()
        assert len({one, other, os.getpid()}) == 3
        assert (first, second, self.Turn.count) == (1, 1, 0)

    def test_what_is_raised_there_is_raised_here(self) -> None:
        with pytest.raises(RuntimeError, match="ValueError: nothing is kept"):
            Forked(self.Turn).kept()  # type: ignore[arg-type]

    def test_a_process_that_ends_is_told_of(self) -> None:
        with pytest.raises(RuntimeError, match="the process of one turn ended with status 9"):
            Forked(self.Killed).once()  # type: ignore[arg-type]


class TestMeasuring:
    ROWS = ("--rows", "relu", "maximum(x, y)", "relu")
    ARGUMENTS = (*ROWS, "--sizes", "64", "--repeats", "2", "--dtypes", "bfloat16", "--again")

    @pytest.fixture(scope="class")
    def folder(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("bench")
        files = ("--json", str(folder / "record.json"), "--picture", str(folder / "picture.svg"))
        assert main(["bench", *self.ARGUMENTS, *files]) == 0
        return folder

    @pytest.fixture(scope="class")
    def record(self, folder: Path) -> Benchmark:
        return Benchmark.from_json(json.loads((folder / "record.json").read_text()))

    def test_takes_every_row_and_contender_once(self, record: Benchmark) -> None:
        found = [(each.row, each.contender, each.dtype, each.size) for each in record.timings]
        contenders = (*CONTENDERS, AGAIN)
        assert found == [(row, each, "bfloat16", 64) for row in ("relu", "maximum(x, y)") for each in contenders]

    def test_takes_time(self, record: Benchmark) -> None:
        assert all(min(each.forward, each.backward, each.both) > 0 for each in record.timings)

    def test_stores_where_and_how(self, record: Benchmark) -> None:
        assert (record.torch, record.convention) == (str(torch.__version__), "min-norm")
        assert record.command.startswith("subgrad bench --rows relu 'maximum(x, y)' relu --sizes 64 ")

    def test_draws(self, folder: Path) -> None:
        drawn = (folder / "picture.svg").read_text()
        assert drawn.startswith("<?xml")
        assert "<!-- maximum(x, y) -->" in drawn

    def test_leaves_nothing_else_behind(self, folder: Path) -> None:
        assert {path.name for path in folder.iterdir()} == {"record.json", "picture.svg"}

    def test_shows_what_it_stored(self, folder: Path, record: Benchmark, capsys: Captured) -> None:
        assert main(["bench", "--show", str(folder / "record.json")]) == 0
        output = capsys.readouterr().out
        assert all(milliseconds(each.both) in output for each in record.timings)


class TestAsked:
    """What reaches the measuring, with the measuring itself left out."""

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def benchmark(rows: Any, sizes: Any, dtypes: Any, **options: Any) -> Benchmark:
            options["progress"]("hypot: float32 is not for it (a reason)")
            asked.update(options, rows=[row.name for row in rows], sizes=sizes, dtypes=dtypes)
            return replace(RECORD, copies=RECORD.copies[:1], timings=RECORD.timings[:1])

        monkeypatch.setattr(measure, "benchmark", benchmark)
        return asked

    def test_nothing_means_every_row(self, asked: dict[str, Any]) -> None:
        assert main(["bench"]) == 0
        assert asked["rows"] == [row.name for row in rows()]
        assert (asked["sizes"], asked["dtypes"]) == ([4096, 1048576], [torch.float32])
        assert (asked["device"], asked["contenders"], asked["like"]) == ("cpu", CONTENDERS, Convention("min-norm"))

    def test_all_of_it(self, asked: dict[str, Any]) -> None:
        line = "--sizes 64,128,64 --dtypes float64,float16 --repeats 3 --compiled --again --plain --rows relu"
        assert main(["bench", *line.split(), "--convention", "mean,relu=1.0"]) == 0
        assert (asked["sizes"], asked["dtypes"]) == ([64, 128], [torch.float64, torch.float16])
        assert (asked["repeats"], asked["contenders"]) == (3, (*CONTENDERS, *COMPILED, AGAIN))
        assert (asked["like"], asked["rows"], asked["plain"]) == (Convention("mean", relu=1.0), ["relu"], True)

    def test_a_row_that_fails_is_named_with_the_reason(self, asked: dict[str, Any], capsys: Captured) -> None:
        assert main(["bench", "--rows", "relu", "hypot"]) == 0
        expected = "not measured: hypot, 1,024 float32\n  hypot: float32 is not for it (a reason)\n"
        assert capsys.readouterr().err == expected

    def test_where_every_row_fails_nothing_is_stored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
    ) -> None:
        monkeypatch.setattr(measure, "benchmark", lambda *_, **__: replace(RECORD, timings=()))
        assert main(["bench", "--rows", "relu", "--json", str(tmp_path / "r.json")]) == 1
        assert capsys.readouterr().err.endswith("there is nothing to show: no row was measured.\n")
        assert not list(tmp_path.iterdir())


class TestPicture:
    @pytest.mark.parametrize(("name", "begins"), [("picture.svg", b"<?xml"), ("picture.png", b"\x89PNG")])
    def test_is_written_as_its_name_says(self, stored: Path, name: str, begins: bytes) -> None:
        path = stored.with_name(name)
        assert main(["bench", "--show", str(stored), "--picture", str(path)]) == 0
        assert path.read_bytes().startswith(begins)

    def test_has_a_panel_for_each_dtype_at_its_largest_size(self) -> None:
        drawn = picture(RECORD).decode()
        assert re.findall(r"<!-- (.*?, [\d,]+ entries) -->", drawn) == [
            "float32, 1,024 entries",
            "bfloat16, 1,024 entries",
        ]

    @pytest.mark.parametrize(
        "label", ["relu", "maximum(x, y)", "torch", "torch, compiled", "subgrad", "% of the limit"]
    )
    def test_is_labelled(self, label: str) -> None:
        assert f"<!-- {label} -->" in picture(RECORD).decode()

    @pytest.mark.parametrize("label", ["amax", "of the past", "abs"])
    def test_leaves_out_what_has_no_limit_or_another_size(self, label: str) -> None:
        assert f"<!-- {label} -->" not in picture(RECORD).decode()

    def test_needs_a_row_with_a_limit(self) -> None:
        with pytest.raises(ValueError, match="there is nothing to draw"):
            picture(replace(RECORD, timings=RECORD.timings[7:8]))


NAMES = ", ".join(DTYPES)
REFUSED = {
    "row": ("--rows relu rleu", "argument --rows: unknown row 'rleu'. Known: clamp, clamp_min,"),
    "dtype": ("--dtypes float32,int8", f"argument --dtypes: unknown dtype 'int8'. Known: {NAMES}"),
    "device": ("--device tpu", "argument --device: 'tpu' is no device to measure on: cpu or cuda"),
    "convention": ("--convention rihgt", "argument --convention: unknown convention 'rihgt'. Did you mean 'right'?"),
    "size": ("--sizes 64,3", "argument --sizes: '3' is no whole number from 4 to 1099511627776"),
    "size that is none": ("--sizes 1e6", "argument --sizes: '1e6' is no whole number from 4 to 1099511627776"),
    "repeats": ("--repeats 0", "argument --repeats: '0' is no whole number from 1 to 1000"),
    "folder": ("--json no/r.json", "argument --json: 'no/r.json' cannot be written: 'no' is no folder to write to"),
    "file": ("--json .", "argument --json: '.' is a folder: name a file"),
    "picture": ("--picture p.pdf", "argument --picture: 'p.pdf' is no picture: name it .svg or .png"),
    "picture of nothing": ("--rows amax sort --picture p.svg", "argument --picture: none of these rows has a limit"),
    "missing record": ("--show no.json", "argument --show: can't open 'no.json': No such file or directory"),
    "broken record": ("--show broken.json", "argument --show: 'broken.json' is no record that subgrad bench --json"),
    "other JSON": ("--show other.json", "argument --show: 'other.json' is no record that subgrad bench --json wrote"),
    "no times": ("--show zero.json", "argument --show: 'zero.json' is no record that subgrad bench --json wrote"),
    "show and measure": ("--show record.json --sizes 64", "argument --show: shows what is stored; --sizes is for"),
    "show and store": ("--show record.json --json r.json", "argument --show: shows what is stored; --json is for"),
}


@pytest.mark.parametrize(("line", "message"), REFUSED.values(), ids=REFUSED)
def test_refuses_with_one_clear_message(
    line: str, message: str, stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(stored.parent)
    Path("broken.json").write_text('{"machine": ')
    Path("other.json").write_text('[{"operator": "relu"}]')
    zero = replace(RECORD, copies=(Copy("float32", 1024, 0.0),))
    Path("zero.json").write_text(json.dumps(zero.to_json()))
    before = set(Path().iterdir())
    with pytest.raises(SystemExit) as ended:
        main(["bench", *line.split()])
    output, said = capsys.readouterr()
    errors = [each for each in said.splitlines() if not re.match(r"usage: | ", each)]
    assert (ended.value.code, output, len(errors), set(Path().iterdir())) == (2, "", 1, before)
    assert errors[0].startswith(f"subgrad bench: error: {message}")


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_what_does_not_fit_is_said_and_nothing_is_written(
    error: RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    def benchmark(*_: Any, **__: Any) -> Benchmark:
        raise error

    monkeypatch.setattr(measure, "benchmark", benchmark)
    with pytest.raises(SystemExit) as ended:
        main(["bench", "--rows", "relu", "--json", str(tmp_path / "r.json"), "--picture", str(tmp_path / "p.svg")])
    assert (ended.value.code, list(tmp_path.iterdir())) == (2, [])
    assert capsys.readouterr().err.endswith(f"error: argument --sizes: too large for the memory here: {error}\n")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_refuses_a_device_that_is_not_there(capsys: Captured) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "--device", "cuda"])
    assert capsys.readouterr().err.endswith("argument --device: torch finds no CUDA device here: only cpu\n")


def test_says_what_to_install_before_it_measures(
    stored: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setattr("subgrad.cli.bench.find_spec", lambda name: None)
    path = stored.with_name("picture.svg")
    assert main(["bench", "--show", str(stored), "--picture", str(path)]) == 2
    assert capsys.readouterr().err == (
        "subgrad bench draws its picture with matplotlib, which is missing: pip install matplotlib.\n"
    )
    assert not path.exists()


class TestPage:
    STEPS = (
        {"network": "a network", "convention": "torch", "peak bytes": 3 * 2**30, "milliseconds": 30.0},
        {"network": "a network", "convention": "min-norm", "peak bytes": 2**30, "milliseconds": 20.0},
    )

    def test_is_what_the_script_would_write(self) -> None:
        page = (ROOT / "docs" / "speed.md").read_text()
        assert SPEED["filled"](page, RECORDS["stored"]()) == page, "run `make speed`"

    def test_every_record_has_a_page_that_the_script_would_write(self) -> None:
        folder = ROOT / "docs" / "records"
        written = {path.name: path.read_text() for path in folder.glob("*.md")}
        assert written == RECORDS["pages"](RECORDS["stored"]()), "run `make speed`"

    def test_names_machine_version_and_command(self) -> None:
        page = RECORDS["page"]("a record", RECORD.to_json())
        assert page.startswith("# a record\n\na machine, torch 2.15.0; [how to read it]")
        assert "```sh\nsubgrad bench --compiled\n```" in page

    def test_has_a_line_for_each_row(self) -> None:
        record = replace(RECORD, timings=RECORD.timings[:5])
        page = RECORDS["page"]("a record", record.to_json())
        both, backward = "4.000 | 2.000 | 3.000 | 2.500 | 4.100", "2.000 | 1.016 | 1.250 | 1.250 | 2.500"
        assert f"| `relu` | {both} | 2.00 | 1.20 | 0.98 | {backward} | 50% | 100% | 4 | 0.125 | 1 | 1 | 4 |\n" in page

    def test_has_a_line_for_each_program(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python"}
        cost = {"model": "MLP", "parameters": 1234, "hit": True, "plain_ms": 2.0, "subgrad_ms": 4.0, "time": 2.0}
        costs = [{**cost, "memory": None}, {**cost, "first": 3.5, "memory": 0.5}]
        page = RECORDS["page"]("programs", {**rest, "costs": costs})
        assert "| MLP | 1,234 | some | 2.000 | 4.000 | 2.00 times | - | - |\n" in page
        assert "| MLP | 1,234 | some | 2.000 | 4.000 | 2.00 times | 3.50 times | 0.50 times |\n" in page

    def test_has_a_line_for_each_model(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python", "dtype": "bfloat16", "batch": 128}
        own = {"model": "resnet18", "convention": "torch", "front": "", "milliseconds": 10.0, "peak bytes": 2 << 30}
        ours = {**own, "convention": "mean", "front": "built", "milliseconds ratio": 0.9, "peak bytes ratio": 0.75}
        summary = [{"geometric mean": 0.912}]
        page = RECORDS["page"]("zoo", {**rest, "pixels": 224, "steps": [own, ours], "summary": summary})
        assert "| resnet18 | 10.000 | 0.90 |\n| *geometric mean* |  | 0.912 |\n" in page
        assert "| resnet18 | 2.00 | 0.750 |" in page

    def test_has_a_line_for_each_small_step(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python", "convention": "torch-2.13"}
        programs = [{"program": "clamp", "torch microseconds": 17.25, "ratios": {"built": 0.8, "not built": 1.9}}]
        page = RECORDS["page"]("small", {**rest, "programs": programs})
        assert "| clamp | 17.2 | 0.80 | 1.90 |" in page

    def test_has_a_line_for_each_model_of_others(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python"}
        measured = [
            {"model": "resnet18", "what": "grad", "kinks": 1, "plain ms": 12.5, "ratio": 2.25},
            {"model": "resnet18", "what": "audit", "plain ms": 10.5, "ratio": 1.07},
        ]
        page = RECORDS["page"]("models", {**rest, "rows": measured})
        assert "| resnet18 | grad | 1 | 12.500 | 2.25 times |\n| resnet18 | audit | - | 10.500 | 1.07 times |" in page

    def test_has_a_line_for_each_pooling(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python", "limits": [0.5, 0.5, 1.0]}
        call = {"call": "max_pool2d(2)", "shape": [2, 3, 4, 4], "dtype": "torch.bfloat16", "channels last": True}
        times = {"torch": [1.0, 3.0, 4.0], "min-norm": [0.5, 1.0, 1.5], "ratios": [0.5, 0.25, 0.375]}
        page = RECORDS["page"]("pools", {**rest, "rows": [{**call, "ties": "all", **times}]})
        line = (
            "| `max_pool2d(2)` | 2x3x4x4 bfloat16, channels last | all | 1.000 | 0.5000 | 3.000 | 1.000 | 2.00 | 4.00 |"
        )
        assert line in page

    def test_has_a_line_for_each_threshold(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python", "dtype": "bfloat16", "batch": 256}
        swept = [{"network": "a network", "milliseconds": 30.0, "peak bytes": 3 << 30, "smallest packed": 65536}]
        page = RECORDS["page"]("networks", {**rest, "steps": self.STEPS, "thresholds": swept})
        assert "| 65,536 | 30.000 | 3.00 |\n" in page

    def test_has_a_line_for_each_network(self) -> None:
        rest = {"machine": "a machine", "torch": "2.15.0", "command": "python", "dtype": "bfloat16", "batch": 256}
        page = RECORDS["page"]("networks", {**rest, "steps": self.STEPS})
        assert "Batches of 256, bfloat16.\n" in page
        assert "| a network | 30.000 | 20.000 | 1.50 | 3.00 | 1.00 |\n" in page

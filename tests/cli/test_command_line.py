"""What all commands share: help at once, one line for what cannot be, plain text without rich, an end that is clean."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import subgrad
from subgrad import extras, survey
from subgrad.bench import measure
from subgrad.bench.measure import Benchmark, Copy, Timing
from subgrad.cli import _parser, arguments, main
from subgrad.cli.arguments import with_program
from subgrad.conventions import RULES

COMMANDS = ("survey", "explain", "run", "audit", "report", "bench", "build")
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(subgrad.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": ""}
Captured = pytest.CaptureFixture[str]

# --help.

LISTED = """
import contextlib, io, json, sys, time
start = time.process_time()
from subgrad.cli import main
said = {}
for command in (None, *sys.argv[1:]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
        main([*filter(None, [command]), "--help"])
    said[str(command)] = out.getvalue()
with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.suppress(SystemExit):
    main(["--version"])
said["--version"] = out.getvalue()
print(json.dumps({"said": said, "seconds": time.process_time() - start, "torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def helped() -> dict[str, Any]:
    line = [sys.executable, "-c", LISTED, *COMMANDS]
    return json.loads(subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout)


def test_help_of_all_commands_and_the_version_load_no_torch_and_take_no_time(helped: dict[str, Any]) -> None:
    assert not helped["torch"]
    assert helped["seconds"] < 0.3  # for nine of them


def test_the_version_names_those_of_torch_and_python(helped: dict[str, Any]) -> None:
    import torch

    name, torchs, python = helped["said"]["--version"].strip().split(", ")
    assert name == f"subgrad {subgrad.__version__}"
    assert str(torch.__version__).startswith(torchs.removeprefix("torch "))
    assert python == f"Python {sys.version.split()[0]}"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_a_description_and_two_examples_that_it_takes(
    command: str, helped: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("audit.json", "audit.rank*.json"):
        Path(name).write_text(subgrad.Audit().to_json())
    said = helped["said"][command]
    assert said.partition("\n\n")[2][0].isupper()
    examples = [shlex.split(line) for line in said.partition("examples:\n")[2].splitlines()]
    assert len(examples) >= 2
    for example in examples:
        words = example[example.index("subgrad") + 1 :]
        if "cuda" not in words:  # which there may be none of
            assert with_program(_parser(), words, argparse.Namespace()).command is not None


def test_the_conventions_that_help_names_are_those_there_are() -> None:
    assert tuple(RULES) == arguments.CONVENTIONS


# -m.


@pytest.mark.parametrize(
    ("line", "program", "is_module"),
    [
        ("run -m package.train --lr 1 -- -m other", ["package.train", "--lr", "1", "--", "-m", "other"], True),
        ("run --convention mean -mpackage.train -h", ["package.train", "-h"], True),
        ("run train.py -m package", ["train.py", "-m", "package"], False),
        ("audit --compare left right --every 2 -m package -m", ["package", "-m"], True),
        ("audit --nonfinite train.py -- -m x", ["train.py", "--", "-m", "x"], False),
    ],
)
def test_what_follows_a_script_or_module_is_its_own(line: str, program: list[str], is_module: bool) -> None:
    options = with_program(_parser(), line.split(), argparse.Namespace())
    assert (options.program, options.is_module) == (program, is_module)


SHOWN = """
import json, pickle, sys
class Point: pass
unpickled = type(pickle.loads(pickle.dumps(Point()))) is Point
print(json.dumps([sys.argv, __name__, __package__, __file__, __spec__.name, sys.path[0], unpickled]))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "__init__.py").write_text("import sys\nseen = list(sys.argv)\n")
    (folder / "__main__.py").write_text(SHOWN)
    (folder / "fails.py").write_text("def fail():\n    raise ValueError('mine')\n\n\nfail()\n")
    monkeypatch.chdir(tmp_path)
    for name, value in (("argv", sys.argv), ("path", [*sys.path])):
        monkeypatch.setattr(sys, name, value)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    for name in ("given", "given.fails", "given.__main__"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    subgrad.set_default("torch")


def test_a_module_sees_what_python_shows_it(package: Path, capsys: Captured) -> None:
    plain = subprocess.run([sys.executable, "-m", "given", "-m", "--"], cwd=package, capture_output=True, text=True)
    assert main(["run", "-m", "given", "-m", "--"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(plain.stdout)
    assert sys.modules["given"].seen == ["-m", "-m", "--"]  # as python has it on the way to the module


def test_an_error_of_a_module_is_shown_as_its_own(package: Path, capsys: Captured) -> None:
    assert main(["run", "-m", "given.fails"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == ["Traceback (most recent call last):", f'  File "{package}/given/fails.py", line 5, in <module>']
    assert said[-1] == "ValueError: mine"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run -m none.such", "subgrad run: Error while finding module specification for 'none.such' "),
        ("audit --no-compare -m nonesuch", "subgrad audit: No module named nonesuch"),
        ("run", "subgrad run: error: give a script, or a module after -m"),
        ("run -m", "subgrad run: error: argument -m: expected one argument"),
        ("audit --no-compare --compare left right x.py", "subgrad audit: error: argument --no-compare: not allowed"),
        (
            "survey --html /none/such.html",
            "subgrad survey: error: argument --html: '/none/such.html' cannot be written",
        ),
        ("nothing", "subgrad: error: argument COMMAND: invalid choice: 'nothing'"),
    ],
)
@pytest.mark.usefixtures("package")
def test_what_cannot_be_is_one_line(line: str, said: str, capsys: Captured) -> None:
    try:
        code = main(line.split())
    except SystemExit as ended:
        code = ended.code
    told = capsys.readouterr()
    assert (code, told.out, told.err.count("\n")) == (2, "", 1)
    assert told.err.startswith(said)


def test_a_file_that_cannot_be_written_in_the_end_is_one_line_and_loses_nothing_else(
    package: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("train.py").write_text("import torch\ntorch.zeros(2, requires_grad=True).clamp(min=0).sum().backward()\n")
    (package / "page.html.part").mkdir()  # where it is written first: whoever may write anywhere cannot write this
    assert main(["audit", "--html", "page.html", "--json", "audit.json", "train.py"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1] == f"subgrad audit: '{package}/page.html' cannot be written: Is a directory"
    assert said[-2].startswith("Upgrading from torch 2.13 to 2.14 changes 1 of 1 gradient, by 100.0% of its norm, ")
    assert subgrad.Audit.from_json(Path("audit.json").read_bytes()).hits == 2


# Ctrl-C.


def test_an_interrupt_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(survey, "places", interrupted)
    assert main(["survey", "relu"]) == 130
    assert capsys.readouterr() == ("", "subgrad survey: interrupted\n")


# Torch initialises NumPy from C++, which loses an exception of Python's.
INTERRUPTED_WHILE_IMPORTING = """
import signal, sys
from subgrad.cli import main

class Interrupting:
    def find_spec(self, name, *_):
        if name == "numpy.lib":
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(["survey", "relu"]))
"""


def test_an_interrupt_while_torch_is_imported_is_one_line() -> None:
    pytest.importorskip("numpy")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTING], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "subgrad survey: interrupted\n")


@pytest.mark.long
def test_a_benchmark_that_is_interrupted_keeps_its_rows_and_leaves_no_process_behind(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    line = "bench --rows relu --sizes 64 --repeats 80 --json record.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "subgrad", *line.split()],
        cwd=tmp_path,
        env={**ENVIRONMENT, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not record.exists():
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it, to all
    assert process.communicate()[1] == "subgrad bench: interrupted\n"
    assert process.returncode == 130
    kept = Benchmark.from_json(json.loads(record.read_text()))
    assert {(each.row, each.contender) for each in kept.timings} >= {("relu", "torch"), ("relu", "subgrad")}


# Without rich.


def a_record(**_: Any) -> Benchmark:
    times = (
        Timing("relu", "torch", "float32", 64, 0.001, 0.002, 0.003, 0),
        Timing("relu", "subgrad", "float32", 64, 0.001, 0.001, 0.002, 8, 1.5),
    )
    return Benchmark("a machine", "2.15.0", "min-norm", "", (Copy("float32", 64, 0.0005),), times)


def test_bench_needs_no_rich(capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setitem(sys.modules, "rich.table", None)
    monkeypatch.setattr(measure, "benchmark", lambda *_, **__: a_record())
    assert main(["bench", "--rows", "relu", "--sizes", "64"]) == 0
    title, names, *lines = capsys.readouterr().out.splitlines()
    assert title == "64 entries, float32"
    assert names.split()[:8] == ["row", "contender", "forward", "ms", "backward", "ms", "both", "ms"]
    assert [line.split()[:6] for line in lines[:2]] == [
        ["relu", "torch", "0.0010", "0.0020", "0.0030", "-"],
        ["relu", "subgrad", "0.0010", "0.0010", "0.0020", "1.50"],
    ]
    assert len({len(line) for line in (names, *lines[:2])}) == 1


# Packages that are not there.


def test_hints_name_the_packages_that_extras_bring() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    for extra, packages in extras.EXTRAS.items():
        (line,) = [each for each in text.splitlines() if each.startswith(f"{extra} = [")]
        assert tuple(word.partition(">=")[0] for word in line.split('"')[1::2]) == packages


def test_messages_ask_for_no_release_that_there_is_not() -> None:
    package = Path(subgrad.__file__).parent
    assert [path.name for path in package.rglob("*.py") if "pip install 'subgrad" in path.read_text()] == []


@pytest.mark.parametrize("package", ["lightning", "transformers"])
def test_a_logger_whose_package_is_missing_says_what_brings_it(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (package, "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ModuleNotFoundError, match=f"makes a callback of {package}, which is missing: pip install {package}."
    ):
        getattr(subgrad.loggers, package)()


def test_what_is_missing_inside_of_such_a_package_is_said_as_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="No module named 'of_theirs'"), extras.needed("this needs", "rich"):
        import of_theirs  # noqa: F401  # pyright: ignore[reportMissingImports]

"""``subgrad audit`` as users meet it: the script stays what it is, however it ends."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import subgrad
from subgrad.audit import Audit
from subgrad.cli import main

TRAIN = """
import os, sys, time
import torch

weight = torch.zeros(3, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.0)


def loss():
    return (weight.clamp(min=0) * torch.tensor([1.0, -2.0, 3.0])).sum()


for step in range(4):
    weight.grad = None
    loss().backward()
    optimizer.step()
    if step == 2 and sys.argv[1] == "raise":
        raise ValueError("mine")
    if step == 2 and sys.argv[1] == "exit":
        sys.exit(7)
    if step == 2 and sys.argv[1] == "wait":
        print("waiting", flush=True)
        time.sleep(60)
os.chdir("/")
print(sys.argv, __name__)
"""
STEEP = """
import torch

weight = torch.tensor([1.0, 1.5], requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=1.0)


def loss():
    root = weight.sqrt()
    return torch.where(weight > 2, root, 0.0).sum()


for step in range(2):
    optimizer.zero_grad()
    loss().backward()
    optimizer.step()
    with torch.no_grad():
        weight[0] = weight[0] - 1
print(weight.tolist())
"""
ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": str(Path(subgrad.__file__).parents[1]),
    "OMP_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "",  # importing torch takes longer than all the rest
}
COMMAND = [sys.executable, "-W", "ignore", "-m", "subgrad", "audit"]
OPTIONS = ["--every", "1", "--compare", "torch-2.13", "torch-2.14", "--json", "audit.json", "train.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands may be run in this process: what they set is set back."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


@pytest.mark.usefixtures("here")
def test_a_script_runs_as_it_is_and_leaves_its_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *OPTIONS, "through", "--own"]) == 0
    said = capsys.readouterr()
    assert said.out == "['train.py', 'through', '--own'] __main__\n"
    audit = Audit.from_json((folder / "audit.json").read_text())
    assert [(row.site.line, row.site.function, row.total.hits) for row in audit.rows] == [(10, "loss", 12)]
    assert "all because of train.py:10 (`clamp`)" in said.err
    page = (folder / "subgrad-audit.html").read_text()
    assert "all because of train.py:10 (`clamp`)" in page
    assert '<pre class="copy">with subgrad.use(&quot;torch-2.13&quot;):' in page


@pytest.mark.usefixtures("here")
def test_the_line_that_makes_a_gradient_nan_is_named_and_the_script_stays_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "steep.py").write_text(STEEP)
    assert main(["audit", "--nonfinite", "--json", "audit.json", "steep.py"]) == 0
    said = capsys.readouterr()
    assert said.out == "[nan, 1.5]\n"
    audit = Audit.from_json((folder / "audit.json").read_text())
    (found,) = audit.nonfinite
    assert (found.step, found.steps, audit.steps, audit.rows) == (1, 1, 2, ())
    assert found.line is not None
    assert found.mask is not None
    assert (found.line.site.line, found.mask.site.line) == (9, 10)
    assert "steep.py:9 (`sqrt`) is infinite or undefined at entry [0], where self = 0" in said.err
    assert "inside = torch.where(keep, weight, 1.0)" in said.err
    page = (folder / "subgrad-audit.html").read_text()
    assert "Gradients that became infinite or NaN" in page
    assert "inside = torch.where(keep, weight, 1.0)" in page


@pytest.mark.usefixtures("here")
def test_a_script_whose_gradients_are_finite_is_said_to_have_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", "--nonfinite", "train.py", "through"]) == 0
    assert "No gradient became infinite or NaN in 4 steps.\n" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_crash_leaves_the_report_and_the_traceback_of_the_script(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *OPTIONS, "raise"]) == 1
    assert Audit.from_json((folder / "audit.json").read_text()).recorded == (0, 1, 2)
    trace = capsys.readouterr().err.partition("written")[0].splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[1].endswith('train.py", line 18, in <module>')
    assert trace[-1] == "ValueError: mine"


@pytest.mark.usefixtures("here")
def test_each_rank_has_files_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(SystemExit):
        main(["audit", *OPTIONS, "exit"])
    assert {each.name for each in folder.iterdir()} == {"train.py", "audit.rank1.json", "subgrad-audit.rank1.html"}


@pytest.mark.usefixtures("here")
def test_an_exit_code_of_the_script_is_that_of_the_command(folder: Path) -> None:
    with pytest.raises(SystemExit, match="7"):
        main(["audit", *OPTIONS, "exit"])
    assert Audit.from_json((folder / "audit.json").read_text()).recorded == (0, 1, 2)


def test_an_interrupt_keeps_what_was_recorded_and_progress_is_shown(folder: Path) -> None:
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *OPTIONS, "wait"],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        # Who is started in the background of a shell inherits that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(terminal)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    said = _read(reader)
    assert process.wait(60) == 130
    assert "step 2, 3 hits" in said
    assert re.search(r"^subgrad audit: interrupted in train.py:\d+\r?$", said.replace("\r\x1b[K", "\n"), re.MULTILINE)
    assert "Traceback" not in said
    assert Audit.from_json((folder / "audit.json").read_text()).recorded == (0, 1, 2)


def _read(reader: int) -> str:
    found = b""
    try:
        while chunk := os.read(reader, 65536):
            found += chunk
    except OSError:  # nobody writes any more
        pass
    os.close(reader)
    return found.decode()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["report", "none.json"], "can't open 'none.json'"),
        (["report", __file__], "is no audit that subgrad wrote"),
        (["audit", "--every", "0", "train.py"], "no whole number from 1"),
        (["audit", "--compare", "torch", "tork", "train.py"], "unknown convention 'tork'"),
        (["audit", "--html", "/none/such.html", "train.py"], "cannot be written"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert said in capsys.readouterr().err


def test_a_script_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "none.py"]) == 2
    assert "subgrad audit: can't open 'none.py'" in capsys.readouterr().err

"""Build wheel and sdist, and try them where nothing else is: on every Python that is here, outside of this repository.

    make smoke
    .venv-uv/bin/python scripts/smoke.py --python 3.12 --keep /tmp/smoke

Each environment holds the package, torch and what torch needs. What is run is what a new user runs: every command, a
script and a module under a convention, an audit and its report, a gradient, and the messages for what is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
OLDEST = (3, 10)
TRAIN = """
import sys
import torch

weight = torch.tensor([0.0, 6.0, 1.0], requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.0)
for step in range(3):
    optimizer.zero_grad()
    (weight.clamp(0, 6) * torch.tensor([1.0, -2.0, 3.0])).sum().backward()
    optimizer.step()
print(sys.argv[1:], weight.grad.tolist())
"""
PROGRAM = """
import torch, subgrad

zero = torch.tensor(0.0, requires_grad=True)
with subgrad.use("right"):
    assert torch.autograd.grad(torch.relu(zero), zero)[0] == 1
assert subgrad.grad(lambda x: torch.relu(x) - torch.relu(-x))(torch.tensor(0.0)) == 1
assert subgrad.testing.gradcheck(torch.abs, torch.zeros(2, dtype=torch.float64))
try:
    subgrad.testing.find_kinks(torch.abs, (-1, 1))
except ModuleNotFoundError as error:
    print(error)
"""
# The arguments, the exit code, and what is printed.
COMMANDS: tuple[tuple[str, int, str], ...] = (
    ("subgrad --version", 0, r"^subgrad \d+\.\d+\.\d+, torch \d+\.\d+\S*, Python 3\.\d+\.\d+\n$"),
    ("subgrad --help", 0, r"survey .*explain .*run .*audit .*report .*bench .*build "),
    ("subgrad survey relu hypot", 0, r"relu"),
    ("subgrad survey --diff torch-2.13 torch-2.14 clamp", 0, r"clamp"),
    ("subgrad explain clamp", 0, r"pass-through"),
    ("subgrad explain F.relu(x)-F.relu(-x) --at x=0", 0, r"1"),
    ("subgrad run --convention torch-2.13 train.py a -m b", 0, r"\['a', '-m', 'b'\] \[1\.0, -2\.0, 3\.0\]"),
    ("subgrad run --convention min-norm -m package.train a", 0, r"\['a'\] \[0\.0, 0\.0, 3\.0\]"),
    ("subgrad audit --json audit.json train.py", 0, r"changes 1 of 1 gradient, by 59\.8% of its norm, all because of "),
    ("subgrad report audit.json --html report.html", 0, r"train\.py:9"),
    ("subgrad audit --fail-on-change train.py", 3, r"exit code 3: train\.py:9: `clamp`"),
    ("subgrad bench --rows relu --sizes 64 --repeats 1 --json bench.json", 0, r"64 entries, float32"),
    ("subgrad bench --show bench.json --picture p.svg", 2, r"^[^\n]* pip install matplotlib\.\n$"),
    ("subgrad run nowhere.py", 2, r"^subgrad run: can't open 'nowhere.py': No such file or directory\n$"),
    ("subgrad audit --html /proc/none/r.html train.py", 2, r"^[^\n]* cannot be written: [^\n]*\n$"),
    ("python program.py", 0, r"subgrad\.testing\.find_kinks draws .* pip install hypothesis\.\n"),
    ("python -m subgrad run train.py", 0, r"\[\] \["),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--python", action="append", default=[], help="a version or a path (default: all that are here)"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the environments, to look at them afterwards")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = (options.keep or Path(folder)).absolute()
        wheel, sdist = built(work / "dist")
        for python in options.python or interpreters():
            failed += not tried(python, wheel, work)
        first = (options.python or [sys.executable])[0]
        failed += not tried(first, sdist, work, "sdist", COMMANDS[:2])
    return failed


def built(folder: Path) -> tuple[Path, Path]:
    """A wheel and an sdist: the wheel holds the package alone, the sdist what builds the same wheel."""
    call([UV, "build", "--quiet", "--sdist", "--wheel", "--out-dir", folder, ROOT])
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {each for each in tops if not each.endswith(".dist-info")} == {"subgrad", "subgrad_pytest.py"}, tops
    assert {"subgrad/py.typed", "subgrad/kernels/native/fast_path.cpp"} <= set(names)
    again = folder / "again"
    call([UV, "build", "--quiet", "--wheel", "--out-dir", again, sdist])
    (other,) = again.glob("*.whl")
    assert zipfile.ZipFile(other).namelist() == names
    with tarfile.open(sdist) as archive:
        size = sum(member.size for member in archive.getmembers())
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, {len(names)} files; {sdist.name}: {size:,} bytes inside")
    return wheel, sdist


def interpreters() -> Iterator[str]:
    """One of each version from the oldest on: those that uv finds, and those of pyenv."""
    listed = subprocess.run(
        [UV, "python", "list", "--only-installed", "--output-format", "json"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = [each["path"] for each in json.loads(listed.stdout)]
    found += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
    known: set[tuple[int, ...]] = set()
    for path in found:
        asked = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
        version = tuple(map(int, asked.stdout.split()))
        if version >= OLDEST and version not in known:
            known.add(version)
            yield path


def tried(
    python: str, package: Path, work: Path, name: str = "wheel", commands: Sequence[tuple[str, int, str]] = COMMANDS
) -> bool:
    """Whether all goes well in an empty environment."""
    folder = work / f"{name}-{re.sub(r'[^0-9.]+', '-', python).strip('-.')}"
    call([UV, "venv", "--quiet", "--allow-existing", "--python", python, folder / "env"])
    call(
        [
            UV,
            "pip",
            "install",
            "--quiet",
            "--python",
            folder / "env/bin/python",
            "--reinstall-package",
            "subgrad",
            package,
        ]
    )
    call([UV, "pip", "check", "--quiet", "--python", folder / "env/bin/python"])
    (folder / "package").mkdir(exist_ok=True)
    (folder / "package/__init__.py").touch()
    for path, text in (("train.py", TRAIN), ("package/train.py", TRAIN), ("program.py", PROGRAM)):
        (folder / path).write_text(text)
    wrong = [each for each in commands if not goes_well(folder, *each)]
    packages = subprocess.run(
        [UV, "pip", "list", "--format", "freeze", "--python", folder / "env/bin/python"], capture_output=True, text=True
    ).stdout.split()
    torchs = next(each for each in packages if each.startswith("torch=="))
    well = len(commands) - len(wrong)
    print(f"{name}, {python}: {torchs}, {len(packages)} packages, {well} of {len(commands)} commands", flush=True)
    return not wrong


def goes_well(folder: Path, line: str, code: int, said: str) -> bool:
    environment = {name: each for name, each in os.environ.items() if not name.startswith("PYTHON")}
    environment["PATH"] = f"{folder / 'env/bin'}:{environment['PATH']}"
    done = subprocess.run(line.split(), cwd=folder, env=environment, capture_output=True, text=True)
    told = done.stdout + done.stderr
    if (
        done.returncode == code
        and re.search(said, told, re.DOTALL)
        and not (line.startswith("subgrad") and "Warning" in told)
    ):
        return True
    print(f"{line}: exit code {done.returncode}, not {code}, or it does not say {said!r}:\n{told}")
    return False


def call(command: Sequence[object]) -> None:
    subprocess.run(list(map(str, command)), check=True)


if __name__ == "__main__":
    sys.exit(main())

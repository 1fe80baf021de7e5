"""`subgrad survey --frameworks`: real packages, each in an environment and a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from recorded_frameworks import all_answers, answers

from subgrad.cli import main
from subgrad.report.frameworks_text import frameworks
from subgrad.survey.environments import cache_folder
from subgrad.survey.frameworks import PACKAGES, Answers, Returned, cases, chosen, measure, parsed, places
from subgrad.survey.frameworks.measure import WORKERS

Captured = pytest.CaptureFixture[str]
PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
unix = pytest.mark.skipif(sys.platform == "win32", reason="a script of the shell stands for an interpreter")


def lines(found: list[Answers], of: Any = None) -> list[str]:
    return [line.text for line in frameworks(found, cases() if of is None else of)]


class TestTorchItself:
    """The framework that is always there, measured as the others are."""

    def test_returns_what_is_recorded_of_its_version(self) -> None:
        found = measure("torch")
        assert found.failed is None
        recorded = answers("torch")
        if found.version != recorded.version:
            assert (found.version or "") < "2.14"
            wanted = {"clamp", "clamp_min", "clamp_max", "fmax", "fmin", "relu", "relu6", "hardtanh", "aminmax"}
            differing = {
                case["operator"]
                for case, one, other in zip(cases(), found.cases, recorded.cases, strict=True)
                if repr(reverse(one)) != repr(reverse(other))
            }
            assert {"clamp", "fmax"} <= differing <= wanted
        else:
            assert repr([*map(reverse, found.cases)]) == repr([*map(reverse, recorded.cases)])

    def test_is_shown_by_the_command(self, capsys: Captured) -> None:
        assert main(["survey", "relu", "clip", "--frameworks", "torch"]) == 0
        shown = capsys.readouterr()
        assert shown.err == "torch: measuring\n"
        assert "  self == 0: [0, 1]" in shown.out.splitlines()
        assert "    1/2  torch torch.maximum(x, 0)" in shown.out.splitlines()
        assert f"torch {torch.__version__.partition('+')[0]}: 5 spellings of 2 operations." in shown.out

    def test_is_json_for_machines(self, capsys: Captured) -> None:
        assert main(["survey", "relu", "--frameworks", "torch", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        (case,), (framework,) = found["cases"], found["frameworks"]
        assert case["operator"] == "relu"
        returned = framework["cases"][0]["F.relu"]
        assert returned["reverse"]["self"][1] == 0.0
        assert returned["forward"] == returned["reverse"]

    def test_sees_nothing_from_here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "torch.py").write_text("raise ImportError('the torch of here')\n")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        assert measure("torch", operators=["relu"]).failed is None


def reverse(by_spelling: Any) -> dict[str, Any]:
    return {name: (each.reverse, each.failed) for name, each in by_spelling.items()}


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in PACKAGES if name != "torch"])
def test_a_framework_that_is_there_returns_what_is_recorded(name: str) -> None:
    """Nothing is installed for this: `subgrad survey --frameworks` has made the environment, or it is skipped."""
    if not (cache_folder() / f"framework-{name}-newest-{PYTHON}").exists():
        pytest.skip(f"{name} has no environment here: subgrad survey --frameworks {name} makes it")
    found = measure(name)
    assert found.failed is None
    if found.version != answers(name).version:
        pytest.skip(f"{name} {found.version} is here, and {answers(name).version} is recorded")
    pairs = zip(map(reverse, found.cases), map(reverse, answers(name).cases), strict=True)
    assert all(same_to_rounding(one, other) for one, other in pairs)


def same_to_rounding(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for the last digits, in which processors differ."""
    if isinstance(one, float) and isinstance(other, float):
        return one == pytest.approx(other, rel=1e-6, abs=1e-6, nan_ok=True)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_to_rounding(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_to_rounding, one, other))
    return one == other


@unix
class TestFailures:
    @pytest.fixture
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("SUBGRAD_CACHE_DIR", str(tmp_path))
        return tmp_path

    def interpreter(self, cache: Path, name: str, script: str) -> None:
        folder = cache / f"framework-{name}-newest-{PYTHON}" / "bin"
        folder.mkdir(parents=True)
        (folder / "python").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "python").chmod(0o755)

    def test_a_framework_that_is_absent_is_a_line_and_the_others_are_shown(self, cache: Path, capsys: Captured) -> None:
        """An environment in which it is not installed: this one."""
        self.interpreter(cache, "mlx", f'exec "{sys.executable}" "$@"')
        assert main(["survey", "relu", "--frameworks", "mlx,torch"]) == 1
        shown = capsys.readouterr()
        said = "mlx was not measured: ModuleNotFoundError: No module named 'mlx'"
        assert f"subgrad survey: {said}" in shown.err
        assert said in shown.out.splitlines()
        assert any(line.startswith("    0  torch F.relu") for line in shown.out.splitlines())

    def test_one_that_crashes_is_a_line_too(self, cache: Path) -> None:
        self.interpreter(cache, "jax", "kill -SEGV $$")
        assert "exit code" in (measure("jax").failed or "")

    def test_one_that_cannot_be_installed_is_a_line_too(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        uv = cache / "bin" / "uv"
        uv.parent.mkdir()
        uv.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n[ "$1" = venv ] && exit 0\necho no such version >&2\nexit 1\n')
        uv.chmod(0o755)
        monkeypatch.setenv("PATH", f"{uv.parent}:/usr/bin:/bin")
        assert measure("paddle", "9.9.9").failed == "no such version"
        assert (uv.parent / "uv.log").read_text().splitlines()[-1].endswith("paddlepaddle==9.9.9 numpy setuptools")

    def test_a_spelling_that_fails_is_a_row(self) -> None:
        shown = lines([answers("tensorflow"), answers("jax")])
        start = next(i for i, line in enumerate(shown) if line.startswith("    fails: tensorflow tf.norm: ValueError"))
        assert "vector" in shown[start]


class TestText:
    def test_what_disagrees_comes_first(self) -> None:
        shown = lines(all_answers())
        titles = [line for line in shown if line.startswith("They ") and "(" in line]
        assert titles[0].startswith("They disagree (")
        assert titles[1].startswith("They agree (")
        assert shown.index("relu") < shown.index(titles[1])

    def test_fits_80_columns(self) -> None:
        assert max(map(len, lines(all_answers()))) <= 80

    def test_groups_spellings_by_what_they_return(self) -> None:
        shown = lines([answers("jax"), answers("tensorflow")], cases())
        start = shown.index("relu")
        assert shown[start : start + 6] == [
            "relu",
            "  self == 0: [0, 1]",
            "    0  jax jax.nn.relu; tensorflow tf.nn.relu, tf.maximum(0, x),",
            "       keras.activations.relu",
            "    1/2  jax jnp.maximum(x, 0)",
            "    1  tensorflow tf.maximum(x, 0)",
        ]

    def test_says_where_forward_mode_is_another(self) -> None:
        shown = "\n".join(lines([answers("mlx")]))
        assert "1/2, 0, 1/2 (forward: 1, 0, 0)" in shown

    def test_marks_what_is_no_element(self) -> None:
        shown = lines([answers("mlx"), answers("jax")])
        assert "    5/4 *  mlx nn.prelu" in shown
        assert "    1  jax jax.nn.leaky_relu" in shown

    def test_an_element_is_over_its_cotangent(self) -> None:
        """A gradient that drops its cotangent would be seen: it is planted."""
        (index, place) = next(each for each in places(cases()) if each[1].case["operator"] == "relu")
        returned = answers("jax").cases[index]["jnp.maximum(x, 0)"]
        assert place.element(returned.reverse) == (0.5,)
        ones = Returned(value=returned.value, reverse={"self": [1.0] * len(place.case["cotangent"])})
        assert place.element(ones.reverse) != (0.5,)


class TestNames:
    def test_have_versions_or_not(self) -> None:
        assert parsed("jax") == ("jax", None)
        assert parsed("jax==0.10.2") == ("jax", "0.10.2")

    @pytest.mark.parametrize("text", ["flax", "jax==", "jax==1; rm", "jax==../x", "", "jax>=1"])
    def test_that_are_none_are_refused(self, text: str, capsys: Captured) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["survey", "--frameworks", text])
        assert ended.value.code == 2
        assert "argument --frameworks" in capsys.readouterr().err

    def test_operations_that_are_unknown_name_the_nearest(self, capsys: Captured) -> None:
        with pytest.raises(SystemExit):
            main(["survey", "reluu", "--frameworks", "torch"])
        assert "Did you mean 'relu'?" in capsys.readouterr().err

    def test_operations_beyond_the_table_can_be_asked_for(self) -> None:
        assert {case["operator"] for case in chosen(["relu(x) - relu(-x)"])} == {"relu(x) - relu(-x)"}

    def test_every_framework_has_a_worker_that_imports_it_and_numpy_alone(self) -> None:
        for name, package in PACKAGES.items():
            source = (WORKERS / f"with_{name}.py").read_text()
            assert "subgrad" not in source.replace("without subgrad", "")
            assert package.wanted("1.2")[0].endswith("==1.2")

    def test_workers_run_without_this_package(self, tmp_path: Path) -> None:
        """By its path, from anywhere."""
        script = WORKERS / "with_torch.py"
        command = [sys.executable, "-W", "ignore", script]
        done = subprocess.run(command, input="[]", capture_output=True, text=True, cwd=tmp_path, check=True)
        assert json.loads(done.stdout)["cases"] == []

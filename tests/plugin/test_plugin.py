"""The pytest plugin over suites in processes of their own: what is in force, what is counted, what is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from plugin.suite import KINKED, Run, run

# Under --subgrad mean.
CONVENTIONS = """
from kinked import *
import subgrad

AT_IMPORT = element()


@pytest.fixture(scope="module")
def of_module():
    return element()


@pytest.fixture(scope="module")
def of_module_too():
    return element()


@pytest.fixture
def of_test():
    before = element()
    yield before
    assert element() == 0.5  # the marker has ended


def test_the_suite_is_under_the_convention(of_module, of_test):
    assert (AT_IMPORT, of_module, of_test, element()) == (0.5, 0.5, 0.5, 0.5)


@pytest.mark.subgrad("torch-2.13")
def test_a_marker_is_for_one_test_and_its_fixtures(of_module, of_test):
    assert (of_module, of_test, element()) == (0.5, 1.0, 1.0)


@pytest.mark.subgrad("torch-2.13")
def test_a_fixture_of_a_module_that_is_not_marked_is_not_under_it(request):
    assert (request.getfixturevalue("of_module_too"), element()) == (0.5, 1.0)


def test_what_a_marker_chose_has_ended():
    assert element() == 0.5


@pytest.mark.subgrad(subgrad.Convention("min-norm", clamp="pass-through"))
class TestMarked:
    @pytest.fixture(scope="class")
    def of_class(self):
        return element()

    def test_the_fixtures_of_a_class_are_under_its_marker(self, of_class):
        assert (of_class, element()) == (1.0, 1.0)

    @pytest.mark.subgrad("min-norm")
    def test_the_closest_marker_counts(self):
        assert element() == 0.0

    def test_threads_that_begin_in_a_test_are_under_it_too(self):
        found = []
        thread = threading.Thread(target=lambda: found.append(element()))
        thread.start()
        thread.join()
        assert found == [1.0]


@pytest.mark.subgrad("torch-2.13")
def test_a_use_inside_counts_more():
    with subgrad.use("min-norm"):
        assert element() == 0.0
    assert element() == 1.0


def test_a_failure_stays_one():
    assert element() == 0.25
"""
BAD = """
import pytest


@pytest.mark.subgrad("tork")
def test_unknown():
    pass


@pytest.mark.subgrad()
def test_nothing_given():
    pass


@pytest.mark.subgrad("min-norm", "mean")
def test_too_much_given():
    pass
"""
WATCHED = """
from kinked import *


@pytest.fixture
def graph():
    x = torch.zeros(2, requires_grad=True)
    return x, x.clamp(0, 1)


def test_backward():
    element()


def test_grad():
    x = torch.tensor([0.0, 2.0, -1.0], requires_grad=True)
    torch.autograd.grad((kinked(x) * COTANGENT).sum(), x)


def test_a_graph_from_a_fixture(graph):
    x, y = graph
    (y * torch.tensor([2.0, 3.0])).sum().backward()


def test_no_kink():
    x = torch.tensor([0.0, 2.0, -1.0], requires_grad=True)
    x.exp().sum().backward()


def test_away_from_kinks():
    x = torch.tensor([0.5, 2.0, -1.0], requires_grad=True)
    (kinked(x) * COTANGENT).sum().backward()


def test_a_hit_that_no_version_decides():
    x = torch.zeros(3, requires_grad=True)
    (x.relu() * COTANGENT).sum().backward()


def test_that_fails():
    assert element() == 7


def test_that_is_skipped():
    pytest.skip("not today")
"""
# None of the process that pytest begins is of torch.
BARE = """
import sys


def test_nothing_is_imported():
    assert not {"torch", "subgrad", "numpy", "rich"} & set(sys.modules)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kinked.py").write_text(KINKED)
    return tmp_path


def of(folder: Path, text: str, *options: str, **others: Any) -> Run:
    (folder / "test_suite.py").write_text(text)
    return run(folder, *options, **others)


@pytest.mark.parametrize("options", [(), ("-n", "1"), ("-p", "no:subgrad", "-n", "1")])
def test_without_an_option_nothing_is_imported(folder: Path, options: tuple[str, ...]) -> None:
    assert of(folder, BARE, *options, imported=()).outcomes == {"passed": 1}


def test_without_the_plugin_its_options_and_its_marker_are_unknown(folder: Path) -> None:
    without = run(folder, "-p", "no:subgrad", "--subgrad", "mean")
    assert (without.code, "unrecognized arguments: --subgrad" in without.err) == (4, True)
    assert "'subgrad' not found in `markers`" in of(folder, BAD, "-p", "no:subgrad", "--strict-markers").out


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_suite_and_a_test_run_under_their_conventions(folder: Path, workers: tuple[str, ...]) -> None:
    done = of(folder, CONVENTIONS, "--strict-markers", "--subgrad", "mean", *workers)
    assert done.outcomes == {"passed": 8, "failed": 1}, done.out
    assert "FAILED test_suite.py::test_a_failure_stays_one - assert 0.5 == 0.25" in done.out
    assert "subgrad: --subgrad=mean" in done.out


HITS = [
    ["test", "hits", "entries", "share", "lines", "most of them"],
    ["test_suite.py::test_backward", "3", "3", "100.0%", "1", "kinked.py:11 (`clamp`)"],
    ["test_suite.py::test_that_fails", "3", "3", "100.0%", "1", "kinked.py:11 (`clamp`)"],
    ["test_suite.py::test_a_hit_that_no_version_decides", "3", "3", "100.0%", "1", "test_suite.py:37 (`relu`)"],
    ["test_suite.py::test_a_graph_from_a_fixture", "2", "4", "50.0%", "1", "test_suite.py:8 (`clamp`)"],
    ["test_suite.py::test_grad", "1", "3", "33.3%", "1", "kinked.py:11 (`clamp`)"],
]
# 2 before and -1 after at the kinks; at 2 and -1, between them, it is 2 and -1 both times, times the cotangent.
CHANGES = [
    ["test", "size", "entries", "signs", "because of"],
    ["test_suite.py::test_backward", "150.0%", "3 of 3", "3", "kinked.py:11 (`clamp`)"],
    ["test_suite.py::test_grad", f"{3 / (2**2 + 4**2 + 4**2) ** 0.5:.1%}", "1 of 3", "1", "kinked.py:11 (`clamp`)"],
    ["test_suite.py::test_a_graph_from_a_fixture", "100.0%", "2 of 2", "0", "test_suite.py:8 (`clamp`)"],
    ["test_suite.py::test_that_fails", "150.0%", "3 of 3", "3", "kinked.py:11 (`clamp`)"],
]


def cells(lines: list[str]) -> list[list[str]]:
    return sorted(re.split(" {2,}", line) for line in lines)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_tables_say_what_each_test_met(folder: Path, workers: tuple[str, ...]) -> None:
    done = of(folder, WATCHED, "--subgrad-audit", "--subgrad-compare", "torch-2.13,torch-2.14", *workers)
    assert done.outcomes == {"passed": 6, "failed": 1, "skipped": 1}
    *hits, said = done.section("subgrad: hits")
    assert cells(hits) == sorted(HITS)
    assert said == "12 hits, in 5 of 8 tests."
    *changes, said = done.section("subgrad: gradients under torch-2.13 and torch-2.14")
    assert cells(changes) == sorted(CHANGES)
    assert said == "The gradients of 4 tests depend on it, of 7 that were compared, of 8 in all."


def test_three_conventions_are_compared_and_overrides_stay_with_theirs(folder: Path) -> None:
    compared = "torch-2.13,torch-2.14,min-norm,clamp=mean"
    done = of(folder, WATCHED, "--subgrad-compare", compared, "-k", "test_backward or test_that_fails")
    title = "subgrad: gradients under torch-2.13 and torch-2.14 and Convention('min-norm', clamp='mean')"
    sizes = [row[1] for row in cells(done.section(title)[:-1]) if row[0].endswith("test_backward")]
    assert sizes == ["150.0% (torch-2.14)", "75.0% (Convention('min-norm', clamp='mean'))"]
    assert "subgrad: hits" not in done.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--subgrad", "tork"), "--subgrad=tork: unknown convention 'tork'. Did you mean 'torch'?"),
        (("--subgrad-compare", "torch-2.13", "-n", "2"), "give two conventions or more, as in torch-2.13,torch-2.14"),
    ],
)
def test_a_bad_option_is_one_usage_error(folder: Path, options: tuple[str, ...], said: str) -> None:
    done = of(folder, BARE, *options)
    assert done.code == 4
    (line,) = [line for line in done.err.splitlines() if line]
    assert line.startswith("ERROR: ")
    assert said in line
    assert "passed" not in done.out


def test_a_bad_marker_fails_its_test_in_one_line(folder: Path) -> None:
    done = of(folder, BAD, "-n", "1")
    assert done.outcomes == {"failed": 3}
    for given, said in [
        ("'tork'", "unknown convention 'tork'. Did you mean 'torch'?"),
        ("", "give one convention, as in subgrad('torch-2.13')"),
        ("'min-norm', 'mean'", "give one convention, as in subgrad('torch-2.13')"),
    ]:
        assert f"\n@pytest.mark.subgrad({given}): {said}" in done.out
    assert "Traceback" not in done.out

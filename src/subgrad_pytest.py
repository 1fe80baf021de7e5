"""The pytest plugin: a suite under a convention, audited, or compared; torch is imported only if that is asked for.

It stands beside the package and imports nothing of it, since pytest loads its plugins in every project that happens to
have them installed.
"""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

MARKER = "subgrad(convention): run the test, and fixtures of its scope, under a convention: subgrad('torch-2.13')"
WATCHING = "subgrad-watching"
_met: pytest.StashKey[dict[str, Any]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("subgrad", "gradients at points without a derivative (subgrad)")
    group.addoption("--subgrad", metavar="CONVENTION", help="run the suite under a convention, as in torch-2.13")
    group.addoption("--subgrad-audit", action="store_true", help="end with a table of the kinks that each test hits")
    group.addoption(
        "--subgrad-compare",
        metavar="NAME,NAME",
        help="list the tests whose gradients differ between conventions, as in torch-2.13,torch-2.14",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", MARKER)
    convention, compared = config.getoption("--subgrad"), config.getoption("--subgrad-compare")
    if convention is not None:
        kept = ExitStack()
        kept.enter_context(_everywhere(_given("--subgrad", convention)))
        config.add_cleanup(kept.close)
    if compared is not None or config.getoption("--subgrad-audit"):
        given = () if compared is None else _pair("--subgrad-compare", compared)
        config.pluginmanager.register(Watching(config, given), WATCHING)


def pytest_report_header(config: pytest.Config) -> str | None:
    said = [
        f"{option}={value}"
        for option in ("--subgrad", "--subgrad-compare")
        if (value := config.getoption(option)) is not None
    ]
    return f"subgrad: {', '.join(said)}" if said else None


# What is given, checked.


def _given(name: str, text: str) -> Any:
    from subgrad.cli.arguments import convention

    try:
        return convention(text)
    except ArgumentTypeError as error:
        raise pytest.UsageError(f"{name}={text}: {error}") from None


def _pair(name: str, text: str) -> tuple[Any, ...]:
    """Conventions with commas between them; what single operators do instead follows the one it belongs to."""
    from subgrad.cli.arguments import split_conventions

    found = tuple(_given(name, each) for each in split_conventions(text))
    if len(found) < 2:
        raise pytest.UsageError(f"{name}={text}: give two conventions or more, as in torch-2.13,torch-2.14")
    return found


# A convention in force.

_around: list[Any] = []  # the suite's own convention, while that of a marker is in force


@contextmanager
def _everywhere(convention: Any) -> Iterator[None]:
    """The default of the process, which holds in threads that begin meanwhile as well."""
    from subgrad.apply import scopes
    from subgrad.apply.use import set_default

    before = scopes.default
    set_default(convention)
    try:
        yield
    finally:
        set_default(before)


@contextmanager
def _in_force(node: Any) -> Iterator[None]:
    """What the marker of a test says, or of the class or module that a fixture is made for."""
    marker = node.get_closest_marker("subgrad")
    if marker is None and not _around:
        yield
        return

    from subgrad.apply.scopes import active
    from subgrad.apply.use import use

    # A fixture that a marked test asks for may be of a module that is not marked.
    chosen = _around[0] if marker is None else _of(marker)
    _around.append(active())
    try:
        with _everywhere(chosen), use(chosen):
            yield
    finally:
        _around.pop()


def _of(marker: pytest.Mark) -> Any:
    """The convention that a marker names. A wrong one fails its test.

    Not the session, while tests are collected: of an error there in a worker, pytest-xdist says nothing.
    """
    from subgrad.conventions import Convention, convention

    wrong = "give one convention, as in subgrad('torch-2.13')"
    if len(marker.args) == 1 and not marker.kwargs and isinstance(marker.args[0], str | Convention):
        try:
            return convention(marker.args[0])
        except ValueError as error:
            wrong = str(error)
    given = [*map(repr, marker.args), *(f"{name}={value!r}" for name, value in marker.kwargs.items())]
    pytest.fail(f"@pytest.mark.subgrad({', '.join(given)}): {wrong}", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(request: Any) -> Any:
    with _in_force(request.node):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Any:
    with _in_force(item):
        return (yield)


# Every test watched.


class Watching:
    """Every test is audited, from its fixtures on; what it met goes along with its report, from other processes too."""

    def __init__(self, config: pytest.Config, compared: tuple[Any, ...]):
        self.config, self.compared = config, compared
        self.met: dict[str, dict[str, Any]] = {}
        self.session: Any = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Any:
        from subgrad.audit import audit

        self.session = audit(compare=self.compared, every=1, compare_every=1, compare_grad=True)
        self.session.__enter__()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Any:
        from subgrad.report.suite_text import met

        if self._end():
            item.stash[_met] = met(self.session.result)
        return (yield)

    def pytest_sessionfinish(self) -> None:
        self._end()  # of a test that ended the session, and was not torn down

    def _end(self) -> bool:
        """End the audit of a test; whether there was one."""
        if self.session is None or self.session.has_ended:
            return False
        self.session.__exit__(None, None, None)
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "teardown" and _met in item.stash:
            report.subgrad_met = item.stash[_met]
        return report

    def pytest_runtest_logreport(self, report: Any) -> None:
        if hasattr(report, "subgrad_met"):
            self.met[report.nodeid] = report.subgrad_met

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        from subgrad.report import suite_text

        tables = {"subgrad: hits": suite_text.hits} if self.config.getoption("--subgrad-audit") else {}
        if self.compared:
            names = " and ".join(map(str, self.compared))
            tables[f"subgrad: gradients under {names}"] = suite_text.changes
        for title, table in tables.items():
            terminalreporter.section(title)
            for line in table(self.met, (self.config.getoption("verbose") or 0) > 0):
                terminalreporter.write_line(line)

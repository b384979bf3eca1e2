"""The run of `make quick`: the tests that need no package beyond the group `unit`, and no more than a moment.

Two rules choose the tests, and no list is kept by hand. An expression of pytest in the Makefile leaves out tests with
the mark `slow` or `long`. This plugin leaves out tests that import other packages than the dependencies, the extra
`tools`, the group `unit`, and the packages that come with these. In a larger environment it hides such packages, so
that every environment runs the same tests. At the end it counts the tests that were left out, by package.

It does not look for programs. A test that needs one skips and names it, as in every run.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from testkit import timing
from testkit.project import DEPENDENCIES, EXTRAS, of_group
from testkit.skips import LEFT_OUT

ROOT = Path(__file__).resolve().parents[1]
GROUP = "unit"
#: A test that takes longer is named at the end. The house marks it `slow` from a quarter of a second on, and a busy
#: machine takes its time: this is four times as much.
LONG_S = 1.0


def of_the_project() -> list[Requirement]:
    """Return what pyproject.toml asks for in the environment of `make quick`."""
    return [Requirement(text) for text in (*DEPENDENCIES, *EXTRAS["tools"], *of_group(GROUP))]


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """Return the names of all distributions that `requirements` bring into an environment."""
    found: set[str] = set()
    waiting = list(requirements)
    seen: set[tuple[str, str]] = set()
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        found.add(name)
        for extra in {"", *requirement.extras} - {extra for other, extra in seen if other == name}:
            seen.add((name, extra))
            try:
                texts = requires(name) or []
            except PackageNotFoundError:
                continue
            asked = map(Requirement, texts)
            waiting += [one for one in asked if one.marker is None or one.marker.evaluate({"extra": extra})]
    return found


def hidden(provided: Mapping[str, Sequence[str]], allowed: set[str]) -> set[str]:
    """Return the top-level modules that only distributions outside `allowed` provide."""
    return {
        module
        for module, distributions in provided.items()
        if not any(canonicalize_name(name) in allowed for name in distributions)
    }


def is_ours(module: str, root: Path = ROOT) -> bool:
    """Return True if a top-level module is the standard library's or stands in this repository."""
    if module in sys.stdlib_module_names:
        return True
    homes = [root, *(root / part for part in ("wire", "log", "raft", "worlds", "spark", "spark/segments"))]
    return any((home / module).is_dir() or (home / f"{module}.py").is_file() for home in homes)


class Hide(MetaPathFinder):
    """Answer an import of one of `modules` as an environment does that does not have it."""

    def __init__(self, modules: set[str]) -> None:
        self._modules = modules

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in self._modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def missing_package(error: BaseException | None) -> str | None:
    """Return the package from outside whose absence raised `error`, or None if something else did."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return None
    package = error.name.partition(".")[0]
    return None if is_ours(package) else package


def forget(path: Path) -> None:
    """Remove the half of a module that its failed import left, or the next file that imports it gets that half."""
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(path):
            del sys.modules[name]


class Quick:
    """Turn a test that lacks a package into one that is left out, and count those at the end."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.long: dict[str, float] = {}

    def pytest_collection(self) -> None:
        """Collecting thousands of tests makes no garbage, and looking for it takes a third of the time."""
        gc.disable()

    def pytest_collection_finish(self) -> None:
        """No later search for garbage looks at what was collected here."""
        gc.freeze()
        gc.enable()

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        report: pytest.CollectReport = yield  # type: ignore[assignment]
        call = getattr(report, "call", None)
        # A module raises CollectError, and what was raised within it is its cause.
        error = call.excinfo.value if call is not None and call.excinfo is not None else None
        package = missing_package(error) or missing_package(getattr(error, "__cause__", None))
        if report.failed and package is not None:
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), 0, f"{LEFT_OUT}{package}")
            report.result = []
            forget(collector.path)
        return report  # type: ignore[return-value]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        report: pytest.TestReport = yield  # type: ignore[assignment]
        error = call.excinfo.value if call.excinfo is not None else None
        # Our own ImportError that says what to install has the missing module as its cause.
        package = missing_package(error) or missing_package(getattr(error, "__cause__", None))
        if report.failed and package is not None:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), 0, f"{LEFT_OUT}{package}")
        return report  # type: ignore[return-value]

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Count them apart: pytest lists skips one by one, and these are no news."""
        package = package_of(report)
        return None if package is None else ("left out", "", "")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._count(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._count(report)
        if report.when == "call" and report.duration > LONG_S:
            self.long[report.nodeid] = report.duration

    def _count(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        package = package_of(report)
        if package is not None:
            self.left_out[package] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.long:
            terminalreporter.section("longer than a second, and not marked `slow`")
            for nodeid, seconds in sorted(self.long.items(), key=lambda item: -item[1]):
                terminalreporter.write_line(f"{seconds:8.1f} s  {nodeid}")
        if not self.left_out:
            return
        terminalreporter.section("left out: files and tests that need a package beyond the group `unit`")
        for package, count in self.left_out.most_common():
            terminalreporter.write_line(f"{count:5d}  {package}")


def package_of(report: pytest.TestReport | pytest.CollectReport) -> str | None:
    """Return the package for which a test was left out, or None if it was not."""
    reason = report.longrepr[2] if report.skipped and isinstance(report.longrepr, tuple) else ""
    return reason.removeprefix(LEFT_OUT) if reason.startswith(LEFT_OUT) else None


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Hide packages only now, when the plugins of other packages are loaded, and the conftest is done."""
    # Only `make test` needs the time of each folder, which takes three looks into /proc for each test.
    config.pluginmanager.unregister(name=timing.NAME)
    sys.meta_path.insert(0, Hide(hidden(packages_distributions(), needed(of_the_project()))))
    config.pluginmanager.register(Quick(), "quick")

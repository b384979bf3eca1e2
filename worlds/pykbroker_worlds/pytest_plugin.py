"""pytest: `@pytest.mark.kafka_world(seeds=100, brokers=3)` and the fixture `kafka_world`, a `World`.

A marked test is run once for each seed, each time in a fork of a worker process (worker.py) that has imported the test
module and has run nothing. The test may be a coroutine: it is then a process of the world. The first seed that fails is
the failure of the test, and `--kafka-seed N` runs that seed alone.

Nothing of pykbroker is imported until a marked test runs.
"""

from __future__ import annotations

import inspect
import os
import tempfile
import time
from collections.abc import Generator, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest

if TYPE_CHECKING:
    from pykbroker_worlds.worker import Answer, Request, Worker
    from pykbroker_worlds.world import World

_SEED: Final = "--kafka-seed"
#: The real time in which a failure is shrunk.
_SHRINK_SECONDS: Final = 60.0
_WORKER: Final = pytest.StashKey["tuple[str, Worker]"]()
#: where forks leave what coverage has measured
_MEASURED: Final = pytest.StashKey["tempfile.TemporaryDirectory[str]"]()
#: Packages whose version is a part of what a seed means.
_VERSIONED: Final = ("pykbroker", "aiokafka", "faststream")


class _Playing:
    """The world of this process, which is a fork of a worker."""

    seed: int | None = None
    kept: list[str] | None = None
    world: World | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--kafka-seed`."""
    parser.getgroup("pykbroker worlds").addoption(
        _SEED,
        type=_chosen,
        metavar="N[:EVENTS]",
        help="run the tests with the mark kafka_world with this seed alone, and of its events only these: 7:0,3,s1",
    )


def _chosen(text: str) -> _Chosen:
    """Parse the value of `--kafka-seed`: "7", or "7:0,s1" for two of its events, or "7:" for none."""
    seed, colon, events = text.partition(":")
    return _Chosen(int(seed), [label.strip() for label in events.split(",") if label.strip()] if colon else None)


class _Chosen(NamedTuple):
    """A seed, and the labels of the events that happen (selection.py), None for all."""

    seed: int
    kept: list[str] | None

    def __str__(self) -> str:
        return f"{self.seed}" if self.kept is None else f"{self.seed}:{','.join(self.kept)}"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        'kafka_world(seeds=100, brokers=1, config=None, limit="1 h"): run the test on virtual time, once for each '
        "seed; the fixture kafka_world is its world",
    )


@pytest.fixture
def kafka_world(request: pytest.FixtureRequest) -> World:
    """The world of this seed, for a test with the mark `kafka_world`."""
    from pykbroker_worlds.world import World

    marker = request.node.get_closest_marker("kafka_world")
    if marker is None or _Playing.seed is None:
        raise pytest.UsageError("the fixture kafka_world is for tests with @pytest.mark.kafka_world")
    mark = _Mark(**marker.kwargs)
    _Playing.world = World(_Playing.seed, mark.brokers, mark.config, _Playing.kept)
    return _Playing.world


class _Mark(NamedTuple):
    """The arguments of the mark. `limit`: the virtual time that a test which is a coroutine may take."""

    seeds: int = 100
    brokers: int = 1
    config: dict[str, str] | None = None
    limit: str | float = "1 h"


# -- in a fork of a worker --------------------------------------------------------------------------------------------


def begin_world(item: pytest.Item, seed: int, kept: list[str] | None) -> None:
    """Let `item` be run in a world of this seed. Refuses asynchronous fixtures: they would run on another loop."""
    assert isinstance(item, pytest.Function)
    _Playing.seed, _Playing.kept = seed, kept
    fixtures = item._fixtureinfo.name2fixturedefs
    asynchronous = sorted(
        name
        for name in fixtures
        for found in fixtures[name][-1:]
        if inspect.iscoroutinefunction(found.func) or inspect.isasyncgenfunction(found.func)
    )

    def run_test() -> None:
        if asynchronous:
            pytest.fail(f"asynchronous fixtures do not run in a world, make them in the test: {asynchronous}", False)
        from pykbroker_worlds.checking.judge import ClaimFailed

        arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
        function = item.obj
        try:
            if inspect.iscoroutinefunction(function):
                assert _Playing.world is not None, "the test does not use the fixture kafka_world"
                marker = item.get_closest_marker("kafka_world")
                assert marker is not None
                _Playing.world.run(lambda: function(**arguments), limit=_Mark(**marker.kwargs).limit)
            else:
                function(**arguments)
        except ClaimFailed as error:
            story = str(error)
        else:
            return
        # The lines of a test say nothing about what its applications did.
        pytest.fail(story, pytrace=False)

    # Plugins for asyncio replace this method in a class of theirs.
    item.runtest = run_test  # type: ignore[method-assign]


def end_world() -> World | None:
    return _Playing.world


# -- in pytest's own process ------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    marker = item.get_closest_marker("kafka_world")
    if marker is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in _reports(item, marker):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    # Fixtures of larger scopes end as they would after a test of this process.
    item.session._setupstate.teardown_exact(nextitem)
    return True


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Count the coverage of forks before pytest-cov, which does the same around this, ends its measurement."""
    try:
        return (yield)
    finally:
        directory = session.config.stash.get(_MEASURED, None)
        if directory is not None:
            from pykbroker_worlds.measuring import count

            count(Path(directory.name))
            directory.cleanup()


def pytest_sessionfinish(session: pytest.Session) -> None:
    found = session.config.stash.get(_WORKER, None)
    if found is not None:
        found[1].close()


def _reports(item: pytest.Item, marker: pytest.Mark) -> list[pytest.TestReport]:
    """Run the test's worlds; return the reports of the first seed that failed, else those of the last one."""
    from pykbroker_worlds.worker import Request

    try:
        seeds = _Mark(**marker.kwargs).seeds
    except TypeError as error:
        return [_failed(item, f"@pytest.mark.kafka_world: {error}")]
    only: _Chosen | None = item.config.getoption(_SEED)
    wanted = [only.seed] if only is not None else list(range(seeds))
    kept = only.kept if only is not None else None
    debugs = bool(item.config.getoption("usepdb"))
    jobs = 1 if debugs or "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
    try:
        request = Request(item.nodeid, wanted, jobs, kept)
        answers = sorted(_worker(item).ask(request), key=lambda answer: answer.seed)
        chosen = next((answer for answer in answers if answer.has_failed), answers[-1])
    except RuntimeError as error:
        del item.config.stash[_WORKER]
        return [_failed(item, str(error))]
    lines, seed = [], _Chosen(chosen.seed, kept)
    if chosen.error:
        again = "" if chosen.seed < 0 else f"\nseed {chosen.seed}, again: pytest '{item.nodeid}' {_SEED} {seed}"
        return [_failed(item, chosen.error + again)]
    if not chosen.steady:
        lines.append(
            "the kernel refuses steady addresses (personality): a set of objects whose hash is their address may have "
            "another order in another process, and the trace may differ"
        )
    # With --pdb each world that fails asks the person.
    if chosen.has_failed and only is None and chosen.events and not debugs:
        happened = len(chosen.events)
        chosen = _shrunk(item, request, chosen)
        lines.append(f"{len(chosen.events)} of {happened} events (drawn faults and steps) are enough for this failure")
        if len(chosen.events) < happened:
            seed = _Chosen(chosen.seed, list(chosen.events))
    reports = [
        item.config.hook.pytest_report_from_serializable(config=item.config, data=data) for data in chosen.reports
    ]
    for report in reports:
        # pytest leaves out a failure that its debugger has shown, and its seed with it.
        report.__dict__.pop("_pdbshown", None)
        if report.when == "call":
            report.duration = sum(one["duration"] for answer in answers for one in answer.reports)
            told = f"seed {chosen.seed} of {len(wanted)}, trace {chosen.digest[:16]}, with {', '.join(_versions())}"
            again = f"again: pytest '{item.nodeid}' {_SEED} {seed}"
            report.sections.append(("kafka world", "\n".join([told, *lines, again])))
    return reports


def _shrunk(item: pytest.Item, request: Request, failed: Answer) -> Answer:
    """Return the answer of the same seed with as few events as fail in the same way, as far as a minute reaches."""
    from pykbroker_worlds.checking.shrink import shrink

    smallest, end = failed, time.monotonic() + _SHRINK_SECONDS

    def fails(part: list[str]) -> bool:
        nonlocal smallest
        if time.monotonic() > end:
            return False
        answers = list(_worker(item).ask(request._replace(seeds=[failed.seed], kept=part)))
        if [answer.failure for answer in answers if answer.has_failed and not answer.error] != [failed.failure]:
            return False
        (smallest,) = answers
        return True

    try:
        shrink(failed.events, fails)
    except RuntimeError:
        # The worker has ended. The failure that was found counts.
        del item.config.stash[_WORKER]
    return smallest


def _versions() -> Iterator[str]:
    for package in _VERSIONED:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            continue


def _failed(item: pytest.Item, text: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")


def _worker(item: pytest.Item) -> Worker:
    """Return the worker for the module of `item`: the last one, if it is of the same module."""
    from pykbroker_worlds import measuring
    from pykbroker_worlds.worker import Worker

    config, path = item.config, str(item.path)
    found = config.stash.get(_WORKER, None)
    if found is not None and found[0] == path:
        return found[1]
    if found is not None:
        found[1].close()
    arguments = [path, f"--rootdir={config.rootpath}", "-p", "no:cacheprovider", "-p", "no:xdist", "--capture=sys"]
    if config.inipath is not None:
        arguments += ["-c", str(config.inipath)]
    for override in config.getoption("override_ini") or []:
        arguments += ["-o", override]
    for plugin in config.getoption("plugins") or []:
        if not plugin.startswith(("no:", "xdist")):
            arguments += ["-p", plugin]
    if config.getoption("usepdb"):
        arguments.append("--pdb")
    if config.getoption("usepdb_cls"):
        arguments.append(f"--pdbcls={':'.join(config.getoption('usepdb_cls'))}")
    if config.pluginmanager.hasplugin("pytest_cov"):
        arguments.append("--no-cov")
    if _MEASURED not in config.stash:
        config.stash[_MEASURED] = tempfile.TemporaryDirectory(prefix="pykbroker-worlds-")
    measured = measuring.for_worker(Path(config.stash[_MEASURED].name))
    made = Worker(arguments, str(config.invocation_params.dir), measured)
    config.stash[_WORKER] = path, made
    return made

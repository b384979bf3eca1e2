"""`python -m pykbroker_worlds.worker`: a pytest session that runs worlds, each of them in a fork of this process.

Time and chance are replaced here before pytest imports the test module, its application and its client. The session
runs no test by itself. It reads requests from the plugin (pytest_plugin.py), one line of JSON each, and answers one
line for each world.

Responsible for the forks and for what they report. Not responsible for what a test is, nor for the order of seeds.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import subprocess
import sys
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final, NamedTuple, TextIO

from pykbroker_worlds import debugging, measuring, replacements

#: The file descriptors of a worker for requests and answers, as "3,4".
DESCRIPTORS: Final = "PYKBROKER_WORLDS_DESCRIPTORS"
#: Linux's ADDR_NO_RANDOMIZE. `hash(None)` is an address on CPython 3.11.
_NO_RANDOM_ADDRESSES: Final = 0x0040000
#: "yes" if the kernel has granted that, "no" if it has not, for example in a container with Docker's default profile.
_STEADY: Final = "PYKBROKER_WORLDS_STEADY"
_OURS: Final = frozenset({"pykbroker", "pykbroker_log", "pykbroker_raft", "pykbroker_wire", "pykbroker_worlds"})
ENVIRONMENT: Final = {
    "PYTHONHASHSEED": "0",
    # Its compiled records read the clock of the operating system.
    "AIOKAFKA_NO_EXTENSIONS": "1",
}


class Request(NamedTuple):
    """Run this test with these seeds, in order, and no more than `jobs` at a time; stop after the first that fails.
    `kept`: the labels of the events that happen (selection.py), None for all."""

    nodeid: str
    seeds: list[int]
    jobs: int
    kept: list[str] | None = None


class Answer(NamedTuple):
    """The outcome of a world. `seed` is -1 if there was none, and `error` says why. `reports` are pytest's, as JSON.
    `events`: the labels of those that happened. `failure`: what failed, to compare failures with each other.
    `imported`: our modules that the world had to import first. `steady`: the kernel has granted steady addresses."""

    seed: int
    reports: list[dict[str, Any]]
    digest: str
    error: str
    events: tuple[str, ...] | list[str] = ()
    failure: str = ""
    imported: tuple[str, ...] | list[str] = ()
    steady: bool = True

    @property
    def has_failed(self) -> bool:
        return bool(self.error) or any(report["outcome"] == "failed" for report in self.reports)


def steady_addresses() -> bool:
    """Ask the kernel not to randomise the addresses of what this process executes next; return False if it refuses."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        current = libc.personality(0xFFFFFFFF)
        return bool(current >= 0 and libc.personality(current | _NO_RANDOM_ADDRESSES) >= 0)
    except (OSError, AttributeError):
        return False


class Worker:
    """A worker process, as the plugin sees it."""

    def __init__(self, arguments: Sequence[str], directory: str, more: Mapping[str, str]) -> None:
        """`arguments`: those of pytest. `more`: variables of its environment. Raises OSError if there is no such
        process."""
        read_requests, write_requests = os.pipe()
        read_answers, write_answers = os.pipe()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        environment = {**os.environ, **ENVIRONMENT, **more, DESCRIPTORS: f"{read_requests},{write_answers}"}
        # They tell that a process is a worker of xdist, which this one is not.
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_CURRENT_TEST"):
            environment.pop(name, None)
        self._process = subprocess.Popen(  # noqa: S603  # this interpreter
            [sys.executable, "-m", "pykbroker_worlds.worker", *arguments],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=subprocess.STDOUT,
            pass_fds=(read_requests, write_answers),
        )
        os.close(read_requests)
        os.close(write_answers)
        self._requests = os.fdopen(write_requests, "w", encoding="utf-8")
        self._answers = os.fdopen(read_answers, encoding="utf-8")

    def ask(self, request: Request) -> Iterator[Answer]:
        """Yield the answers as they come. Raises RuntimeError if the process has ended."""
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
        except BrokenPipeError:
            raise self._ended() from None
        for line in self._answers:
            answer = Answer(*json.loads(line))
            if answer.seed == -1 and not answer.error:
                return
            yield answer
        raise self._ended()

    def _ended(self) -> RuntimeError:
        code = self._process.wait()
        self._said.seek(0)
        said = self._said.read()
        return RuntimeError(f"the worker of worlds ended with {code}:\n{said.decode(errors='replace')}")

    def close(self) -> None:
        """End the process."""
        self._requests.close()
        self._answers.close()
        self._process.kill()
        self._process.wait()
        self._said.close()


class Forks:
    """The plugin of the worker's own session: it takes requests instead of running tests."""

    def __init__(self, requests: TextIO, answers: TextIO, *, steady: bool) -> None:
        self._requests = requests
        self._answers = answers
        self._steady = steady

    def pytest_enter_pdb(self) -> None:
        debugging.take_terminal()

    def pytest_runtestloop(self, session: Any) -> bool:
        replacements.simulate_threads_of_anyio()
        items = {item.nodeid: item for item in session.items}
        for line in self._requests:
            request = Request(*json.loads(line))
            item = items.get(request.nodeid)
            if item is None:
                self._answer(Answer(-1, [], "", f"the worker did not find {request.nodeid} among {sorted(items)}"))
            else:
                self._run(item, request)
            self._answer(Answer(-1, [], "", ""))
        return True

    def _answer(self, answer: Answer) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()

    def _run(self, item: Any, request: Request) -> None:
        waiting, running = deque(request.seeds), 0
        selector = selectors.DefaultSelector()
        is_over = False
        # A collection in a fork looks at none of this, and copies none of its pages.
        gc.freeze()
        while running or (waiting and not is_over):
            while waiting and running < request.jobs and not is_over:
                seed = waiting.popleft()
                pid, descriptor = _fork(partial(_play, item, seed, request.kept))
                selector.register(descriptor, selectors.EVENT_READ, (seed, pid, bytearray()))
                running += 1
            for key, _ in selector.select():
                seed, pid, received = key.data
                piece = os.read(key.fd, 1 << 16)
                received += piece
                if piece:
                    continue
                selector.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                running -= 1
                answer = _read(seed, bytes(received), status)
                is_over = is_over or answer.has_failed
                # The next forks need not import them again, which is a third of the work of a short world.
                for name in answer.imported:
                    import_module(name)
                self._answer(answer._replace(imported=(), steady=self._steady))


def _read(seed: int, received: bytes, status: int) -> Answer:
    if received:
        return Answer(*json.loads(received))._replace(seed=seed)
    return Answer(seed, [], "", f"the process of the world ended with status {os.waitstatus_to_exitcode(status)}")


def _fork(work: Any) -> tuple[int, int]:
    """Return the process id of a fork that does `work()`, and a descriptor to read its answer from."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    try:
        os.close(read)
        try:
            answer: Answer = work()
        except BaseException:  # noqa: BLE001  # the answer is all that leaves this process
            answer = Answer(-1, [], "", traceback.format_exc())
        with os.fdopen(write, "wb") as pipe:
            pipe.write(json.dumps(answer).encode())
        measuring.keep()
    finally:
        os._exit(0)


def _play(item: Any, seed: int, kept: list[str] | None) -> Answer:
    """Run the test in this process, which is a fork."""
    from pykbroker_worlds import pytest_plugin

    before = frozenset(sys.modules)
    pytest_plugin.begin_world(item, seed, kept)
    reports = list(_phases(item))
    world = pytest_plugin.end_world()
    found = [item.config.hook.pytest_report_to_serializable(config=item.config, report=report) for report in reports]
    if world is None:
        return Answer(seed, found, "", "")
    # Only ours: to import a module of the user may do something that belongs to a world.
    imported = [name for name in sys.modules if name.partition(".")[0] in _OURS and name not in before]
    failure = world.failure or next((_place(report, str(item.path)) for report in reports if report.failed), "")
    return Answer(seed, found, world.digest, "", world.selection.labels, failure, imported)


def _place(report: Any, module: str) -> str:
    """Return the last line of the test's module that was running when it failed."""
    entries = getattr(getattr(report.longrepr, "reprtraceback", None), "reprentries", ())
    places = [entry.reprfileloc for entry in entries if getattr(entry, "reprfileloc", None) is not None]
    lines = [place.lineno for place in places if place.path.endswith(os.path.basename(module))]
    crash = getattr(report.longrepr, "reprcrash", None)
    kind = "" if crash is None else crash.message.partition(":")[0]
    return f"{kind} at line {lines[-1] if lines else 'unknown'}"


def _phases(item: Any) -> Iterator[Any]:
    """Run the setup of a test, the test, and its teardown; yield pytest's report of each."""
    import pytest

    def report_of(when: Any, call: Callable[[], object]) -> Any:
        info = pytest.CallInfo.from_call(call, when=when)
        report = item.ihook.pytest_runtest_makereport(item=item, call=info)
        error = None if info.excinfo is None else info.excinfo.value
        if report.failed and item.config.getoption("usepdb") and not isinstance(error, pytest.exit.Exception):
            debugging.take_terminal()
            # To quit the debugger ends this world, and the failure counts.
            with suppress(pytest.exit.Exception):
                item.ihook.pytest_exception_interact(node=item, call=info, report=report)
        return report

    setup = report_of("setup", lambda: item.ihook.pytest_runtest_setup(item=item))
    yield setup
    if setup.passed:
        yield report_of("call", lambda: item.ihook.pytest_runtest_call(item=item))
    yield report_of("teardown", lambda: item.ihook.pytest_runtest_teardown(item=item, nextitem=None))


def main() -> int:
    replacements.install()  # before everything else that is imported
    measuring.start()
    requests, answers = map(int, os.environ.pop(DESCRIPTORS).split(","))
    import pytest

    with os.fdopen(requests, encoding="utf-8") as asked, os.fdopen(answers, "w", encoding="utf-8") as told:
        return pytest.main(sys.argv[1:], plugins=[Forks(asked, told, steady=os.environ.pop(_STEADY) == "yes")])


if __name__ == "__main__":
    # Once: after the second start the addresses are steady, or cannot be.
    if _STEADY not in os.environ:
        os.environ[_STEADY] = "yes" if steady_addresses() else "no"
        os.execv(sys.executable, [sys.executable, "-m", "pykbroker_worlds.worker", *sys.argv[1:]])  # noqa: S606
    sys.exit(main())

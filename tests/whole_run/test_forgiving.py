from __future__ import annotations

import pytest

from tests.whole_run.forgiving import MOST_FLAKY, closing_line, first_verdict, flaky_lines, never_forgiven
from tests.whole_run.outcome import Failure, Outcome


def failure(
    message: str = "TimeoutError: not within 30 s: the group is stable",
    *,
    nodeid: str = "compat_tests/python/test_x.py::test_it",
    when: str = "call",
    statement: str = "",
    text: str = "",
) -> Failure:
    return Failure(nodeid=nodeid, when=when, message=message, statement=statement, text=text or message)


def outcome(*failures: Failure, exit_status: int = 1, problems: list[str] | None = None) -> Outcome:
    return Outcome(exit_status=exit_status, failures=list(failures), problems=problems or [])


@pytest.mark.parametrize(
    "message",
    [
        "TimeoutError: not within 30 s: the group is stable",
        "AssertionError: not within 60 s: all records are read (last answer: 17)",
        "Failed: Timeout (>300.0s) from pytest-timeout.",
        "worker 'gw0' crashed while running 'compat_tests/python/test_x.py::test_it'",
        "kafka.errors.KafkaConnectionError: the broker is away",
        "assert 2 == 1",
        "AssertionError: the client was not answered",
    ],
)
def test_a_failure_of_a_slow_machine_is_tried_again(message: str) -> None:
    assert never_forgiven(failure(message)) is None


@pytest.mark.parametrize("folder", ["simulation", "raft", "wire", "log"])
def test_folders_that_depend_on_no_machine_get_no_second_chance(folder: str) -> None:
    assert never_forgiven(failure(nodeid=f"tests/{folder}/test_x.py::test_it"))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("AssertionError", "Falsifying example: test_it(data=b'')"),
        ("AssertionError: wrong line", "server.log:\nTraceback (most recent call last):\n  File ..."),
        ("TimeoutError: not within 30 s: ready", "RuntimeError: pykbroker ended with 1:\n"),
        ("RuntimeError: pykbroker ended with -9:", ""),
        ("testkit.torture.journal.Violation: offset 7 is not there", ""),
        ("tests.simulation.invariants.broken.InvariantBroken: R5", ""),
    ],
)
def test_failures_that_say_something_of_the_broker_are_not_forgiven(message: str, text: str) -> None:
    assert never_forgiven(failure(message, text=text))


@pytest.mark.parametrize(
    ("message", "statement"),
    [
        ("AssertionError: assert [b'1', b'2'] == [b'2', b'1']", "assert read == written"),
        ("AssertionError: assert {1: 2} == {}", "assert found == wanted"),
        ("assert b'a' == b'b'", "assert value == sent"),
        ("AssertionError: assert Counter() == Counter(a=1)", "assert counted == wanted"),
        ("assert 99 == 100", "assert len(records) == 100"),
        ("AssertionError: 3 records were lost", "assert not lost, f'{len(lost)} records were lost'"),
        ("AssertionError: twice", "assert len(set(keys)) == len(keys), 'twice'"),
    ],
)
def test_records_that_differ_are_not_forgiven(message: str, statement: str) -> None:
    assert never_forgiven(failure(message, statement=statement))


def test_a_test_that_was_mended_gets_no_second_chance() -> None:
    assert never_forgiven(failure(nodeid="tests/x.py::test_it[2]"), ["tests/x.py::test_it[1]"])
    assert never_forgiven(failure(nodeid="tests/x.py::test_other"), ["tests/x.py::test_it"]) is None


def test_failures_that_may_be_forgiven_are_tried_again_once_each() -> None:
    twice = [failure(when="call"), failure(when="teardown")]
    verdict = first_verdict({"tests": outcome(exit_status=0), "compat_tests": outcome(*twice)})
    assert verdict.reasons == []
    assert verdict.retry == ["compat_tests/python/test_x.py::test_it"]


def test_one_fixture_that_fails_counts_once() -> None:
    together = [failure(nodeid=f"compat_tests/x.py::test_{n}", when="setup") for n in range(20)]
    verdict = first_verdict({"compat_tests": outcome(*together)})
    assert (verdict.reasons, len(verdict.retry)) == ([], 20)


def test_too_many_causes_fail_the_run() -> None:
    several = [failure(nodeid=f"compat_tests/x.py::test_{n}") for n in range(MOST_FLAKY + 1)]
    assert first_verdict({"a": outcome(*several[:2]), "b": outcome(*several[2:])}).reasons
    assert not first_verdict({"a": outcome(*several[:2]), "b": outcome(*several[2:MOST_FLAKY])}).reasons


@pytest.mark.parametrize(
    "ended",
    [
        outcome(exit_status=1),
        outcome(exit_status=2),
        outcome(exit_status=3),
        outcome(failure(), exit_status=3),
        outcome(exit_status=5),
        outcome(exit_status=-9),
        outcome(failure(), problems=["x.py cannot be collected"]),
        outcome(exit_status=1, problems=["x was skipped"]),
        outcome(exit_status=0, problems=["a process outlived the session"]),
    ],
)
def test_what_is_not_the_failure_of_a_test_has_no_second_chance(ended: Outcome) -> None:
    assert first_verdict({"tests": ended}).reasons


def test_a_flaky_test_is_named_with_its_first_failure() -> None:
    lines = flaky_lines([failure("TimeoutError: first\nmore"), failure("TimeoutError: second", when="teardown")])
    assert lines == ["FLAKY compat_tests/python/test_x.py::test_it: TimeoutError: first"]


def test_the_closing_line_is_one_of_pytests() -> None:
    line = closing_line(passed=9_000, failed=0, skipped=2, flaky=1, seconds=1501.3)
    assert line.strip("= ") == "9000 passed, 2 skipped, 1 rerun in 1501.30s (0:25:01)"
    assert "1 failed, 3 passed in" in closing_line(passed=3, failed=1, skipped=0, flaky=0, seconds=1)

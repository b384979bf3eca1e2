"""The failures that a second chance may forgive, and the verdict on the whole run. Pure: outcomes in, verdicts out.

A test that failed runs once more, in a fresh process with fresh fixtures. If it passes, it was flaky: the run stays
green and names it. That is right for a client that was slow on a busy machine. It would be wrong for a failure that
shows a defect of the broker. `never_forgiven` finds those by the test's folder and by the words of the failure. In
doubt it fails the run: a message that only looks like a lost record is not forgiven either.

Causes are counted, not tests, because one fixture that fails lets all its tests fail.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.whole_run.outcome import Failure, Outcome

#: More flaky causes than this in one run are no accident.
MOST_FLAKY: Final = 3

#: Lines of a failure's message, and characters of a line, that `told_causes` keeps.
_MOST_LINES: Final = 12
_WIDEST: Final = 600

#: No test in these folders depends on the speed of the machine.
_STRICT_FOLDERS: Final = ("tests/simulation/", "tests/raft/", "tests/wire/", "tests/log/", "tests/worlds/")

#: The text of a failure matches if this happened.
_IN_TEXT: Final[Mapping[str, re.Pattern[str]]] = {
    "hypothesis found an example": re.compile(r"Falsifying example"),
    "there is a traceback": re.compile(r"Traceback \(most recent call last\)"),
    "a node ended unasked": re.compile(r"\bended with -?\d+\b"),
}
#: Exceptions of the judges of records, as in a message.
_JUDGES: Final = re.compile(r"\b(Violation|InvariantBroken)\b")
#: Words for records that are not as they were written.
_RECORDS: Final = re.compile(
    r"\b(lost|missing|twice|doubled?|duplicates?|reordered|out of order|acknowledged|records?|offsets?|committed)\b",
    re.I,
)
#: Collections, bytes and comparisons in an assertion: most tests compare written records with read ones.
_COLLECTION: Final = re.compile(r"[\[\]{}]|\bb['\"]|Counter\(")
_COMPARISON: Final = re.compile(r"==|!=|<=|>=")
#: A timeout, in the words of the tests' helpers, of clients and of pytest-timeout.
_WAITED: Final = re.compile(r"\bTimeout|\btimed out|\bnot within [\d.]+ s\b|\b(within|after) [\d.]+ s\b")


def never_forgiven(failure: Failure, mended: Collection[str] = ()) -> str | None:
    """Return the reason why this failure fails the run in any case, or None if it may be tried again.

    `mended`: ids of tests that were flaky before and whose cause was removed; they get no second chance."""
    if failure.nodeid.startswith(_STRICT_FOLDERS):
        return "nothing in its folder depends on the machine"
    if failure.nodeid.partition("[")[0] in {known.partition("[")[0] for known in mended}:
        return "it was mended before"
    for reason, pattern in _IN_TEXT.items():
        if pattern.search(failure.text):
            return reason
    said = failure.message.partition("\n")[0]
    if _JUDGES.search(said):
        return "a judge of records failed it"
    if _WAITED.search(said):
        return None
    if said.startswith(("assert ", "AssertionError")):
        if _COLLECTION.search(said) and _COMPARISON.search(said):
            return "it compares collections or bytes"
        if _RECORDS.search(said) or _RECORDS.search(failure.statement):
            return "its assertion is about records"
    return None


@dataclass(slots=True)
class Verdict:
    """`retry`: ids to run again. `reasons`: why the run fails already; then no test needs to be tried again."""

    retry: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def first_verdict(outcomes: Mapping[str, Outcome], mended: Collection[str] = ()) -> Verdict:
    """Return the verdict on the two sessions before the second chance. `outcomes`: by folder."""
    verdict = Verdict()
    causes: set[tuple[str, ...]] = set()
    for folder, outcome in outcomes.items():
        verdict.reasons += list(dict.fromkeys(outcome.problems))
        if outcome.exit_status not in (0, 1) or (
            outcome.exit_status == 1 and not outcome.failures and not outcome.problems
        ):
            verdict.reasons.append(f"pytest {folder} ended with {outcome.exit_status}")
        for failure in outcome.failures:
            if reason := never_forgiven(failure, mended):
                verdict.reasons.append(f"{failure.nodeid}: {reason}")
            causes.add(failure.cause)
        verdict.retry += outcome.failed_tests
    if len(causes) > MOST_FLAKY:
        verdict.reasons.append(f"{len(causes)} failures have different causes, and {MOST_FLAKY} may be tried again")
    return verdict


def flaky_lines(failed: Sequence[Failure]) -> list[str]:
    """Return a line for each test that passed at its second try, with the first line of its first failure."""
    first: dict[str, Failure] = {}
    for failure in failed:
        first.setdefault(failure.nodeid, failure)
    return [f"FLAKY {nodeid}: {failure.message.partition(chr(10))[0]}" for nodeid, failure in first.items()]


def told_causes(failed: Sequence[Failure]) -> list[str]:
    """Return lines about each failure: the test, the statement that raised, and the message."""
    told = []
    for failure in failed:
        told.append(f"{failure.nodeid} ({failure.when}): {failure.statement}")
        told += [f"    {line[:_WIDEST]}" for line in failure.message.splitlines()[:_MOST_LINES]]
    return told


def closing_line(passed: int, failed: int, skipped: int, flaky: int, seconds: float) -> str:
    """Return the last line of a whole run in pytest's form, with the sums of its sessions."""
    counts = [(failed, "failed"), (passed, "passed"), (skipped, "skipped"), (flaky, "rerun")]
    told = ", ".join(f"{count} {word}" for count, word in counts if count) or "no tests ran"
    text = f" {told} in {seconds:.2f}s ({int(seconds) // 3600}:{int(seconds) // 60 % 60:02}:{int(seconds) % 60:02}) "
    return text.center(110, "=")

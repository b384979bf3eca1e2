"""Patterns of topic names. compat_tests/consumer_groups compares them with RE2/J, pattern by pattern."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from pykbroker.coordinator.group.consumer.regex import (
    KEPT_PATTERNS,
    LONGEST_PATTERN,
    PATTERN_BYTES,
    SLICE,
    compile_pattern,
    resolve,
    resolve_in_slices,
)
from pykbroker_wire.errors import ErrorCode, KafkaError
from tests.growth import assert_grows_no_faster


@pytest.fixture(autouse=True)
def re2() -> None:
    pytest.importorskip("re2")


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("orders", ["orders"], ["orders-1", "my-orders", "Orders"]),
        ("orders|payments", ["orders", "payments"], ["orders|payments", "orders-payments"]),
        ("team-[0-9]+\\..*", ["team-1.", "team-22.x"], ["team-.x", "xteam-1.x"]),
        ("(?i)orders", ["ORDERS", "orders"], ["order"]),
        ("\\pL+", ["abc"], ["ab1", ""]),
        ("\\Qa.b\\E", ["a.b"], ["axb"]),
        ("^a$", ["a"], ["aa"]),
        ("", [""], ["a"]),
        ("[]\\]a]+[^[:^alpha:]\\]C]", ["]ab", "a]a"], ["]]]", "ab]"]),
        ("[[:x]+", ["[:x"], ["y", "\\"]),
        ("[\\[:x]+", ["[:x"], ["y", "\\"]),
        ("\\é", ["é"], ["e"]),
        ("\\Qa[b", ["a[b"], ["a"]),
        ("(?P<n>a)(?<m>b)", ["ab"], ["a"]),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, matching: list[str], other: list[str]) -> None:
    found = compile_pattern(pattern)
    assert [name for name in [*matching, *other] if found.matches(name)] == matching


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", "missing closing )"),
        (")", "regexp/syntax: internal error"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(?P<n", "invalid named capture"),
        ("(?<=a)", "invalid named capture"),
        ("(?P<n>a)(?<n>b)", "duplicate capture group name"),
        ("a\\", "trailing backslash at end of expression"),
        ("\\C", "invalid escape sequence"),
        ("(a)\\1", "invalid escape sequence"),
        ("\\pL{400}", "pattern too large"),
        ("a" * 200_000, "pattern too large"),
        ("(a)" * 6_000, "pattern too large"),
        ("\\pL|" * 101, "pattern too large"),
        ("[" + "[:" * 100, "missing closing ]"),
        ("(?<n" * 100, "invalid named capture"),
    ],
)
def test_what_is_no_pattern_says_why_in_the_words_of_re2j(pattern: str, reason: str) -> None:
    with pytest.raises(KafkaError) as error:
        compile_pattern(pattern)
    assert error.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert error.value.message == f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}."


def test_patterns_of_clients_do_not_fill_the_memory() -> None:
    """A thousand patterns took 6 GiB, and each held up the loop for 0.3 s."""
    for number in range(100):
        compile_pattern(f"orders-{number}")
    kept = compile_pattern.cache_info()
    assert kept.currsize == kept.maxsize == KEPT_PATTERNS
    assert KEPT_PATTERNS * PATTERN_BYTES <= 64 * 2**20


@pytest.mark.parametrize(
    "part", ["[", "[:", "[[:", "[:]", "[\\", "\\Q", "\\Q\\E", "\\", "(?<", "(?P<n>", "(?<n", "[^]", "a", "é\\é"]
)
@pytest.mark.parametrize("begin", ["", "[", "(?<n", "\\Q"])
def test_the_time_for_a_pattern_grows_with_its_length_and_no_faster(begin: str, part: str) -> None:
    def compiled(count: int) -> Callable[[], object]:
        text = begin + part * (count // len(part))

        def call() -> None:
            with contextlib.suppress(KafkaError):
                compile_pattern.__wrapped__(text)

        return call

    assert_grows_no_faster(compiled, LONGEST_PATTERN // 5)


def test_an_escaped_backslash_before_a_c_is_no_escaped_c() -> None:
    assert compile_pattern("\\\\C").matches("\\C")
    assert compile_pattern("\\Q\\C\\E").matches("\\C")


def test_patterns_are_resolved_together_and_a_broken_one_matches_nothing() -> None:
    names = ["a", "ab", "b"]
    assert resolve(["a.*", "b", "("], names) == {"a.*": {"a", "ab"}, "b": {"b"}, "(": frozenset()}
    assert resolve([], names) == {}
    assert resolve(["a"], []) == {"a": frozenset()}


def test_many_names_are_resolved_in_slices() -> None:
    names = [f"topic-{number}" for number in range(2 * SLICE + 1)]
    slices = resolve_in_slices(["topic-1.*", "x"], names)
    assert len(list(slices)) == 6
    assert resolve(["topic-1.*"], names)["topic-1.*"] == {name for name in names if name.startswith("topic-1")}


def test_a_pattern_that_would_hold_up_a_backtracking_matcher_is_answered() -> None:
    assert not compile_pattern("(x+x+)+y").matches("x" * 249)
    assert compile_pattern("(a?){200}a{49}").matches("a" * 249)


@pytest.mark.slow
def test_re2_is_not_imported_before_the_first_pattern() -> None:
    source = "import sys, pykbroker.coordinator.group.consumer.regex; sys.exit('re2' in sys.modules)"
    subprocess.run([sys.executable, "-c", source], check=True)


def test_without_the_package_a_pattern_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(KafkaError, match="google-re2"):
        compile_pattern("a pattern that was not compiled before")

"""Our patterns of topic names, compared with RE2/J, which Apache Kafka uses: validity, errors, and matches."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator

import pytest

from compat_tests.consumer_groups.oracle import Oracle
from pykbroker.coordinator.group.consumer.regex import compile_pattern
from pykbroker_wire.errors import KafkaError
from testkit import needs

# ruff: noqa: SIM905
CASES = 6_000
NAMES = (
    "a b ab aB abc a-b a.b a_b A orders orders-1 orders.v2 ORDERS 0 12 k s K aaaa aaaaaaaa foo.bar.baz _x .a - __x"
).split()
PIECES = [
    *"abkK01.-_*+?|()[]{}^$\\,:=!<>PiUsmQE&~/",
    *r"\d \w \s \b \B \A \z \Z \C \pL \PN \p{Lu} \P{Greek} \p{^Lu} \p{Any} \p{Latin} \pX \p{ \Q \E".split(),
    *r"\x41 \x{61} \x{110000} \xg \101 \1 \8 \0 \n \a \e \h \R \X \G \K \- \. \/ \<".split(),
    *"[a-c] [^a] [[:alpha:]] [[:^digit:]] [[:foo:]] []a] [a-] [b-a] [^ [a [a&&b] [[=a=]]".split(),
    *r"[\d-] [a-\d] [\d-z] [^\D] [\pL\d]".split(),
    *"(?i) (?i: (?s-i) (?: (?U) (?x) (?P<n> (?<n> (?' (?= (?! (?<= (?> (?# (? (?P (?P=n)".split(),
    *"{2} {2,} {,3} {1,3} {3,1} {1001} {1000} {0} ** +? ?? *+ () (|a) (a*)* ^* .* orders.* a|".split(),
    "é",
    "ſ",
    "\N{KELVIN SIGN}",
    "\\é",
]


def differ(pattern: str, ours: str, theirs: str) -> bool:
    if ours == theirs:
        return False
    if ours[0] == theirs[0] == "!":
        # Both refuse it. If a pattern has two faults, one names the first and the other the second.
        return False
    # Documented in the head of regex.py: RE2 counts nested repetitions together, and limits the program's size. And
    # RE2/J does not read every `{` as text that RE2 does.
    return not (
        ("invalid repeat count" in ours and pattern.count("{1000}") + pattern.count("{2}") + pattern.count("{3") > 0)
        or "pattern too large" in ours
        or "invalid nested repetition operator" in theirs
    )


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    needs.python_package("re2")
    oracle = Oracle("Patterns")
    yield oracle
    oracle.close()


def ours(pattern: str) -> str:
    try:
        compiled = compile_pattern(pattern)
    except KafkaError as error:
        return "!" + error.message.rpartition("expression: ")[2][:-1]
    return "".join("01"[compiled.matches(name)] for name in NAMES)


@pytest.mark.slow
def test_the_same_patterns_match_the_same_names(oracle: Oracle) -> None:
    rng = random.Random(848)
    made = ("".join(rng.choice(PIECES) for _ in range(rng.randint(2, 6))) for _ in range(CASES))
    wrong = []
    valid = 0
    for pattern in (*PIECES, *made):
        theirs = oracle.ask(" ".join([b64encode(pattern.encode()).decode(), *NAMES]))
        mine = ours(pattern)
        valid += mine[0] != "!"
        if differ(pattern, mine, theirs):
            wrong.append((pattern, mine, theirs))
    assert wrong == []
    assert valid > CASES / 10


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    ["(", ")", "[", "*", "a**", "a{1001}", "(?=a)", "(?P=n)", "(?P<a", "(?<=a)", "(?<n>)(?P<n>)", "\\", "\\C", "\\8"],
)
def test_a_single_fault_is_named_in_the_same_words(oracle: Oracle, pattern: str) -> None:
    assert ours(pattern) == oracle.ask(b64encode(pattern.encode()).decode() + " a")

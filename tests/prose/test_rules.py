"""The rules find what the project's table of words names, and leave what reads well alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose.rules import findings, sentences, words
from tests.prose.texts import Kind, Prose, of_page, of_source


def rules_of(text: str, kind: Kind = Kind.DOCSTRING) -> list[str]:
    return [finding.rule for finding in findings(Prose("a.py", 1, kind, text))]


@pytest.mark.parametrize(
    "text",
    [
        "What waits for a fetch.",
        "Whether the node serves.",
        "One that has ended.",
        "Those of a leader.",
        "Of a leader that is gone.",
        "Those whose offsets are lost.",
        "How far the log goes.",
        "Return the epoch. Of the broker itself nothing is known.",
    ],
)
def test_a_clause_without_a_head_is_found(text: str) -> None:
    assert rules_of(text) == ["headless"]


@pytest.mark.parametrize(
    "text",
    [
        "Fetches that wait for records.",
        "Return True if the node serves.",
        "None if the log is empty.",
        "Whatever comes is kept.",
        "What is that?",
        "Append a batch, and return its offsets (KIP-98). The caller keeps the lock.",
        "Where a name does not resolve, the start stops.",
    ],
)
def test_what_reads_well_is_left_alone(text: str) -> None:
    assert rules_of(text) == []


def test_a_colon_for_if() -> None:
    assert rules_of("The offset; None: nothing was committed.") == ["colon"]
    assert rules_of("`None: nothing` is printed.") == []
    assert rules_of("The offset, or None: nothing.", Kind.PAGE) == []


def test_a_sentence_of_more_than_35_words() -> None:
    assert rules_of(f"It {'is ' * 34}so.") == ["long"]
    assert rules_of(f"It {'is ' * 33}so. It {'is ' * 33}so.") == []
    assert words("A `name with blanks`, [a link of words](to.md) and 1,000 records - no more.") == 11


def test_words_that_mean_another_thing_here() -> None:
    assert rules_of("The offset behind the last record.") == ["word behind"]


def test_abbreviations_end_no_sentence() -> None:
    assert sentences("Some (e.g. Java) do. Others, cf. KIP-1, do not.") == [
        "Some (e.g. Java) do.",
        "Others, cf. KIP-1, do not.",
    ]


def test_the_prose_of_a_source(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(
        '"""The head.\n\nA second paragraph\nof two lines.\n\n    code = 1\n"""\n'
        "#: What it is.\nx = 1  # noqa: S101\n# One comment\n# of two lines.\ny = 2  # another\n"
        'logger.info("partition %s is %s" " now", x, y)\n'
        'z = 3\n"""Of a field."""\nraise ValueError(CODE, f"{x}: what is {y}")\n'
    )
    found = sorted((prose.line, prose.kind, prose.text) for prose in of_source(path, "a.py"))
    assert [(line, text) for line, _, text in found] == [
        (1, "The head."),
        (3, "A second paragraph of two lines."),
        (8, "What it is."),
        (10, "One comment of two lines."),
        (12, "another"),
        (13, "partition %s is %s now"),
        (15, "Of a field."),
        (16, "X: what is X"),
    ]


def test_the_prose_of_a_page(tmp_path: Path) -> None:
    path = tmp_path / "a.md"
    path.write_text("# What it is\n\nA line\nand another.\n\n* one\n  item\n* two\n\n```\nWhat code\n```\n| What |\n")
    assert [(prose.line, prose.text) for prose in of_page(path, "a.md")] == [
        (3, "A line and another."),
        (6, "one item"),
        (8, "two"),
    ]
    path.write_text("<!-- Generated. Do not edit. -->\n\nWhat is generated.\n")
    assert list(of_page(path, "a.md")) == []

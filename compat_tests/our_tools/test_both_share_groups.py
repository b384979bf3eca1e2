"""kafka-share-groups, theirs and ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.kafka_tools.test_share_groups import MEMBER, Member
from compat_tests.our_tools.both import BothTools, ours, sorted_lines, two_names
from compat_tests.our_tools.test_both_perf import first_error
from compat_tests.tool_server import Ended, shared
from compat_tests.topics import Topics
from testkit.nodes.wire import Wire
from testkit.oracle.kafka import NEWEST, kafka_libs


@pytest.fixture
def live(both: BothTools, filled: str) -> Iterator[str]:
    """A share group with a member that sends no more heartbeats, and whose session lasts as long as the test."""
    group = f"live-{filled}"
    with Wire(both.bootstrap) as wire:
        member = Member(wire, group, filled)
        member.join(2)
        yield group
        member.leave()


def of_the_tests(text: str) -> str:
    """Keep the lines about groups of this module, because others may stay in the node."""
    return sorted_lines("\n".join(line for line in text.splitlines() if re.match("GROUP|live-|‹g›", line)))


def test_a_group_with_a_member(both: BothTools, live: str) -> None:
    for words in ([], ["--offsets"], ["--offsets", "--verbose"], ["--state"], ["--state", "--verbose"]):
        assert live in both.agree("share-groups", "--describe", "--group", live, *words).out
    for words in (["--members"], ["--members", "--verbose"]):
        assert MEMBER in both.agree("share-groups", "--describe", "--group", live, *words).out
    for words in ([], ["--state"], ["--state", "stable"], ["--state", "Empty, Stable"]):
        assert live in both.agree("share-groups", "--list", *words, change=[of_the_tests]).out
    assert live not in both.agree("share-groups", "--list", "--state", "dead", change=[of_the_tests]).out
    reset = ["--reset-offsets", "--group", live, "--all-topics", "--to-earliest", "--execute"]
    assert "is not empty" in both.agree("share-groups", *reset).err
    assert "GroupNotEmptyException" in both.agree("share-groups", "--delete", "--group", live).out


def test_start_offsets_are_reset_shown_and_deleted(both: BothTools, filled: str, topics: Topics) -> None:
    names = two_names("g")
    other = topics.create()

    def reset(*how: str, do: str = "--execute", of: str = filled) -> str:
        words = ["--reset-offsets", "--group", "‹g›", "--topic", of, *how, do]
        return both.agree("share-groups", *words, names=names, change=[sorted_lines]).out

    # The first of them creates the group.
    assert filled in reset("--to-earliest")
    reset("--to-latest", of=f"{filled}:1")
    reset("--to-datetime", "2020-01-01T00:00:00.000", do="--dry-run")
    reset("--to-datetime", "2100-01-01T00:00:00.000", do="--dry-run")
    described = both.agree("share-groups", "--describe", "--group", "‹g›", names=names)
    assert [line.split()[2:] for line in described.out.splitlines()[2:]] == [["0", "0", "10"], ["1", "10", "0"]]
    words = ["--reset-offsets", "--group", "‹g›", "--all-topics", "--to-latest", "--execute"]
    both.agree("share-groups", *words, names=names, change=[sorted_lines])
    for words in (["--verbose"], ["--members"], ["--state"]):
        assert both.agree("share-groups", "--describe", "--group", "‹g›", *words, names=names).status == 0
    gone = ["--delete-offsets", "--group", "‹g›", "--topic", filled, "--topic", other, "--topic", "none-such"]
    assert "Successful" in both.agree("share-groups", *gone, names=names).out
    both.agree("share-groups", "--describe", "--group", "‹g›", names=names)
    assert "was successful" in both.agree("share-groups", "--delete", "--group", "‹g›", names=names).out
    both.agree("share-groups", "--delete", "--group", "‹g›", names=names)


def test_options_of_4_4(both: BothTools, filled: str, tmp_path: Path) -> None:
    group = f"of-4-4-{filled}"
    at = ["--bootstrap-server", both.bootstrap, "--reset-offsets", "--group", group]

    def starts() -> list[str]:
        described = ours("share-groups", ["--bootstrap-server", both.bootstrap, "--describe", "--group", group])
        return [line.split()[3] for line in described.out.splitlines()[2:]]

    ours("share-groups", [*at, "--topic", filled, "--to-offset", "4", "--execute"])
    assert starts() == ["4", "4"]
    exported = ours("share-groups", [*at, "--all-topics", "--to-current", "--export", "--dry-run"])
    assert exported.out == f"{filled},0,4\n{filled},1,4\n\n"
    file = tmp_path / "starts.csv"
    file.write_text(f"{filled},0,3\n{filled},1,99\n")
    moved = ours("share-groups", [*at, "--from-file", str(file), "--execute"])
    assert f"New offset (99) is higher than latest offset for topic partition {filled}-1" in moved.err
    assert starts() == ["3", "10"]
    file.write_text("")
    empty = ours("share-groups", [*at, "--from-file", str(file), "--execute"])
    assert empty.out == f"\nError: No reset plan for group {group} found.\n\n"
    assert ours("share-groups", ["--bootstrap-server", both.bootstrap, "--delete", "--group", group]).status == 0


REFUSED = [
    "",
    "--list --group a",
    "--list --state none",
    "--list --members",
    "--list --describe",
    "--describe",
    "--describe --group none-such",
    "--describe --group none-such --members",
    "--describe --group a --members --offsets",
    "--describe --group a --state stable",
    "--describe --group a --topic b",
    "--delete",
    "--delete --group none-such",
    "--delete --group a --all-groups",
    "--delete --group a --topic b",
    "--delete-offsets --group a",
    "--delete-offsets --group none-such --topic b",
    "--reset-offsets --group a --all-topics --to-earliest",
    "--reset-offsets --group a --all-topics --to-earliest --dry-run --execute",
    "--reset-offsets --group a --to-earliest --dry-run",
    "--reset-offsets --group a --all-topics --dry-run",
    "--reset-offsets --group a --all-topics --to-earliest --to-latest --dry-run",
    "--reset-offsets --group a --topic none-such --to-earliest --dry-run",
    "--reset-offsets --all-topics --to-earliest --dry-run",
    "--none-such",
    "--version",
]


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_refused(both: BothTools, words: str) -> None:
    both.agree_on_status("share-groups", *words.split())


@pytest.fixture(scope="module")
def newest(both: BothTools) -> BothTools:
    """The tools of 4.4.0 in the place of those of 4.3.1."""
    kafka_libs(NEWEST)
    return BothTools(both.bootstrap, shared(NEWEST))


OF_FRESH = "--reset-offsets --dry-run --group fresh"
COMPARED = [
    *REFUSED,
    f"{OF_FRESH} --all-topics --to-earliest",
    f"{OF_FRESH} --from-file /nowhere",
    f"{OF_FRESH} --topic ‹topic› --from-file /nowhere",
    f"{OF_FRESH} --topic ‹topic› --to-offset 99",
    f"{OF_FRESH} --topic ‹topic› --to-offset 99 --export",
    f"{OF_FRESH} --topic ‹topic› --to-current",
    f"{OF_FRESH} --topic ‹topic›:x --to-latest",
    f"{OF_FRESH} --topic ‹topic›:7 --to-latest",
    "--delete --group a --all-topics",
]
#: Command lines with which the tool of Apache Kafka 4.4.0 does not do what that of 4.3.1 does. Ours is as 4.3.1.
DIFFERENT = {
    "--delete --group a --all-topics",
    "--delete --group a --topic b",
    "--delete --group none-such",
    "--version",
    f"{OF_FRESH} --all-topics --to-earliest",
}


@pytest.mark.parametrize("words", COMPARED)
def test_each_difference_to_4_4_is_known(both: BothTools, newest: BothTools, filled: str, words: str) -> None:
    given = words.replace("‹topic›", filled).split()
    theirs, mine = (told(ended) for ended in newest.each("share-groups", *given))
    if words not in DIFFERENT:
        assert mine == theirs
        return
    before, mine = (told(ended) for ended in both.each("share-groups", *given))
    assert mine == before
    assert mine != theirs


def told(ended: Ended) -> tuple[int, list[str], list[str]]:
    """Return status, output and refusal, of which a full stop does not count. Some lists in them have the order of a
    hash set in Apache Kafka."""
    refusal = first_error(ended.err) if ended.status else ""
    return ended.status, sorted(ended.out.split()), sorted(re.split(r"\W+", refusal))

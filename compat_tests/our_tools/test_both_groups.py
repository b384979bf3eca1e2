"""kafka-consumer-groups, theirs and ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests.our_tools.both import COUNT, BothTools, ours, sorted_lines, two_names
from compat_tests.python.confluent_client import ConfluentClient
from testkit.clients import wait_until


@pytest.fixture(scope="module")
def live(both: BothTools, filled: str) -> Iterator[str]:
    """A group with a member that stays."""
    group = f"live-{filled}"
    member = ConfluentClient().member(both.bootstrap, filled, group)
    try:
        wait_until(lambda: len(member.records()) == 2 * COUNT, "the member has read everything")
        yield group
    finally:
        member.leave()


def without_order_of_groups(text: str) -> str:
    return sorted_lines(re.sub(r" +$", "", text, flags=re.M))


def test_a_group_with_a_member(both: BothTools, live: str) -> None:
    for words in ([], ["--verbose"], ["--members"], ["--members", "--verbose"], ["--state"], ["--state", "--verbose"]):
        described = both.agree("consumer-groups", "--describe", "--group", live, *words)
        assert live in described.out
    refused = both.agree("consumer-groups", "--delete", "--group", live)
    assert "GroupNotEmptyException" in refused.out
    assert (
        "is inactive"
        in both.agree(
            "consumer-groups", "--reset-offsets", "--group", live, "--all-topics", "--to-earliest", "--execute"
        ).out
    )


def test_groups_of_all_types(both: BothTools, live: str) -> None:
    for words in (
        [],
        ["--consumer"],
        ["--group-type", "classic"],
        ["--group-type", "Classic"],
        ["--protocol", "consumer"],
    ):
        assert live in both.agree("groups", "--list", *words, change=[without_order_of_groups]).out
    for words in (["--share"], ["--streams"], ["--protocol", "connect"]):
        assert live not in both.agree("groups", "--list", *words, change=[without_order_of_groups]).out
    both.agree("groups")
    both.agree("groups", "--list", "--share", "--consumer")
    both.agree("groups", "--list", "--group-type", "nothing")


def test_lists(both: BothTools, live: str) -> None:
    for words in ([], ["--state"], ["--type"], ["--type", "--state"], ["--state", "stable"], ["--type", "classic"]):
        assert live in both.agree("consumer-groups", "--list", *words, change=[without_order_of_groups]).out
    both.agree("consumer-groups", "--list", "--state", "dead", change=[without_order_of_groups])
    both.agree("consumer-groups", "--describe", "--all-groups", "--state", change=[without_order_of_groups])


def test_offsets_are_reset_shown_and_deleted(both: BothTools, filled: str, tmp_path: Path) -> None:
    names = two_names("g")

    def reset(*how: str, do: str = "--execute", of: str = filled) -> str:
        words = ["--reset-offsets", "--group", "‹g›", "--topic", of, *how, do]
        return both.agree("consumer-groups", *words, names=names, change=[sorted_lines]).out

    # The first of them creates the group.
    assert f"{filled}" in reset("--to-earliest")
    reset("--to-offset", "6", of=f"{filled}:1")
    assert "4" in reset("--shift-by", "-2", of=f"{filled}:1")
    reset("--to-offset", "99", do="--dry-run")
    reset("--to-latest", do="--dry-run")
    reset("--to-current")
    reset("--to-datetime", "2020-01-01T00:00:00.000", do="--dry-run")
    reset("--by-duration", "PT1H", do="--dry-run")
    exported = both.agree(
        "consumer-groups", "--reset-offsets", "--group", "‹g›", "--all-topics", "--to-current", "--export",
        "--dry-run", names=names, change=[sorted_lines],
    )  # fmt: skip
    assert f"{filled},1,4" in exported.out
    file = tmp_path / "offsets.csv"
    file.write_text(f"{filled},0,3\n{filled},1,2\n")
    both.agree("consumer-groups", "--reset-offsets", "--group", "‹g›", "--from-file", str(file), "--execute",
               names=names, change=[sorted_lines])  # fmt: skip
    described = both.agree("consumer-groups", "--describe", "--group", "‹g›", names=names)
    assert described.err == "Consumer group '‹g›' has no active members."
    assert [line.split()[3:6] for line in described.out.splitlines()[2:]] == [["3", "10", "7"], ["2", "10", "8"]]
    for words in (["--members"], ["--state"]):
        both.agree("consumer-groups", "--describe", "--group", "‹g›", *words, names=names)
    for of in (f"{filled}:7", f"{filled}:0,7", "none-such:0", "none-such"):
        words = ["--delete-offsets", "--group", "‹g›", "--topic", of]
        both.agree("consumer-groups", *words, names=names)
    gone = both.agree("consumer-groups", "--delete-offsets", "--group", "‹g›", "--topic", f"{filled}:0", names=names)
    assert gone.out.startswith("Request succeeded for deleting offsets from group ‹g›.\n")
    both.agree("consumer-groups", "--describe", "--group", "‹g›", names=names)
    assert "was successful" in both.agree("consumer-groups", "--delete", "--group", "‹g›", names=names).out
    both.agree("consumer-groups", "--delete", "--group", "‹g›", names=names)


def test_a_console_consumer_of_ours_is_seen(both: BothTools, filled: str) -> None:
    group = f"console-{filled}"
    at = ["--bootstrap-server", both.bootstrap, "--topic", filled, "--group", group]
    assert ours("console-consumer", [*at, "--from-beginning", "--max-messages", "20"]).status == 0
    described = both.agree("consumer-groups", "--describe", "--group", group)
    assert [line.split()[5] for line in described.out.splitlines()[2:]] == ["0", "0"]


@pytest.mark.parametrize(
    "words",
    [
        "",
        "--list --group a",
        "--list --state none",
        "--list --type none",
        "--describe",
        "--describe --group none-such",
        "--describe --group none-such --members",
        "--describe --group none-such --timeout x",
        "--delete",
        "--delete --group none-such",
        "--delete --group a --topic b",
        "--delete-offsets --group a",
        "--reset-offsets --group a --to-earliest",
        "--reset-offsets --group a --topic none-such --from-file /none/such --execute",
        "--reset-offsets --group a --topic x --to-datetime bad --dry-run",
        "--reset-offsets --group a --topic x --by-duration bad --dry-run",
        "--reset-offsets --group a --topic ‹topic›:x --to-earliest --dry-run",
        "--reset-offsets --group a --topic ‹topic›:0,x --to-earliest --dry-run",
        "--reset-offsets --group a --topic ‹topic›:0:1 --to-earliest --dry-run",
        "--reset-offsets --group a --topic ‹topic›: --to-earliest --dry-run",
        "--reset-offsets --group a --topic ‹topic›:7 --to-earliest --dry-run",
        "--reset-offsets --group a --topic ‹topic› --shift-by 1 --dry-run",
        "--delete-offsets --group a --topic ‹topic›:x",
        "--none-such",
        "--version",
    ],
)
def test_what_is_refused(both: BothTools, filled: str, words: str) -> None:
    both.agree_on_status("consumer-groups", *words.replace("‹topic›", filled).split())


def test_regular_expressions(both: BothTools) -> None:
    for regex in ("a.*b", "a(b"):
        both.agree("consumer-groups", "--validate-regex", regex, where=False)

"""The checkers, grouped by what they need, as a scenario calls them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pykbroker_worlds.history import deliveries, isolation, offsets, ownership, writes
from pykbroker_worlds.history.events import History, Log, Place


class Violation(AssertionError):
    """The failed checks, with the first few places."""


def insist(*checks: Iterator[str]) -> None:
    """Raise Violation if any check yields a text."""
    found = [f"{getattr(check, '__name__', '')}: {text}" for check in checks for text in check]
    if found:
        more = f"\n… and {len(found) - 10} more" if len(found) > 10 else ""
        raise Violation("\n".join(found[:10]) + more)


def of_transactions(
    history: History,
    logs: Mapping[Place, Log],
    stable: Mapping[Place, int],
    *,
    epochs_rise: bool,
    has_followers: bool = False,
) -> list[Iterator[str]]:
    """All checks of producers and readers for runs that lose nothing. `has_followers` is True if partitions have more
    than one
    replica."""
    return [
        writes.written_once(logs),
        writes.acknowledged_is_there(history, logs),
        writes.one_open_transaction(logs, epochs_rise=epochs_rise),
        writes.fenced_stay_out(history),
        writes.epochs_are_given_once(history),
        writes.nothing_hangs(logs, stable),
        isolation.reads_are_exact(history, logs),
        isolation.nothing_is_read_before_its_commit(history),
        isolation.stable_offsets_never_go_back(history, has_followers=has_followers),
        isolation.transactions_are_atomic(history, logs),
        isolation.offsets_go_with_their_transaction(history, logs),
    ]


def of_groups(history: History) -> list[Iterator[str]]:
    return [
        ownership.one_owner_per_generation(history),
        ownership.one_leader_and_rising_generations(history),
        ownership.written_generations_never_go_back(history),
        ownership.old_generations_do_not_commit(history),
        ownership.one_owner_at_a_time(history),
        ownership.member_epochs_rise(history),
        ownership.the_put_out_do_not_commit(history),
    ]


def of_offsets(history: History, *, mixed: str | None = None) -> list[Iterator[str]]:
    """Checks for committers whose offsets only rise; in the group `mixed` they do not."""
    if mixed is not None:
        history = history.without_group(mixed)
    return [offsets.commits_are_kept(history), offsets.fetches_never_go_back(history)]


def of_share_groups(
    history: History,
    logs: Mapping[Place, Log],
    starts: Mapping[deliveries.GroupPlace, deliveries.Start],
    excused: Mapping[deliveries.GroupPlace, deliveries.Excused],
) -> list[Iterator[str]]:
    """Checks of what members of share groups were given; the arguments are those of `deliveries`."""
    return [
        deliveries.delivered_at_least_once(history, logs, starts, excused),
        deliveries.nothing_else_is_delivered(history, logs, starts),
        deliveries.the_acknowledged_never_come_again(history, excused),
    ]

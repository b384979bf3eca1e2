"""Each claim finds what is wrong in evidence that is written by hand."""

from __future__ import annotations

import pytest

from pykbroker_worlds import (
    AnyOf,
    AtLeastOnce,
    Did,
    Effect,
    ExactlyOnce,
    Followed,
    InOrder,
    NothingLost,
    NoZombieWrites,
    OffsetsNotAhead,
    Records,
    StoredRecord,
)
from pykbroker_worlds.checking.claims import Claim, Wrong
from pykbroker_worlds.checking.conversations import Assigned, Commit, Conversations
from pykbroker_worlds.checking.evidence import Evidence
from pykbroker_worlds.history.events import Place
from pykbroker_worlds.simulated.world import EPOCH_MS

ORDERS, BILLED = Records("orders"), Did("billed")
P0, P1 = ("orders", 0), ("orders", 1)


def records(values: str, partition: int = 0, keys: str = "") -> list[StoredRecord]:
    """One record for each letter, one a second from second 1 on."""
    return [
        StoredRecord(
            "orders",
            partition,
            offset,
            EPOCH_MS + 1000 * (offset + 1),
            keys[offset].encode() if keys else None,
            value.encode(),
            (),
        )
        for offset, value in enumerate(values)
    ]


def effects(keys: str, what: str = "billed", app: str = "a", since: float = 10.0) -> list[Effect]:
    """One effect for each letter, one a second."""
    return [Effect(since + number, app, what, key) for number, key in enumerate(keys)]


def evidence(
    done: list[Effect],
    logs: dict[Place, list[StoredRecord]] | None = None,
    *,
    commits: list[Commit] | None = None,
    assignments: list[Assigned] | None = None,
    seconds: float = 100.0,
    until: float = 100.0,
    ends: dict[Place, int] | None = None,
) -> Evidence:
    talk = Conversations(lambda: 0.0, lambda _: False)
    talk.commits += commits or []
    talk.assignments += assignments or []
    found = {P0: records("abc")} if logs is None else logs

    def read(topic: str) -> dict[Place, tuple[list[StoredRecord], int]] | None:
        return {place: (log, len(log)) for place, log in found.items() if place[0] == topic} or None

    return Evidence(done, talk, read, seconds, until, ends)


def wrong(claim: Claim, found: Evidence) -> Wrong:
    verdict = claim.judge(found)
    assert verdict is not None
    assert verdict.facts
    return verdict


@pytest.mark.parametrize("claim", [AtLeastOnce(ORDERS, BILLED), ExactlyOnce(ORDERS, BILLED)])
def test_what_is_missing_may_come(claim: Claim) -> None:
    assert claim.judge(evidence(effects("abc"))) is None
    missing = wrong(claim, evidence(effects("b")))
    assert missing.text == "billed: 'a' is missing (and 1 more)"
    assert missing.may_come
    # The record of second 3 came after the time from which on applications only have to end what they have begun.
    assert claim.judge(evidence(effects("ab"), ends={P0: 2})) is None
    assert claim.judge(evidence(effects("ab"), ends={P0: 3})) is not None


def test_at_least_once_allows_repetitions_and_more() -> None:
    assert AtLeastOnce(ORDERS, BILLED).judge(evidence(effects("abcabz"))) is None


def test_exactly_once() -> None:
    claim = ExactlyOnce(ORDERS, BILLED)
    again = wrong(claim, evidence(effects("abcb")))
    assert again.text == "billed: 'b' 2 times, and once is right"
    assert [fact.seconds for fact in again.facts] == [2, 11, 13]
    assert not again.may_come
    unknown = wrong(claim, evidence(effects("abcz")))
    assert unknown.text == "billed: 'z', which is not in records of orders"
    assert unknown.may_come
    assert claim.judge(evidence(effects("abcz"), until=12.5)) is None, "an application goes on"
    # A record that is there twice and is billed twice is a bill too many.
    assert "2 times" in wrong(claim, evidence(effects("aa"), {P0: records("aa")})).text


def test_what_was_acknowledged_is_lost() -> None:
    claim = NothingLost(Did("ordered"), ORDERS)
    assert claim.judge(evidence(effects("ab", "ordered"))) is None
    lost = wrong(claim, evidence(effects("ax", "ordered")))
    assert lost.text == "'x' was acknowledged and is not in records of orders"
    assert lost.may_come, "a new leader shows it later"


def test_one_of_several_sources_is_enough() -> None:
    claim = AtLeastOnce(ORDERS, AnyOf(BILLED, Did("refused")))
    assert claim.judge(evidence([*effects("ac"), *effects("b", "refused")])) is None
    assert wrong(claim, evidence(effects("ac"))).text == "billed or refused: 'b' is missing"


def test_order_is_that_of_the_partition_or_of_the_key() -> None:
    claim = InOrder(ORDERS, BILLED)
    assert claim.judge(evidence(effects("abcbc"))) is None, "a repetition counts where it was first"
    assert "'b' after 'c'" in wrong(claim, evidence(effects("acb"))).text
    assert claim.judge(evidence(effects("acb"), {P0: records("abc", keys="xyx")})) is None
    assert "'a' after 'c'" in wrong(claim, evidence(effects("cab"), {P0: records("abc", keys="xyx")})).text
    two = {P0: records("ab", keys="xx"), P1: records("cd", 1, keys="xx")}
    assert claim.judge(evidence(effects("cadb"), two)) is None, "one key in two partitions has no order"


def test_an_offset_is_ahead_of_its_effects() -> None:
    claim = OffsetsNotAhead(ORDERS, BILLED, "g")
    done = effects("abc")  # at 10, 11, 12

    def with_commit(seconds: float, offset: int, group: str = "g", place: Place = P0) -> Evidence:
        return evidence(done, commits=[Commit(50.0, "a", "g", P0, 3), Commit(seconds, "a", group, place, offset)])

    assert claim.judge(with_commit(11.0, 2)) is None
    assert claim.judge(with_commit(5.0, 3, group="other")) is None
    assert claim.judge(with_commit(5.0, 3, place=P1)) is None
    assert claim.judge(with_commit(5.0, 0)) is None
    ahead = wrong(claim, with_commit(11.5, 3))
    assert ahead.text == "a commits orders-0@3 of group g, and billed comes later, or never: 'c'"
    assert not ahead.may_come
    refused = Commit(5.0, "a", "g", P0, 3, error=22)
    assert claim.judge(evidence(done, commits=[refused, Commit(50.0, "a", "g", P0, 3)])) is None
    # An earlier record that was never done counts too.
    assert claim.judge(evidence(effects("bc"), commits=[Commit(50.0, "a", "g", P0, 3)])) is not None


def test_a_zombie_writes_after_the_next_owner_has_begun() -> None:
    claim = NoZombieWrites(ORDERS, BILLED, "g")
    turns = [Assigned(1, "a", "g", 1, frozenset({P0})), Assigned(20, "b", "g", 2, frozenset({P0}))]
    begun = [*effects("a"), *effects("ab", app="b", since=21)]
    assert claim.judge(evidence(begun, assignments=turns)) is None
    late = [*begun, *effects("c", app="a", since=30)]
    zombie = wrong(claim, evidence(late, assignments=turns))
    assert zombie.text == "a billed 'c' of orders-0, which belongs to b by then"
    assert [fact.seconds for fact in zombie.facts] == [3, 20, 21, 30]
    # Its last write comes before the next owner has done anything.
    early = [*effects("a"), *effects("b", app="a", since=20.5), *effects("b", app="b", since=21)]
    assert claim.judge(evidence(early, assignments=turns)) is None
    # The answer of an earlier generation comes to a member that was held up.
    held_up = [*turns, Assigned(29, "a", "g", 1, frozenset({P0}))]
    assert claim.judge(evidence(late, assignments=held_up)) is not None
    # The key is in another partition too.
    both = {P0: records("abc"), P1: records("c", 1)}
    assert claim.judge(evidence(late, both, assignments=turns)) is None
    # The partition comes back.
    back = [*turns, Assigned(25, "a", "g", 3, frozenset({P0}))]
    assert claim.judge(evidence(late, assignments=back)) is None


def test_followed_within_a_time_and_once() -> None:
    claim = Followed(Did("ordered"), BILLED, "5s")
    ordered = effects("ab", "ordered")  # at 10, 11
    assert claim.judge(evidence([*ordered, *effects("ab", since=12)])) is None
    assert (
        "'b' came too late" in wrong(claim, evidence([*ordered, *effects("a", since=12), *effects("b", since=17)])).text
    )
    assert "'b' did not come within 5s" in wrong(claim, evidence([*ordered, *effects("a", since=12)])).text
    assert "'a' 2 times" in wrong(claim, evidence([*ordered, *effects("aab", since=12)])).text
    waiting = wrong(claim, evidence([*ordered, *effects("a", since=12)], seconds=13))
    assert waiting.may_come
    assert "came before" in wrong(claim, evidence([*effects("a", since=5), *effects("a", "ordered")])).text
    twice = [*effects("aa", "ordered"), *effects("aa", since=12)]
    assert claim.judge(evidence(twice)) is None, "two questions and two answers"
    goes_on = [*ordered, *effects("a", since=12)]
    assert claim.judge(evidence(goes_on, until=10.5)) is None
    late = evidence([*effects("a", "ordered"), *effects("a", since=90)], until=10.5)
    assert claim.judge(late) is not None


@pytest.mark.parametrize(
    "claim",
    [
        AtLeastOnce(Records("ordres"), BILLED),
        ExactlyOnce(Records("ordres"), Did("nothing")),
        InOrder(Records("ordres"), BILLED),
        NothingLost(Did("nothing"), Records("ordres")),
        OffsetsNotAhead(ORDERS, BILLED, "biling"),
        NoZombieWrites(ORDERS, BILLED, "biling"),
        Followed(Records("ordres"), BILLED, "5s"),
    ],
)
def test_a_claim_that_judges_nothing_does_not_hold(claim: Claim) -> None:
    verdict = claim.judge(evidence(effects("abc"), commits=[Commit(50.0, "a", "billing", P0, 3)]))
    assert verdict is not None
    assert "'ordres'" in verdict.text or "'biling'" in verdict.text
    assert verdict.may_come


def test_a_key_that_cannot_be_read_names_its_record() -> None:
    claim = AtLeastOnce(Records("orders", lambda record: int(record.value or b"")), BILLED)
    with pytest.raises(ValueError, match="orders-0 at offset 0: ValueError"):
        claim.judge(evidence([]))
    without = AtLeastOnce(Records("orders", lambda record: None if record.offset else "a"), BILLED)
    assert without.judge(evidence(effects("a"))) is None

"""Items by key: what a second one for a key means, and what becomes of each."""

from __future__ import annotations

from pykbroker.node_to_controller.keyed_queue import REPLACED, KeyedQueue, Second, Superseded

Results = list[tuple[str, int | Superseded]]


def queue(second: Second) -> tuple[KeyedQueue[str, str, int], Results]:
    return KeyedQueue(second), []


def offer(to: KeyedQueue[str, str, int], results: Results, key: str, item: str) -> bool:
    return to.offer(key, item, lambda result: results.append((item, result)))


def test_the_newest_of_a_key_replaces_an_older_one() -> None:
    untold, results = queue(Second.REPLACE)
    assert offer(untold, results, "a", "a1")
    assert offer(untold, results, "b", "b1")
    assert offer(untold, results, "a", "a2")
    assert results == [("a1", REPLACED)]
    assert untold.take(10) == {"a": "a2", "b": "b1"}
    # In flight it is replaced as well: the answer is one to what is no longer so.
    assert offer(untold, results, "a", "a3")
    untold.answered({"a": 0, "b": 7})
    assert results == [("a1", REPLACED), ("a2", REPLACED), ("b1", 7)]
    assert untold.take(10) == {"a": "a3"}
    untold.answered({"a": 0})
    assert results[-1] == ("a3", 0)
    assert not untold
    assert len(results) == 4


def test_a_second_of_a_key_is_refused() -> None:
    changes, results = queue(Second.REFUSE)
    assert offer(changes, results, "a", "a1")
    assert not offer(changes, results, "a", "a2")
    assert changes.take(10) == {"a": "a1"}
    assert not offer(changes, results, "a", "a3")
    assert offer(changes, results, "b", "b1")
    changes.answered({"a": 3})
    assert results == [("a1", 3)]
    # The owner knows what became of it, and may decide anew.
    assert offer(changes, results, "a", "a4")
    assert changes.take(10) == {"b": "b1", "a": "a4"}


def test_what_was_not_answered_is_told_again() -> None:
    for second in Second:
        untold, results = queue(second)
        for key in "abc":
            offer(untold, results, key, key)
        assert untold.take(2) == {"a": "a", "b": "b"}
        # The request failed.
        assert untold.take(2) == {"a": "a", "b": "b"}
        untold.answered({"b": 0})
        assert results == [("b", 0)]
        # An item that the answer left out does not keep the others out of the next request.
        assert untold.take(1) == {"c": "c"}
        untold.answered({"c": 0})
        assert untold.take(5) == {"a": "a"}


def test_an_owner_may_offer_again_from_within_the_result() -> None:
    changes, results = queue(Second.REFUSE)
    changes.offer("a", "a1", lambda result: results.append(("taken", offer(changes, results, "a", "a2"))))
    changes.take(1)
    changes.answered({"a": 5})
    assert results == [("taken", True)]
    assert changes.take(1) == {"a": "a2"}

"""The tests' own check that no loop calls the parts of the other."""

from __future__ import annotations

import threading

import pytest

from pykbroker.node import owner_check


class Part:
    def __init__(self) -> None:
        self.called = 0

    def call(self) -> None:
        self.called += 1


class SlottedPart:
    __slots__ = ("called",)

    def __init__(self) -> None:
        self.called = 0

    def call(self) -> None:
        self.called += 1


@pytest.mark.parametrize("kind", [Part, SlottedPart])
def test_a_part_belongs_to_the_thread_that_calls_it_first(kind: type[Part] | type[SlottedPart]) -> None:
    owner_check.install([kind])
    part, another = kind(), kind()
    part.call()
    raised: list[BaseException] = []

    def call() -> None:
        another.call()
        try:
            part.call()
        except owner_check.WrongLoop as error:
            raised.append(error)

    thread = threading.Thread(target=call, name="the other loop")
    thread.start()
    thread.join()
    part.call()
    with pytest.raises(owner_check.WrongLoop):
        another.call()
    assert (part.called, another.called) == (2, 1)
    assert [str(error) for error in raised] == [f"{kind.__name__}.call was called by the other loop"]
    assert owner_check.found == [
        f"{kind.__name__}.call was called by the other loop",
        f"{kind.__name__}.call was called by MainThread",
    ]
    owner_check.found.clear()


def test_a_part_with_slots_that_is_made_at_the_address_of_another_belongs_to_nobody_yet() -> None:
    owner_check.install([SlottedPart])
    part = SlottedPart()
    part.call()
    part.__init__()  # type: ignore[misc]
    thread = threading.Thread(target=part.call)
    thread.start()
    thread.join()
    assert owner_check.found == []
    assert part.called == 1


def test_the_parts_of_a_node_are_checked() -> None:
    for kind in owner_check.parts_of_loops():
        assert any(hasattr(method, "__wrapped__") for method in vars(kind).values()), kind

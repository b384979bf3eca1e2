"""The loops of this folder on three nodes, where a partition's leader asks a coordinator on another node.

Without faults no client meets an error. With a node killed and back again and again, and partitions that move to it,
the totals are exact, and no client meets an error that says that the nodes do not agree about a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compat_tests.built import go_program, java_classes
from compat_tests.exactly_once.conftest import QUICK
from compat_tests.exactly_once.kills import Kills
from compat_tests.exactly_once.test_copy_loops import Loop, python_copier
from compat_tests.exactly_once.test_message_copier import Copy
from compat_tests.exactly_once.test_streams import WordCount
from compat_tests.exactly_once.three_nodes import ThreeNodes
from compat_tests.exactly_once.workers import Slot
from compat_tests.oracle.kafka import java_command, kafka_libs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NEVER = ("INVALID_TXN_STATE", "InvalidTxnState", "OUT_OF_ORDER_SEQUENCE", "OutOfOrderSequence")


@pytest.fixture(scope="module")
def nodes(against: str) -> Iterator[ThreeNodes]:
    kafka_libs()
    made = ThreeNodes(against, QUICK)
    try:
        yield made.start()
        assert not made.cluster.complaints()
    finally:
        made.close()


def librdkafka() -> list[str]:
    return python_copier("confluent_kafka")


def franz_go() -> list[str]:
    return [str(go_program(Path(__file__).parents[1] / "go")), "copy"]


def java() -> list[str]:
    source = Path(__file__).parents[1] / "java" / "CopyProgram.java"
    return java_command("CopyProgram", extra_classpath=java_classes(source))


COPIERS: list[Callable[[], list[str]]] = [librdkafka, franz_go, java]


def errors(slots: list[Slot]) -> list[str]:
    return [str(event["error"]) for slot in slots for event in slot.events if event.get("did") == "failed"]


def check_errors(slots: list[Slot]) -> None:
    met = errors(slots)
    print(f"errors that were met: {met}")
    assert not [error for error in met if any(word in error for word in NEVER)]
    for slot in slots:
        assert not [word for word in NEVER if word in slot.worker.tail(1 << 20)]


@pytest.fixture
def loop(nodes: ThreeNodes, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Loop]:
    made = Loop(nodes, "classic", request.param(), tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("loop", COPIERS, indirect=True, ids=lambda make: make.__name__)
def test_a_loop_meets_no_error(loop: Loop) -> None:
    Kills(loop.node, loop.slots).run(0, loop.progress, least=600)
    loop.finish()
    assert errors(loop.slots) == []
    assert [slot.ends for slot in loop.slots] == [[], []]


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
@pytest.mark.parametrize("loop", COPIERS, indirect=True, ids=lambda make: make.__name__)
def test_a_loop_under_kills_and_moves(loop: Loop) -> None:
    Kills(loop.node, loop.slots, broker_share=0.8).run(25, loop.progress, least=200)
    loop.finish()
    check_errors(loop.slots)


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
def test_kafka_streams_under_kills_and_moves(nodes: ThreeNodes, tmp_path: Path) -> None:
    made = WordCount(nodes, tmp_path)
    try:
        Kills(nodes, made.slots, broker_share=0.8).run(25, made.progress, least=200)
        made.finish()
        check_errors(made.slots)
    finally:
        made.close()


@pytest.mark.long(amount="20 kills of one of three nodes, and as many moves")
@pytest.mark.parametrize("in_groups", [False, True], ids=["assigned", "group"])
def test_the_message_copier_under_kills_and_moves(nodes: ThreeNodes, tmp_path: Path, in_groups: bool) -> None:
    made = Copy(nodes, tmp_path, in_groups=in_groups)
    try:
        Kills(nodes, made.copiers, broker_share=0.8).run(25, made.progress, least=200)
        made.finish()
        check_errors(made.copiers)
    finally:
        made.close()

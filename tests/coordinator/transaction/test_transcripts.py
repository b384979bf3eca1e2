"""Conversations with a transaction coordinator as text: commands in; answers, records, markers and the whole state out.

The files are tests/transcripts/transactions/*.txt. A line that begins with "> " is a command, one with "#" a remark.
All other lines are results of the command above them. After a change that you can explain:

    REWRITE_TRANSCRIPTS=1 python -m pytest tests/coordinator/transaction/test_transcripts.py

    > init ID [timeout=MS] [from=PID/EPOCH]
    > add ID PID/EPOCH TOPIC-PARTITION … [v=VERSION]
    > verify ID PID/EPOCH TOPIC-PARTITION …
    > end ID PID/EPOCH commit|abort [v=VERSION]
    > describe ID
    > leader TOPIC-PARTITION BROKER|none|deleted     broker 1 is the coordinator's
    > verdict TOPIC-PARTITION ERROR …                what this node says of the next markers there
    > answer BROKER [TOPIC-PARTITION=ERROR …]        the oldest WriteTxnMarkers request to it
    > disconnect BROKER
    > store ID STATE PID/EPOCH [timeout=MS] [next=PID] [v=VERSION] [TOPIC-PARTITION …]
                                                     somebody wrote it before; another coordinator loads the log
    > hold | commit                                  appends are not committed until "commit"
    > refuse ERROR|no                                appends fail
    > ids dry|arrive|ERROR                           new producer ids
    > version N                                      transaction.version of the cluster
    > advance MS
    > restart                                        another coordinator loads the log

The first line may be `settings KEY=VALUE …`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykbroker.coordinator.transaction import records
from pykbroker.coordinator.transaction.records import TopicPartition, Transaction, transaction_of
from pykbroker.coordinator.transaction.shard import Identity, Producer
from pykbroker.coordinator.transaction.states import BY_NAME
from pykbroker.metadata.features import TRANSACTION_VERSION
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.stored.transaction.transaction_log import TransactionLogKey, TransactionLogValue
from pykbroker_wire.stored_framing import decode_value
from tests.coordinator.conversation import Conversation, retell, stories
from tests.coordinator.transaction.transaction_bench import TransactionBench

START_MS = 1_000_000


class TransactionConversation(Conversation):
    def __init__(self) -> None:
        super().__init__()
        self.bench = TransactionBench()
        self.records_told = 0
        self.markers_told = 0
        self.waiting: dict[int, Any] = {}
        self.asked = 0

    # -- commands -----------------------------------------------------------------------------------------------------

    def do_settings(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench = TransactionBench(options)

    def do_init(self, plain: list[str], options: dict[str, str]) -> None:
        expected = identity(options["from"]) if "from" in options else None
        self._answer(self.bench.init(name(plain[0]), int(options.get("timeout", 60_000)), expected))

    def do_add(self, plain: list[str], options: dict[str, str]) -> None:
        who = Producer(name(plain[0]), *identity(plain[1]))
        self._answer(self.bench.add(who, *map(partition, plain[2:]), version=int(options.get("v", 2))))

    def do_verify(self, plain: list[str], options: dict[str, str]) -> None:
        who = Producer(name(plain[0]), *identity(plain[1]))
        self._answer(self.bench.service.verify_partitions(who, list(map(partition, plain[2:]))))

    def do_end(self, plain: list[str], options: dict[str, str]) -> None:
        who = Producer(name(plain[0]), *identity(plain[1]))
        self._answer(self.bench.end(who, plain[2] == "commit", version=int(options.get("v", 2))))

    def do_describe(self, plain: list[str], options: dict[str, str]) -> None:
        self._answer(self.bench.service.describe(name(plain[0])))

    def do_leader(self, plain: list[str], options: dict[str, str]) -> None:
        chosen = {"none": -1, "deleted": None}
        self.bench.leader(partition(plain[0]), chosen[plain[1]] if plain[1] in chosen else int(plain[1]))

    def do_verdict(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.verdicts[partition(plain[0])] = [ErrorCode[code] for code in plain[1:]]

    def do_answer(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.answer(int(plain[0]), {partition(key): ErrorCode[value] for key, value in options.items()})

    def do_disconnect(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.disconnect(int(plain[0]))

    def do_store(self, plain: list[str], options: dict[str, str]) -> None:
        producer_id, epoch = identity(plain[2])
        now_ms = self.bench.world.now_ms()
        transaction = Transaction(
            producer_id=producer_id,
            previous_producer_id=producer_id,
            next_producer_id=int(options.get("next", -1)),
            epoch=epoch,
            last_epoch=-1,
            timeout_ms=int(options.get("timeout", 60_000)),
            state=BY_NAME[plain[1]],
            partitions=frozenset(map(partition, plain[3:])),
            start_ms=-1 if plain[1] == "Empty" else now_ms,
            update_ms=now_ms,
            client_version=int(options.get("v", 2)),
        )
        self.bench = self.bench.store(plain[0], transaction)
        self.markers_told = 0

    def do_hold(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.partition.hold = True

    def do_commit(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.partition.hold = False
        self.bench.partition.commit()

    def do_refuse(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.partition.refuse = None if plain[0] == "no" else ErrorCode[plain[0]]

    def do_ids(self, plain: list[str], options: dict[str, str]) -> None:
        if plain[0] == "dry":
            self.bench.ids.dry = True
        elif plain[0] == "arrive":
            self.bench.ids.arrive()
        else:
            self.bench.ids.fail(ErrorCode[plain[0]])

    def do_version(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.cluster.finalized[TRANSACTION_VERSION] = int(plain[0])

    def do_advance(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench.advance(int(plain[0]))

    def do_restart(self, plain: list[str], options: dict[str, str]) -> None:
        self.bench = self.bench.restart()
        self.markers_told = 0

    # -- results -------------------------------------------------------------------------------------------------------

    def _answer(self, value: Any) -> None:
        self.asked += 1
        self.waiting[self.asked] = value
        if isinstance(value, asyncio.Future) and not value.done():
            self.out.append(f"  #{self.asked} waits")

    def _tell(self) -> None:
        self.bench.loop.settle()
        for number, value in list(self.waiting.items()):
            if isinstance(value, asyncio.Future):
                if not value.done():
                    continue
                value = value.result()
            del self.waiting[number]
            self.out.append(f"  #{number} {answer_text(value)}")
        log = self.bench.log()
        for key, stored in log[self.records_told :]:
            self.out.append(f"  log: {record_text(key, stored)}")
        self.records_told = len(log)
        for (topic, index), marker in self.bench.written[self.markers_told :]:
            self.out.append(
                f"  marker {topic}-{index}: {'commit' if marker.commit else 'abort'} "
                f"{marker.producer_id}/{marker.producer_epoch} coordinator={marker.coordinator_epoch} "
                f"v={marker.transaction_version}"
            )
        self.markers_told = len(self.bench.written)
        for broker, request, _ in self.bench.requests:
            each = " ".join(
                f"{marker.producer_id}/{marker.producer_epoch}:"
                + ",".join(f"{topic.name}-{index}" for topic in marker.topics for index in topic.partition_indexes)
                for marker in request.markers
            )
            self.out.append(f"  to broker {broker}: {each}")
        for job in self.bench.service.sender.queue.jobs.values():
            left = " ".join(f"{topic}-{index}" for topic, index in sorted(job.remaining))
            self.out.append(f"  markers of {job.decided.producer.transactional_id} to come: {left}")
        for transactional_id, transaction in self.bench.shard.transactions.items():
            self.out.append(f"  {transactional_id}: {transaction_text(transaction)}")


def name(word: str) -> str:
    return "" if word == '""' else word


def identity(word: str) -> tuple[int, int]:
    producer_id, _, epoch = word.partition("/")
    return int(producer_id), int(epoch)


def partition(word: str) -> TopicPartition:
    topic, _, index = word.rpartition("-")
    return topic, int(index)


def answer_text(answer: Any) -> str:
    match answer:
        case Identity():
            return f"{answer.error.name} {answer.producer_id}/{answer.producer_epoch}"
        case ErrorCode():
            return answer.name
        case dict():
            return " ".join(f"{topic}-{index}:{code.name}" for (topic, index), code in answer.items())
        case (ErrorCode() as code, found):
            return code.name if found is None else f"{code.name} {transaction_text(found)}"
    raise AssertionError(answer)


def transaction_text(transaction: Transaction) -> str:
    parts = [
        f"{transaction.state.kafka_name} {transaction.producer_id}/{transaction.epoch}",
        f"last={transaction.last_epoch}" if transaction.last_epoch != -1 else "",
        f"previous={transaction.previous_producer_id}"
        if transaction.previous_producer_id not in (-1, transaction.producer_id)
        else "",
        f"next={transaction.next_producer_id}" if transaction.next_producer_id != -1 else "",
        f"since={transaction.start_ms - START_MS}" if transaction.start_ms != -1 else "",
        f"v={transaction.client_version}" if transaction.client_version else "",
        " ".join(f"{topic}-{index}" for topic, index in sorted(transaction.partitions)),
    ]
    return " ".join(part for part in parts if part)


def record_text(key: bytes, value: bytes | None) -> str:
    record = records.decode(key, value)
    assert record is not None
    assert isinstance(record.key, TransactionLogKey)
    if record.value is None:
        return f"{record.key.transactional_id} tombstone"
    assert isinstance(record.value, bytes)
    stored = decode_value("transaction", 0, record.value)
    assert isinstance(stored, TransactionLogValue)
    nullness = "" if stored.transaction_partitions is not None else " partitions=null"
    transaction = transaction_of(record.value)
    return (
        f"{record.key.transactional_id} [{record.value[1]}] {transaction_text(transaction)} "
        f"timeout={transaction.timeout_ms} at={transaction.update_ms - START_MS}{nullness}"
    )


@pytest.mark.parametrize("path", stories("transactions"), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    retell(path, TransactionConversation())

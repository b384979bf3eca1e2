"""A leader as a model: logs of batches with epochs, fetch sessions, and its answers to Fetch and ListOffsets."""

from __future__ import annotations

from typing import Any

from pykbroker_log.epochs import LeaderEpochs
from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from pykbroker_wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from pykbroker_wire.records.batch import BatchHeader, build_batch, iter_batches

NOW_MS = 1_700_000_000_000
PartitionKey = tuple[bytes, int]


def batch(base_offset: int, epoch: int, *values: bytes) -> bytes:
    records = [(None, value, (), NOW_MS) for value in values or (b"%d/%d" % (base_offset, epoch),)]
    return bytes(build_batch(records, base_offset=base_offset, leader_epoch=epoch))


class ModelLog:
    """Batches one after the other. It also is a replica for a fetcher."""

    def __init__(self, epoch: int = 0, topic: str = "t") -> None:
        self.topic = topic
        self.epoch = epoch
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.high_watermark = 0
        self.epochs = LeaderEpochs()
        #: the error that is answered instead of records
        self.error = ErrorCode.NONE

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def epoch_end_offset(self, leader_epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset(leader_epoch, self.log_end_offset)

    def lead(self, epoch: int) -> None:
        self.epoch = epoch
        self.epochs.assign(epoch, self.log_end_offset)

    def write(self, count: int = 1, records: int = 1, *, gap: int = 0) -> None:
        """Write as the leader."""
        for _ in range(count):
            base = self.log_end_offset + gap
            self.append(batch(base, self.epoch, *(b"%d" % (base + number) for number in range(records))))

    def append(self, records: bytes | memoryview) -> None:
        for position, header in iter_batches(records):
            assert header.base_offset >= self.log_end_offset
            self.epochs.assign(header.partition_leader_epoch, header.base_offset)
            self.batches.append(bytes(records[position : position + header.size_in_bytes]))
            self.log_end_offset = header.next_offset

    def truncate(self, offset: int) -> None:
        while self.batches and BatchHeader.parse(self.batches[-1]).next_offset > offset:
            self.log_end_offset = BatchHeader.parse(self.batches.pop()).base_offset
        self.log_end_offset = min(self.log_end_offset, max(offset, self.log_start_offset))
        self.epochs.truncate_end(self.log_end_offset)
        self.high_watermark = min(self.high_watermark, self.log_end_offset)

    def start_over(self, offset: int) -> None:
        self.batches.clear()
        self.epochs.clear()
        self.log_start_offset = self.log_end_offset = self.high_watermark = offset

    def delete_before(self, offset: int) -> None:
        self.log_start_offset = offset
        self.epochs.truncate_start(offset)
        self.batches = [each for each in self.batches if BatchHeader.parse(each).next_offset > offset]

    def contents(self) -> list[tuple[int, int, int]]:
        """(base offset, last offset, epoch) of each batch."""
        return contents(b"".join(self.batches))

    def read(self, asked: Any, max_bytes: int) -> PartitionData:
        """Return the answer of Apache Kafka's leader to one partition of a follower's fetch."""
        data = PartitionData(
            partition_index=asked.partition, high_watermark=-1, last_stable_offset=-1, log_start_offset=-1, records=b""
        )
        if self.error:
            data.error_code = self.error
        elif asked.current_leader_epoch < self.epoch:
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.current_leader_epoch > self.epoch:
            data.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
        else:
            self._read(asked, max_bytes, data)
        return data

    def _read(self, asked: Any, max_bytes: int, data: PartitionData) -> None:
        offset = asked.fetch_offset
        if asked.last_fetched_epoch >= 0:
            epoch, end = self.epoch_end_offset(asked.last_fetched_epoch)
            if epoch < 0 or end < 0 or offset < self.log_start_offset:
                data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return
            if epoch < asked.last_fetched_epoch or end < offset:
                data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end)
                data.high_watermark, data.log_start_offset = self.high_watermark, self.log_start_offset
                return
        if not self.log_start_offset <= offset <= self.log_end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
            return
        found = b""
        for each in self.batches:
            if BatchHeader.parse(each).next_offset > offset:
                if found and len(found) + len(each) > max_bytes:
                    break
                found += each
        data.high_watermark, data.log_start_offset, data.records = self.high_watermark, self.log_start_offset, found


def contents(records: bytes | memoryview) -> list[tuple[int, int, int]]:
    return [
        (header.base_offset, header.last_offset, header.partition_leader_epoch) for _, header in iter_batches(records)
    ]


class Leader:
    """Logs by topic id and index. A Peer (tests/net/peer.py) calls `answer`."""

    def __init__(self) -> None:
        self.logs: dict[PartitionKey, ModelLog] = {}
        self.fetches: list[FetchRequest] = []
        #: the error that is answered to the next Fetch
        self.refuses = ErrorCode.NONE
        #: the position of each partition in the session
        self.asked: dict[PartitionKey, Any] = {}
        # High watermark and log start that the follower got.
        self._told: dict[PartitionKey, tuple[int, int]] = {}
        self._id = 0
        self._epoch = 0

    def answer(self, request: Any, version: int = 18) -> Any:
        """Answer at once, even if there is nothing new."""
        if isinstance(request, ListOffsetsRequest):
            return self._offsets(request)
        return self.take(request) or self.read(request)

    def on_connection(self) -> Leader:
        """Return a leader with the same logs, and a session of its own."""
        twin = Leader()
        twin.logs, twin.fetches = self.logs, self.fetches
        return twin

    def take(self, request: FetchRequest) -> FetchResponse | None:
        """Update the session from the request. Returns the answer if that is an error."""
        self.fetches.append(request)
        if self.refuses:
            error, self.refuses = self.refuses, ErrorCode.NONE
            return FetchResponse(error_code=error)
        if request.session_epoch <= 0:
            self.asked, self._told = {}, {}
            self._id += 1
            self._epoch = 0
        elif request.session_id != self._id:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif request.session_epoch != self._epoch:
            return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._epoch += 1
        for forgotten in request.forgotten_topics_data:
            for index in forgotten.partitions:
                del self.asked[forgotten.topic_id, index]
        for topic in request.topics:
            for asked in topic.partitions:
                self.asked[topic.topic_id, asked.partition] = asked
        return None

    def read(self, request: FetchRequest) -> FetchResponse:
        """Return the records. A partition without anything new is left out, except from a full answer."""
        answers: dict[bytes, FetchableTopicResponse] = {}
        left = request.max_bytes
        for key, asked in self.asked.items():
            log = self.logs.get(key)
            if log is None:
                data = PartitionData(
                    partition_index=key[1], error_code=ErrorCode.UNKNOWN_TOPIC_ID, high_watermark=-1, records=b""
                )
            else:
                data = log.read(asked, min(left, asked.partition_max_bytes))
            assert isinstance(data.records, bytes)
            left -= len(data.records)
            told = data.high_watermark, data.log_start_offset
            is_news = data.records or data.error_code or data.diverging_epoch.epoch >= 0 or told != self._told.get(key)
            if is_news or request.session_epoch <= 0:
                self._told[key] = told
                answers.setdefault(key[0], FetchableTopicResponse(topic_id=key[0])).partitions.append(data)
        return FetchResponse(session_id=self._id, responses=list(answers.values()))

    def _offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            answers = []
            for asked in topic.partitions:
                log = next(
                    log
                    for (_, index), log in self.logs.items()
                    if (log.topic, index) == (topic.name, asked.partition_index)
                )
                code = ErrorCode.NONE
                if asked.current_leader_epoch != log.epoch:
                    is_old = asked.current_leader_epoch < log.epoch
                    code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
                offset = log.log_end_offset if asked.timestamp == -1 else log.log_start_offset
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=asked.partition_index, error_code=code, offset=-1 if code else offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

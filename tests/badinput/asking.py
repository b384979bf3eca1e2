"""A client whose connection can be found in the log of a node, and what its tests prepare on that node."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pykbroker_wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from pykbroker_wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.metadata import MetadataRequest
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from testkit.nodes.wire import Verdict, Wire
from tests.badinput.watched import HOST

CLIENT_ID = "badinput"


def _time_of(line: str) -> str:
    """Return the time of a log line as text; "" for a line without one."""
    return line[1:24] if line.startswith("[") else ""


class Asker(Wire):
    """Its own address and port identify it in the node's log."""

    def __init__(self, port: int, source: str | None = None) -> None:
        self._since = f"{datetime.now() - timedelta(milliseconds=1):%Y-%m-%d %H:%M:%S,%f}"[:-3]
        super().__init__(f"{HOST}:{port}", client_id=CLIENT_ID, source=source)
        host, local_port = self.socket.getsockname()
        self._name = f"{host}:{local_port} "

    def said_in(self, log_file: Path) -> list[str]:
        """Return the lines of a node's log about this connection, from its start on, because ports are used again."""
        lines = log_file.read_text(errors="replace").splitlines()
        return [line for line in lines if self._name in line and _time_of(line) >= self._since]

    def exchange(self, data: bytes) -> bytes | Verdict:
        """Send exact bytes and return the frame of the answer, or CLOSED, or SILENT."""
        self.send_bytes(data)
        return self.answer()

    def is_served(self) -> None:
        assert len(self.call(MetadataRequest(topics=[])).brokers) == 1

    def make_topic(self, name: str, **configs: str) -> str:
        """Create a topic, unless it is there, and wait until its partition has a leader."""
        made = self.try_create(name, 1, 1, {key.replace("_", "."): value for key, value in configs.items()})
        assert made.error_code in (0, 36), made.error_message
        while (found := self.metadata(name).topics[0]).error_code or any(p.error_code for p in found.partitions):
            pass
        return name

    def topic_id(self, name: str) -> bytes:
        return bytes(self.metadata(name).topics[0].topic_id)

    def make_coordinator(self) -> None:
        while self.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])).coordinators[0].error_code:
            pass

    def make_share_group(self) -> None:
        """Make a share group with an offset, and read its lag. The node then has all connections to itself that
        requests about share groups need."""
        topic = self.make_topic("shared")
        partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
        altered = AlterShareGroupOffsetsRequest(
            group_id="sharing",
            topics=[AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])],
        )
        while (answer := self.call(altered)).error_code or answer.responses[0].partitions[0].error_code:
            pass
        asked = DescribeShareGroupOffsetsRequestGroup(group_id="sharing", topics=None)
        answer = self.call(DescribeShareGroupOffsetsRequest(groups=[asked]))
        (described,) = answer.groups[0].topics
        assert described.partitions[0].lag == 0

    def try_produce(
        self, topic: str, records: bytes | None, *, acks: int = -1, partition: int = 0, version: int = 9
    ) -> Any:
        """Return the response for the partition, or CLOSED, or SILENT."""
        data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=records)])]
        request = ProduceRequest(transactional_id=None, acks=acks, timeout_ms=5000, topic_data=data)
        answer = self.ask(request, version, 20)
        return answer if isinstance(answer, Verdict) else answer.responses[0].partition_responses[0]

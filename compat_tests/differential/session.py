"""The connections of a script to one node. Every request and answer is kept for the comparison.

The connections are those of the tests' client (testkit/nodes/wire.py), which knows nothing of scripts. A Session keeps
the steps and no connection does, because each step has the label that its script gave it.

A script is a function of a Session. It runs once for each node; the two transcripts must be equal. `each` sends a
request in every version that can encode it; `call` sends it once; `raw` sends bytes. Methods with `make_` or `until_`
in front prepare the node, must succeed, and are not compared.

A node answers each request, and its connections stay open. If it must close the connection instead, the script marks
that step (`closes=True`). Any other outcome is the step's `fault`, which fails the test even if both nodes agree.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compat_tests.differential.plain import Symbols
from pykbroker_wire.apis import APIS, ApiKey
from pykbroker_wire.headers import decode_response
from pykbroker_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from pykbroker_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from pykbroker_wire.messages.describe_groups import DescribeGroupsRequest
from pykbroker_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from pykbroker_wire.messages.find_coordinator import FindCoordinatorRequest
from pykbroker_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from pykbroker_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from pykbroker_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from pykbroker_wire.primitives import DecodeError, EncodeError, TopLevel
from pykbroker_wire.records.batch import build_batch
from testkit.nodes.wire import CLOSED, Verdict, Wire

CLIENT_ID = "differential"
ANSWER_TIMEOUT_S = 6.0
# All timestamps of all scripts are of yesterday, the same on both nodes, so that retention keeps them.
NOW_MS = int(time.time()) // 86400 * 86_400_000 - 86_400_000
PATIENCE_S = 30.0
NOT_LOADED = (14, 15, 16)
OTHER_RUN = re.compile(r"-[0-9a-f]{6}$")


class NodeError(Exception):
    """A node did not reach the state that a script needs before it can begin."""


@dataclass(slots=True)
class Step:
    label: str
    api: str
    version: int
    asked: Any
    answered: Any
    #: the error of this step on this node, whatever the other node did
    fault: str = ""

    @property
    def title(self) -> str:
        return f"{self.label} [{self.api} v{self.version}]" if self.api else self.label


class Session:
    def __init__(
        self,
        script: str,
        address: str,
        texts: dict[str, str],
        run: str = "",
        wording: bool = False,
        nodes: Mapping[str, str] | None = None,
    ) -> None:
        """`nodes`: the addresses of other nodes, by the name of the link on which a script reaches them."""
        self._address = address
        self._nodes = nodes or {}
        self._script = script
        self._run = run
        self._texts = {f"-{run}": ""} | texts if run else texts
        self._symbols = Symbols(self._texts, NOW_MS, wording=wording)
        self._links: dict[str, Wire] = {}
        self._topics = 0
        self._marker = ""
        self._marks = 0
        self.steps: list[Step] = []

    # -- asking -------------------------------------------------------------------------------------------------------

    def name(self, what: str) -> str:
        """Return a name that no other script uses."""
        return f"{self._script}.{what}-{self._run}" if self._run else f"{self._script}.{what}"

    def call(
        self,
        label: str,
        request: TopLevel,
        version: int | None = None,
        *,
        link: str = "",
        client_id: str | None = CLIENT_ID,
        closes: bool = False,
    ) -> Any:
        """Send a request; returns the answer, or None if there was none. `closes`: the node must close the connection
        instead."""
        self.send(request, version, link=link, client_id=client_id)
        return self.receive(label, request, version, link=link, closes=closes)

    def each(
        self,
        label: str,
        make: Callable[[int], TopLevel | None],
        versions: Iterable[int] | None = None,
        *,
        link: str = "",
        closes: bool = False,
    ) -> None:
        """Send a request in each version for which `make` returns one that the version can encode."""
        probe = next(filter(None, (make(version) for version in range(18, -1, -1))))
        api = APIS[ApiKey(probe.API_KEY)]
        for version in versions if versions is not None else range(api.min_version, api.max_version + 1):
            request = make(version)
            if request is None:
                continue
            try:
                request.encode(version)
            except EncodeError:
                continue
            self.call(label, request, version, link=link, closes=closes)

    def send(
        self, request: TopLevel, version: int | None = None, *, link: str = "", client_id: str | None = CLIENT_ID
    ) -> None:
        """Send without waiting; `receive` takes the answer."""
        wire = self._link(link)
        wire.client_id = client_id
        wire.send_bytes(wire.frame(request, version))

    def send_together(self, requests: Iterable[TopLevel], *, link: str = "") -> None:
        """Send requests in one write, without waiting."""
        wire = self._link(link)
        wire.client_id = CLIENT_ID
        wire.send_bytes(b"".join(wire.frame(request) for request in requests))

    def hang_up(self, link: str) -> None:
        """Close a connection. The next request on this link is sent on a new one."""
        self._links.pop(link).close()

    def receive(
        self, label: str, request: TopLevel, version: int | None = None, *, link: str = "", closes: bool = False
    ) -> Any:
        version = request.MAX_VERSION if version is None else version
        answer = self._decode(request.API_KEY, version, self._answer(link, ANSWER_TIMEOUT_S))
        self._keep(label, request.API_KEY, version, self._symbols.message(request), answer, closes)
        return answer if isinstance(answer, TopLevel) else None

    def raw(self, label: str, data: bytes, *, api: int | None = None, version: int = 0, closes: bool = False) -> None:
        """Send bytes, with their size, on a connection of their own; the answer is `api`'s in `version`, or bytes."""
        with Wire(self._address) as wire:
            wire.send_bytes(data)
            frame = wire.answer(ANSWER_TIMEOUT_S)
        answer = frame if api is None else self._decode(api, version, frame)
        self._keep(label, api, version, data[:40].hex(), answer, closes)

    def note(self, label: str, value: Any, api: str = "") -> None:
        """Compare a value that a script has computed from answers. `api`: the API whose masks apply to it."""
        self.steps.append(Step(label, api, 0, None, self._symbols.plain(value)))

    def know(self, kind: str, value: Any) -> None:
        """Give this value of the node its symbol now, whatever shows it first."""
        self._symbols.symbol(kind, value)

    def know_text(self, text: str) -> None:
        """Do the same for the ids in a text."""
        self._symbols.text(text)

    def knows(self, kind: str, value: Any) -> bool:
        return self._symbols.knows(kind, value)

    def fields(self, message: TopLevel) -> dict[str, Any]:
        """Return a message's fields as they are compared, for `note`."""
        return self._symbols.message(message)

    def is_mine(self, name: str) -> bool:
        """Return True if a name is one of this script's, in this run."""
        text = self._symbols.text(name)
        return text.startswith(f"{self._script}.") and not OTHER_RUN.search(text)

    def only_mine(self) -> None:
        """Remove the entries of other scripts from the last answer (LeftOut.OTHER_SCRIPTS), if it lists everything."""
        last = self.steps[-1]
        for name, items in last.answered.items() if isinstance(last.answered, dict) else ():
            if isinstance(items, list) and items and isinstance(items[0], dict):
                last.answered[name] = [item for item in items if self._is_mine(item)]

    def _is_mine(self, item: dict[str, Any]) -> bool:
        names = [
            item[key]
            for key in ("name", "group_id", "resource_name", "topic", "transactional_id")
            if isinstance(item.get(key), str)
        ]
        # Names that earlier runs of this script have left have their suffix, which was not replaced.
        return not names or any(self.is_mine(name) for name in names)

    def _decode(self, api: int, version: int, frame: bytes | Verdict) -> Any:
        if isinstance(frame, Verdict):
            return frame
        try:
            return decode_response(api, version, frame)[1]
        except DecodeError as error:
            return f"not decodable: {error}: {frame.hex()[:200]}"

    def _keep(self, label: str, api: int | None, version: int, asked: Any, answer: Any, closes: bool) -> None:
        fault = ""
        if isinstance(answer, TopLevel):
            answered: Any = self._symbols.message(answer)
        elif isinstance(answer, Verdict):
            answered = answer.value
        else:
            answered = answer.hex() if isinstance(answer, bytes) else answer
            fault = "" if isinstance(answer, bytes) else answer
        if closes and answer is not CLOSED:
            fault = "the connection had to be closed, and was not"
        elif not closes and isinstance(answer, Verdict):
            fault = f"{answer.value}, which the script does not expect"
        name = "" if api is None else APIS[ApiKey(api)].name
        self.steps.append(Step(self._symbols.text(label), name, version, asked, answered, fault))

    def _link(self, name: str) -> Wire:
        """Return the connection of this name. It is made at its first use, and after one that gave no answer."""
        if name not in self._links:
            self._links[name] = Wire(self._nodes.get(name, self._address))
        return self._links[name]

    def _answer(self, link: str, timeout_s: float) -> bytes | Verdict:
        answer = self._link(link).answer(timeout_s)
        if isinstance(answer, Verdict):
            # A late answer would be taken for the next one.
            self._links.pop(link).close()
        return answer

    def give_up(self, error: NodeError) -> None:
        """End the script with a fault."""
        self.steps.append(Step("the script could not go on", "", 0, None, f"{error}", f"{error}"))

    def end(self) -> None:
        """End the script. A connection that the node has closed since its last answer is a fault."""
        broken = sorted(name for name, link in self._links.items() if link.has_ended())
        if broken:
            said = f"connections that the node has closed: {broken}"
            self.steps.append(Step("the script has ended", "", 0, None, said, said))
        self.close()

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    # -- preparing ----------------------------------------------------------------------------------------------------

    def ask(self, request: TopLevel, version: int | None = None, *, on: str = "preparation") -> Any:
        """Send a request without keeping it. `on`: the connection; "" is the one of `call`, which a member of a group
        needs."""
        version = request.MAX_VERSION if version is None else version
        self.send(request, version, link=on)
        return self._expected(request, version, on)

    def ask_many(self, request: TopLevel, count: int) -> list[Any]:
        """Send the same request `count` times, without waiting in between and without keeping it."""
        link = self._link("preparation")
        link.client_id = CLIENT_ID
        link.send_bytes(link.frame(request) * count)
        return [self._expected(request, request.MAX_VERSION, "preparation") for _ in range(count)]

    def taken(self, request: TopLevel, version: int, link: str) -> Any | None:
        """Return the answer to a request that was sent, without keeping it, or None as long as there is none."""
        return self._expected(request, version, link) if self._link(link).is_readable() else None

    def _expected(self, request: TopLevel, version: int, link: str) -> Any:
        answer = self._decode(request.API_KEY, version, self._answer(link, PATIENCE_S))
        if not isinstance(answer, TopLevel):
            raise NodeError(f"{type(request).__name__} v{version}: {answer}")
        return answer

    def make_topic(self, what: str | None = None, partitions: int = 1, **configs: str) -> str:
        """Create a topic whose partitions have leaders that answer."""
        if what is None:
            self._topics += 1
            what = str(self._topics)
        name = self.name(what)
        topic = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=[1]) for i in range(partitions)],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        done = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=20000)).topics[0]
        if done.error_code:
            raise NodeError(f"topic {name} was not made: {done.error_code} {done.error_message}")
        self.until_served(name, partitions)
        return name

    def until_served(self, name: str, partitions: int = 1) -> None:
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)],
                )
            ],
        )

        def served() -> bool:
            topics = self.ask(request).topics
            return bool(topics) and all(p.error_code == 0 for p in topics[0].partitions)

        self.until(served, f"{name} is served")

    def until_gone(self, name: str) -> None:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        self.until(lambda: self.ask(request).topics[0].error_code == 3, f"{name} is gone")

    def until_coordinator(self) -> None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self.name("coordinator")])
        self.until(lambda: self.ask(request).coordinators[0].error_code == 0, "groups have a coordinator")
        # Enough names for every partition of the offsets topic, each of which is loaded separately.
        groups = DescribeGroupsRequest(groups=[self.name(f"coordinator-{number}") for number in range(20)])
        self.until(
            lambda: all(group.error_code not in NOT_LOADED for group in self.ask(groups, 5).groups), "all are loaded"
        )

    def until_partitions(self, name: str, count: int) -> None:
        request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])
        self.until(lambda: len(self.ask(request).topics[0].partitions) == count, f"{name} has {count} partitions")
        self.until_served(name, count)

    def topic_id(self, name: str) -> bytes:
        found = self.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name)])).topics[0]
        return bytes(found.topic_id)

    def make_records(
        self, topic: str, values: Sequence[bytes], partition: int = 0, *, at_ms: int = NOW_MS, step_ms: int = 1000
    ) -> None:
        """Write one batch per value."""
        for index, value in enumerate(values):
            batch = build_batch([(b"k", value, (), at_ms + index * step_ms)])
            data = [
                TopicProduceData(
                    topic_id=self.topic_id(topic), partition_data=[PartitionProduceData(index=partition, records=batch)]
                )
            ]
            done = (
                self.ask(ProduceRequest(acks=-1, timeout_ms=10000, topic_data=data)).responses[0].partition_responses[0]
            )
            if done.error_code:
                raise NodeError(f"{topic}-{partition}: not written: {done.error_code} {done.error_message}")

    def until_published(self) -> None:
        """Wait until earlier changes are visible, because Kafka answers a change when it is committed, not when it is
        visible."""
        if not self._marker:
            self._marker = self.make_topic("marker")
        self._marks += 1
        config = AlterableConfig(name="retention.ms", value=str(10_000_000 + self._marks))
        resource = AlterConfigsResource(resource_type=2, resource_name=self._marker, configs=[config])
        self.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=2, resource_name=self._marker, configuration_keys=["retention.ms"]
                )
            ]
        )
        self.until(lambda: self.ask(request).results[0].configs[0].value == config.value, "a change is seen")
        time.sleep(0.01)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise NodeError(f"not within {PATIENCE_S:.0f} s: {what}")
            time.sleep(0.02)

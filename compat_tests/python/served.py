"""A Python client behind the line protocol of remote.py, so that its process can be killed.

python -m compat_tests.python.served kafka-python
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compat_tests.clients import Client, Member, ProduceError
from compat_tests.groups import Spawn, spawner
from compat_tests.remote import record_from_wire, record_to_wire


def confluent_kafka() -> Client:
    from compat_tests.python.confluent_client import ConfluentClient

    return ConfluentClient()


def kafka_python() -> Client:
    from compat_tests.python.kafka_python_client import KafkaPythonClient

    return KafkaPythonClient()


def aiokafka() -> Client:
    from compat_tests.python.aiokafka_client import AiokafkaClient, LoopThread

    return AiokafkaClient(LoopThread())


CLIENTS: dict[str, Callable[[], Client]] = {
    "confluent-kafka": confluent_kafka,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
}


def python_spawner(name: str, folder: Path) -> Iterator[Spawn]:
    yield from spawner(name, [sys.executable, "-m", "compat_tests.python.served", name], folder)


class Server:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._members: list[Member] = []

    def answer(self, request: dict[str, Any]) -> Any:
        op, at = request["op"], (request.get("bootstrap", ""), request.get("topic", ""))
        if op == "produce":
            # Headers travel as pairs, partition and offset behind them: a row without an offset was not written yet.
            records = [record_from_wire([*row, None]) for row in request["records"]]
            names = ("compression", "idempotent", "max_request_bytes")
            return self._client.produce(*at, records, **{name: request[name] for name in names})
        if op == "consume":
            read = self._client.consume(*at, from_time_ms=request["from_time_ms"])
            return [[*record_to_wire(record), record.offset] for record in read]
        if op == "join":
            self._client.session_timeout_ms = request["session_timeout_ms"]
            self._members.append(self._client.member(*at, request["group"]))
            return len(self._members) - 1
        member = self._members[request["member"]]
        if op == "partitions":
            return sorted(member.partitions())
        if op == "records":
            return [[*record_to_wire(record), record.offset] for record in member.records()[request["from"] :]]
        assert op == "leave", op
        return member.leave()


def main() -> None:
    server = Server(CLIENTS[sys.argv[1]]())
    for line in sys.stdin:
        request = json.loads(line)
        said: dict[str, Any] = {"id": request["id"]}
        try:
            said["result"] = server.answer(request)
        except ProduceError as error:
            said["error"] = str(error)
        except Exception as error:  # noqa: BLE001 -- the test that asked fails with it
            said["error"] = repr(error)
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()

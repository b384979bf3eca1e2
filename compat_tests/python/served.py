"""A Python client with the line protocol of remote.py, so that its process can be killed. It has the operations of
members.

python -m compat_tests.python.served kafka-python
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from compat_tests.groups import Spawn, spawner
from compat_tests.remote import record_to_wire
from testkit.clients import Client, Member


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


def serve(answer: Callable[[dict[str, Any]], Any]) -> None:
    """Answer requests from standard input until it ends."""
    for line in sys.stdin:
        request = json.loads(line)
        said: dict[str, Any] = {"id": request["id"]}
        try:
            said["result"] = answer(request)
        except Exception as error:  # noqa: BLE001 -- the test that asked fails with it
            said["error"] = repr(error.__cause__ or error)
        print(json.dumps(said), flush=True)


def main() -> None:
    serve(Server(CLIENTS[sys.argv[1]]()).answer)


if __name__ == "__main__":
    main()

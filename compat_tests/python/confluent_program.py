"""confluent-kafka members with the line protocol of compat_tests/remote.py, in a process that can be killed."""

from __future__ import annotations

from typing import Any

from compat_tests.python.confluent_client import ConfluentMember
from compat_tests.python.served import serve
from compat_tests.remote import record_to_wire


def member(request: dict[str, Any]) -> ConfluentMember:
    options: dict[str, Any] = {"log_level": 3}
    if "instance" in request:
        options["group.instance.id"] = request["instance"]
    if request.get("protocol") == "consumer":
        # The interval is the broker's, and librdkafka refuses it here.
        options |= {"group.protocol": "consumer", "heartbeat.interval.ms": None}
        if "assignor" in request:
            options["group.remote.assignor"] = request["assignor"]
    else:
        options |= {
            "session.timeout.ms": request["session_timeout_ms"],
            "partition.assignment.strategy": "cooperative-sticky",
        }
    # A name that begins with ^ is a regular expression.
    topic = f"^{request['pattern']}" if "pattern" in request else request["topic"]
    return ConfluentMember(request["bootstrap"], topic, request["group"], **options)


def main() -> None:
    members: list[ConfluentMember] = []

    def answer(request: dict[str, Any]) -> Any:
        if request["op"] == "join":
            members.append(member(request))
            return len(members) - 1
        one = members[request["member"]]
        match request["op"]:
            case "assignment":
                return sorted(one.assignment())
            case "records":
                return [[*record_to_wire(record), record.offset] for record in one.records()[request["from"] :]]
            case "leave":
                one.leave()
                return None
        raise ValueError(f"unknown op {request['op']}")

    serve(answer)


if __name__ == "__main__":
    main()

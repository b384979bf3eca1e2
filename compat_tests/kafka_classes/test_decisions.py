"""Our authorizer, compared with Apache Kafka's StandardAuthorizer: the same ACLs, questions and answers."""

from __future__ import annotations

import logging
import random
from typing import NamedTuple

import pytest

from compat_tests.kafka_classes.acl_world import World, asker
from compat_tests.kafka_classes.differences import Difference, Differences
from compat_tests.remote import Program
from pykbroker.security.acl import Acl
from pykbroker.security.authorizer import Operation, Resource
from pykbroker_wire.primitives import uuid_from_str

WORLDS = 300


class Case(NamedTuple):
    """A question whose answers differ: [allowed, the line of the log]. `acls` are those of the resource type."""

    name: str
    theirs: tuple[bool, str]
    ours: tuple[bool, str]
    acls: tuple[Acl, ...]


def _begins_with_a_star(case: Case) -> bool:
    return case.name.startswith("*") and any(acl.resource_name == "*" for acl in case.acls)


DIFFERENCES: tuple[Difference[Case], ...] = (
    Difference(
        "an ACL of * and a name that begins with *",
        "Apache Kafka does not apply the ACL, so that a DENY of * leaves a group *abc open. Ours is for every name.",
        _begins_with_a_star,
    ),
)


def _line(text: str) -> str:
    """Return the line without the prefix of slf4j or Python's logging."""
    return text.partition("Principal = ")[2].strip()


def test_300_authorizers_decide_alike(kafka: Program, caplog: pytest.LogCaptureFixture) -> None:
    differences = Differences(DIFFERENCES)
    rng = random.Random(5)
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    allowed = denied = 0
    for number in range(WORLDS):
        world = World(rng)
        answers = iter(kafka.ask("decisions", configs=world.configs, steps=world.steps))
        ours = world.authorizer()
        acls: dict[bytes, Acl] = {}
        for step in world.steps:
            if step[0] in ("add", "remove"):
                acl_id = uuid_from_str(step[1])
                if step[0] == "add":
                    acls[acl_id] = Acl(*step[2])
                else:
                    del acls[acl_id]
                ours.change({acl_id: acls.get(acl_id)})
                continue
            _, principal, address, operation, resource, *name = step
            caplog.clear()
            client = asker(principal, address)
            if step[0] == "some":
                answer = ours.authorize_some(client, Operation(operation), Resource(resource)), ""
            else:
                found = ours.authorize(client, Operation(operation), Resource(resource), name[0])
                answer = found, _line(caplog.messages[0])
            their_answer, their_line = next(answers)
            theirs = their_answer, _line(their_line)
            if answer != theirs:
                of_type = [acl for acl in acls.values() if acl.resource_type == resource]
                case = Case(name[0] if name else "", theirs, answer, tuple(of_type))
                text = f"world {number}, {world.configs}, {step}\nKafka: {theirs}\nours:  {answer}\n"
                assert differences.explain(case), text + "\n".join(map(str, of_type))
            allowed += answer[0]
            denied += not answer[0]
    differences.assert_all_seen()
    # Both kinds of answers occur often enough.
    assert min(allowed, denied) > 1_000

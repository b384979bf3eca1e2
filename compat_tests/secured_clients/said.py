"""The cases that each client is tried with on a secured node, and its messages for a refusal. The tests expect them,
and docs/secured-clients.md shows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compat_tests.sasl.secured import USERS

PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
#: protocol, mechanism
Case = tuple[str, str]
CASES: Final[tuple[Case, ...]] = tuple((protocol, mechanism) for protocol in PROTOCOLS for mechanism in USERS)


@dataclass(frozen=True, slots=True)
class Said:
    """Parts of the client's own exceptions, or of its log. If `renews`, the client writes for longer than a session
    lasts."""

    wrong_password: str
    denied_topic: str
    cases: tuple[Case, ...] = CASES
    renews: bool = True
    #: A note for the page.
    note: str = ""


LIBRARIES: Final = {
    "kafka-python": Said(
        "SaslAuthenticationFailed",
        "TopicAuthorizationFailedError",
        note="The wrong password is in its log; its exception is KafkaTimeoutError.",
    ),
    "confluent-kafka": Said("_AUTHENTICATION", "TOPIC_AUTHORIZATION_FAILED"),
    "aiokafka": Said("KafkaConnectionError", "TopicAuthorizationFailedError"),
}
PROGRAMS: Final = {
    "franz-go": Said("SASL_AUTHENTICATION_FAILED", "TOPIC_AUTHORIZATION_FAILED"),
    "sarama": Said(
        "SASL Authentication failed",
        "The client is not authorized to access this topic",
        note="SCRAM by xdg-go/scram, as its own examples do.",
    ),
    "kafkajs": Said("KafkaJSSASLAuthenticationError", "TOPIC_AUTHORIZATION_FAILED"),
}
JAVA: Final = Said(
    "SaslAuthenticationException",
    "no offsets, exit status 1",
    renews=False,
    note="GetOffsetShell. Spark's jobs, a Java client too, write and read in docs/pipeline.md.",
)

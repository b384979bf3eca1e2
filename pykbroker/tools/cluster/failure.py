"""Failures of requests to a cluster, under the names of Apache Kafka's exceptions.

Responsible for the name and the text of each failure, because users' scripts search for both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pykbroker_wire.errors import ErrorCode

_PACKAGE: Final = "org.apache.kafka.common.errors."
_TIMEOUT: Final = _PACKAGE + "TimeoutException"

#: Names that do not follow from the name of the code.
_NAMES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UnknownServerException",
    ErrorCode.CORRUPT_MESSAGE: "CorruptRecordException",
    ErrorCode.REQUEST_TIMED_OUT: "TimeoutException",
    ErrorCode.MESSAGE_TOO_LARGE: "RecordTooLargeException",
    ErrorCode.RECORD_LIST_TOO_LARGE: "RecordBatchTooLargeException",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    ErrorCode.TOPIC_ALREADY_EXISTS: "TopicExistsException",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "InvalidTopicException",
    ErrorCode.INVALID_CONFIG: "InvalidConfigurationException",
    ErrorCode.NON_EMPTY_GROUP: "GroupNotEmptyException",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ClusterAuthorizationException",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "TransactionalIdAuthorizationException",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "DelegationTokenAuthorizationException",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "SaslAuthenticationException",
    ErrorCode.KAFKA_STORAGE_ERROR: "KafkaStorageException",
    ErrorCode.UNKNOWN_PRODUCER_ID: "UnknownProducerIdException",
    ErrorCode.INVALID_TXN_STATE: "InvalidTxnStateException",
}


def exception_name(code: ErrorCode) -> str:
    """Return the name of the exception, without its package, that Apache Kafka's clients raise for an error code."""
    return _NAMES.get(code) or "".join(word.capitalize() for word in code.name.split("_")) + "Exception"


class AskFailed(Exception):
    """A request to a cluster failed. `str()` is the message of Apache Kafka's exception, `name` its class."""

    def __init__(self, message: str, name: str, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.name = name
        #: None if no answer has an error code, but a time limit or a connection has failed
        self.code = code

    @property
    def retriable(self) -> bool:
        return self.code is not None and self.code.retriable

    @property
    def passes(self) -> bool:
        """True if a client that waits without an end asks again: for a retriable error, when time is over, and for a
        broker that has left the cluster."""
        return self.retriable or self.name == _TIMEOUT or self.code == ErrorCode.BROKER_NOT_AVAILABLE

    def __str__(self) -> str:
        return str(self.args[0])


class Unreachable(AskFailed):
    """No address of a cluster takes a connection. `str()` is one line with each address and its reason."""

    def __init__(self, reasons: Iterable[str], what_to_do: str | None = None) -> None:
        """`what_to_do`: a sentence without its full stop, if it is known what listens there."""
        super().__init__("; ".join(reasons), _TIMEOUT)
        self.what_to_do = what_to_do


class NoAnswer(AskFailed):
    """A node took a connection, or a request, and did not answer in time."""

    def __init__(self, message: str) -> None:
        super().__init__(message, _TIMEOUT)


class NotServed(Exception):
    """The tools do not support a feature of Apache Kafka. The message is one line that names the feature."""


def failed(number: int, message: str | None = None) -> AskFailed:
    """Return the failure that an error code of an answer stands for."""
    code = ErrorCode.received(number)
    return AskFailed(message or STANDARD.get(code) or code.message, _PACKAGE + exception_name(code), code)


def check(number: int, message: str | None = None) -> None:
    """Raise the failure that an error code stands for, unless it is 0."""
    if number:
        raise failed(number, message)


def timed_out(message: str) -> AskFailed:
    return AskFailed(message, _TIMEOUT)


def no_connection(message: str) -> AskFailed:
    return AskFailed(message, _PACKAGE + "DisconnectException", ErrorCode.NETWORK_EXCEPTION)


def unsupported(message: str) -> AskFailed:
    return AskFailed(message, _PACKAGE + "UnsupportedVersionException", ErrorCode.UNSUPPORTED_VERSION)


#: Texts of Apache Kafka's clients for an error without a message from the broker. Scripts search for them.
STANDARD: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Topic with this name already exists.",
    ErrorCode.NON_EMPTY_GROUP: "The group is not empty.",
    ErrorCode.GROUP_ID_NOT_FOUND: "The group id does not exist.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.NOT_COORDINATOR: "This is not the correct coordinator.",
    ErrorCode.UNKNOWN_SERVER_ERROR: "The server experienced an unexpected error when processing the request.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}

"""Apache Kafka's error codes, and the one exception that carries them.

Numbers, names and the retriable errors are Kafka's; the wording is pykbroker's. A handler raises
`KafkaError(ErrorCode.X)`; `api/` turns it into a field of a response.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

# DecodeError and EncodeError can be imported from here too, together with KafkaError.
from pykbroker_wire.primitives import DecodeError as DecodeError
from pykbroker_wire.primitives import EncodeError as EncodeError


class ErrorCode(IntEnum):
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133
    GROUP_DELETION_FAILED = 134
    STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED = 135
    CONTROLLER_ID_NOT_REGISTERED = 136

    @classmethod
    def received(cls, number: int) -> ErrorCode:
        """Return the code in a peer's response; UNKNOWN_SERVER_ERROR if this version does not know the number."""
        try:
            return cls(number)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later without a change by the client or an administrator."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        return _MESSAGES[self]


def error_name(number: int) -> str:
    """Return the name of the code in a peer's response, for the log; an unknown number stays a number."""
    known = ErrorCode.received(number)
    return known.name if known == number else f"error {number}"


class KafkaError(Exception):
    """A request failed with an error of the protocol."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code: Final = code
        self.message: Final = code.message if message is None else message
        super().__init__(f"{code.name}: {self.message}")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message)


_RETRIABLE: Final = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    )
)

_MESSAGES: Final = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Something unexpected went wrong in the broker.",
    ErrorCode.NONE: "",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset is outside the range that the partition holds.",
    ErrorCode.CORRUPT_MESSAGE: "The record batch is damaged: its checksum, size or format is wrong.",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This broker has no such topic or partition.",
    ErrorCode.INVALID_FETCH_SIZE: "The fetch size is not acceptable.",
    ErrorCode.LEADER_NOT_AVAILABLE: "The partition has no leader at the moment.",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "This broker is not the partition's leader, or not a replica of it.",
    ErrorCode.REQUEST_TIMED_OUT: "The request was not completed in time.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker cannot be reached.",
    ErrorCode.REPLICA_NOT_AVAILABLE: "This broker has no replica of the partition to serve from.",
    ErrorCode.MESSAGE_TOO_LARGE: "The record batch is larger than the topic accepts.",
    ErrorCode.STALE_CONTROLLER_EPOCH: "Another controller has taken over.",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The metadata committed with an offset is too long.",
    ErrorCode.NETWORK_EXCEPTION: "The connection closed before the response arrived.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator is still loading its state.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator at the moment.",
    ErrorCode.NOT_COORDINATOR: "This broker is not the coordinator asked for.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic name is not valid, or the topic may not be used this way.",
    ErrorCode.RECORD_LIST_TOO_LARGE: "The record batch is larger than a segment of the topic.",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Too few replicas are in sync to accept records.",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "The records are appended, but too few replicas are in sync.",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1.",
    ErrorCode.ILLEGAL_GENERATION: "The generation in the request is not the current generation of the group.",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "The member's protocols do not fit those of the group.",
    ErrorCode.INVALID_GROUP_ID: "The group id is not acceptable.",
    ErrorCode.UNKNOWN_MEMBER_ID: "The coordinator does not know this member.",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The session timeout is outside the range that the broker allows.",
    ErrorCode.REBALANCE_IN_PROGRESS: "The group is rebalancing: join again.",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The committed offset data has a wrong size.",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Not authorized for the topic.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Not authorized for the group.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Not authorized for the cluster.",
    ErrorCode.INVALID_TIMESTAMP: "The timestamp of a record is out of the accepted range.",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "The broker does not offer this SASL mechanism.",
    ErrorCode.ILLEGAL_SASL_STATE: "The request does not fit the state of SASL authentication.",
    ErrorCode.UNSUPPORTED_VERSION: "The broker does not support this version of the API.",
    ErrorCode.TOPIC_ALREADY_EXISTS: "A topic of this name exists already.",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions is not valid.",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor is below 1 or above the number of usable brokers.",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "The assignment of replicas is not valid.",
    ErrorCode.INVALID_CONFIG: "The configuration is not valid.",
    ErrorCode.NOT_CONTROLLER: "This node is not the active controller.",
    ErrorCode.INVALID_REQUEST: "The request is not valid.",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "The record format of the topic does not support the request.",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids the request.",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "The sequence number of the batch does not follow the last one.",
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: "The batch has been appended before.",
    ErrorCode.INVALID_PRODUCER_EPOCH: "The producer epoch is outdated.",
    ErrorCode.INVALID_TXN_STATE: "The transaction is in another state than the request needs.",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "The producer id does not belong to the transactional id.",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "The transaction timeout is outside the range that the broker allows.",
    ErrorCode.CONCURRENT_TRANSACTIONS: "The transaction is being changed by another request.",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "A newer transaction coordinator has taken over.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Not authorized for the transactional id.",
    ErrorCode.SECURITY_DISABLED: "Security is not enabled.",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "Not attempted, because another part of the request failed.",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk of the partition failed.",
    ErrorCode.LOG_DIR_NOT_FOUND: "The broker has no such log directory.",
    ErrorCode.SASL_AUTHENTICATION_FAILED: "Authentication was refused.",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker has no state for this producer id.",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: "The partition is being reassigned.",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Delegation tokens are not enabled.",
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no such delegation token.",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "The principal is neither owner nor renewer of the token.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Delegation tokens cannot be requested over this connection.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "Not authorized for the delegation token.",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The delegation token has expired.",
    ErrorCode.INVALID_PRINCIPAL_TYPE: "The type of the principal is not supported.",
    ErrorCode.NON_EMPTY_GROUP: "The group has members.",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no such group.",
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: "There is no such fetch session.",
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: "The epoch in the request is not the one that the fetch session expects.",
    ErrorCode.LISTENER_NOT_FOUND: "The leader has no listener of the name that the request came in on.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Deleting topics is disabled.",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch of the request is older than the broker's.",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch of the request is newer than the broker's.",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The client does not support the compression of the records.",
    ErrorCode.STALE_BROKER_EPOCH: "The broker epoch in the request is not that of the broker's registration.",
    ErrorCode.OFFSET_NOT_AVAILABLE: "The offset is not available yet: the new leader has to catch up.",
    ErrorCode.MEMBER_ID_REQUIRED: "Join again with the member id in this response.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not available.",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "The group is full.",
    ErrorCode.FENCED_INSTANCE_ID: "Another member uses the same group instance id.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No eligible leader is available.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition needs no election.",
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "The partition is not being reassigned.",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "The group is subscribed to the topic.",
    ErrorCode.INVALID_RECORD: "A record is not valid.",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "Offsets of an open transaction are not committed yet.",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "The quota is used up.",
    ErrorCode.PRODUCER_FENCED: "A newer producer uses the same transactional id.",
    ErrorCode.RESOURCE_NOT_FOUND: "There is no such resource.",
    ErrorCode.DUPLICATE_RESOURCE: "The same resource is named twice.",
    ErrorCode.UNACCEPTABLE_CREDENTIAL: "The credential does not meet the requirements.",
    ErrorCode.INCONSISTENT_VOTER_SET: "The nodes disagree about the set of voters.",
    ErrorCode.INVALID_UPDATE_VERSION: "The version to update to is not valid.",
    ErrorCode.FEATURE_UPDATE_FAILED: "The features could not be updated.",
    ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE: "The principal of a forwarded request could not be read.",
    ErrorCode.SNAPSHOT_NOT_FOUND: "There is no such snapshot.",
    ErrorCode.POSITION_OUT_OF_RANGE: "The position is outside the snapshot.",
    ErrorCode.UNKNOWN_TOPIC_ID: "This broker has no topic of this id.",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "Another broker with this id is registered.",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "No broker of this id is registered.",
    ErrorCode.INCONSISTENT_TOPIC_ID: "The topic id is not that of the partition's log.",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "The cluster id in the request is not the id of this cluster.",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "There is no such transactional id.",
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: "The fetch session mixes topic ids and names.",
    ErrorCode.INELIGIBLE_REPLICA: "A replica of the new ISR is not eligible.",
    ErrorCode.NEW_LEADER_ELECTED: "The change was made and a new leader was elected by it.",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "The offset is in tiered storage.",
    ErrorCode.FENCED_MEMBER_EPOCH: "The member epoch is fenced: give up all partitions and join again.",
    ErrorCode.UNRELEASED_INSTANCE_ID: "Another member still holds the group instance id.",
    ErrorCode.UNSUPPORTED_ASSIGNOR: "The group does not support this assignor or its version.",
    ErrorCode.STALE_MEMBER_EPOCH: "The member epoch is outdated: heartbeat, then try again.",
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: "The request is meant for the other kind of node.",
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: "This kind of endpoint is not supported.",
    ErrorCode.UNKNOWN_CONTROLLER_ID: "There is no controller of this id.",
    ErrorCode.UNKNOWN_SUBSCRIPTION_ID: "The telemetry subscription is unknown or outdated.",
    ErrorCode.TELEMETRY_TOO_LARGE: "The telemetry is larger than the broker accepts.",
    ErrorCode.INVALID_REGISTRATION: "The controller refuses the registration.",
    ErrorCode.TRANSACTION_ABORTABLE: "The transaction failed and can be aborted.",
    ErrorCode.INVALID_RECORD_STATE: "The state of the record does not allow the acknowledgement.",
    ErrorCode.SHARE_SESSION_NOT_FOUND: "There is no such share session.",
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: "The epoch in the request is not the one that the share session expects.",
    ErrorCode.FENCED_STATE_EPOCH: "The state epoch in the request is not the one that the coordinator has.",
    ErrorCode.INVALID_VOTER_KEY: "The voter id and directory id in the request are not those of the voter.",
    ErrorCode.DUPLICATE_VOTER: "The voter is in the set already.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not in the set.",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "The expression cannot be compiled.",
    ErrorCode.REBOOTSTRAP_REQUIRED: "The client's metadata is outdated: bootstrap again.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY: "The topology is not valid.",
    ErrorCode.STREAMS_INVALID_TOPOLOGY_EPOCH: "The topology epoch is not valid.",
    ErrorCode.STREAMS_TOPOLOGY_FENCED: "The topology epoch is older than the group's.",
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: "No further share session can be opened.",
    ErrorCode.GROUP_DELETION_FAILED: "The group could not be deleted completely; its error message has the reason.",
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED: "The description of the topology could not be stored.",
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED: "No controller of this id is registered.",
}

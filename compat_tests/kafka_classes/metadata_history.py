"""Random histories of the metadata log: batches of records that a controller could have written.

Each record is valid after those before it. A batch may begin, end or abort a transaction (KIP-868), and a transaction
may span batches.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pykbroker.metadata.records import encode_record
from pykbroker.metadata.snapshot import CONTROLLERS_FROM, CORDONED_FROM, DIRECTORIES_FROM, ELR_FROM
from pykbroker_wire.primitives import TopLevel
from pykbroker_wire.stored.metadata import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from pykbroker_wire.stored.metadata.client_quota_record import EntityData
from pykbroker_wire.stored.metadata.register_broker_record import BrokerEndpoint, BrokerFeature
from pykbroker_wire.stored.metadata.register_controller_record import ControllerEndpoint, ControllerFeature

METADATA_VERSIONS = (7, 12, 15, 17, 22, 23, 29, 30)
ELR = "eligible.leader.replicas.version"
_SCRAM_FROM, _TOKENS_FROM = 11, 14
_LEADER_CHANGES = (-2, -2, -1)


@dataclass
class _Model:
    """The state after the records so far."""

    version: int
    elr: bool = False
    brokers: dict[int, int] = field(default_factory=dict)
    topics: dict[bytes, str] = field(default_factory=dict)
    #: topic id -> index -> number of replicas
    partitions: dict[bytes, dict[int, int]] = field(default_factory=dict)
    acls: list[bytes] = field(default_factory=list)
    users: list[tuple[str, int]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    quotas: list[tuple[tuple[str, str | None], ...]] = field(default_factory=list)
    configs: list[tuple[int, str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Batch:
    base: int
    epoch: int
    timestamp_ms: int
    records: list[TopLevel]
    values: list[bytes]

    def question(self) -> dict[str, Any]:
        return {
            "base": self.base,
            "epoch": self.epoch,
            "timestamp": self.timestamp_ms,
            "records": [value.hex() for value in self.values],
        }


class History:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = _Model(rng.choice(METADATA_VERSIONS))
        self._before_transaction: _Model | None = None
        #: topics whose configuration has changed since the image; they are not removed before the next one
        self._configured: set[str] = set()
        #: mechanisms that have lost or got users since the image; both at once is a difference of its own
        self._scram_changes: dict[int, str] = {}
        self._offset, self._epoch, self._timestamp_ms, self._names = 0, 1, 1_700_000_000_000, 0
        self._first = True

    def batch(self) -> Batch:
        rng = self._rng
        if self._before_transaction is None:
            self._configured.clear()
            self._scram_changes.clear()
        self._epoch += rng.random() < 0.2
        self._timestamp_ms += rng.randint(0, 5)
        records: list[TopLevel] = []
        values: list[bytes] = []

        def add(*more: TopLevel) -> None:
            records.extend(more)
            values.extend(encode_record(record, self._now.version) for record in more)

        if self._first:
            self._first = False
            add(FeatureLevelRecord(name="metadata.version", feature_level=self._now.version))
        for _ in range(rng.randint(0 if records else 1, 12)):
            chance = rng.random()
            if self._before_transaction is None and chance < 0.04:
                self._before_transaction = copy.deepcopy(self._now)
                add(BeginTransactionRecord(name="transaction"))
            elif self._before_transaction is not None and chance < 0.15:
                self._before_transaction = None
                add(EndTransactionRecord())
            elif self._before_transaction is not None and chance < 0.2:
                # It is the last of its batch, because in Apache Kafka records after it restore the transaction.
                add(AbortTransactionRecord(reason="reason"))
                self._now, self._before_transaction = self._before_transaction, None
                break
            else:
                add(*rng.choice(_KINDS)(self))
        if not records:
            add(NoOpRecord())
        batch = Batch(self._offset, self._epoch, self._timestamp_ms, records, values)
        self._offset += len(records)
        return batch

    # One kind of record each. The lists are empty if it is not possible now.

    def _name(self) -> str:
        self._names += 1
        return f"name-{self._names}"

    def _some_replicas(self, most: int = 4) -> list[int]:
        return self._rng.sample(range(8), self._rng.randint(1, most))

    def _directories(self, count: int) -> list[bytes]:
        return [b"\x10" + self._rng.randbytes(15) for _ in range(count)]

    def _topic(self) -> list[TopLevel]:
        rng = self._rng
        topic_id = rng.randbytes(16)
        known = set(self._now.topics.values())
        name = (
            next((each for each in ("a", "b.c", "é") if each not in known and rng.random() < 0.5), None) or self._name()
        )
        self._now.topics[topic_id] = name
        self._now.partitions[topic_id] = {}
        records: list[TopLevel] = [TopicRecord(name=name, topic_id=topic_id)]
        for index in range(rng.randint(0, 4)):
            records.append(self._partition_record(topic_id, index))
        return records

    def _partition_record(self, topic_id: bytes, index: int) -> PartitionRecord:
        rng, now = self._rng, self._now
        replicas = self._some_replicas()
        now.partitions[topic_id][index] = len(replicas)
        has_elr = now.elr and rng.random() < 0.5
        return PartitionRecord(
            partition_id=index,
            topic_id=topic_id,
            replicas=replicas,
            isr=rng.sample(replicas, rng.randint(1, len(replicas))),
            removing_replicas=rng.sample(replicas, rng.randint(0, 1)),
            adding_replicas=rng.sample(replicas, rng.randint(0, 1)),
            leader=rng.choice([-1, *replicas]),
            leader_recovery_state=rng.randint(0, 1),
            leader_epoch=rng.randint(0, 9),
            partition_epoch=rng.randint(0, 9),
            directories=self._directories(len(replicas)) if now.version >= DIRECTORIES_FROM else [],
            eligible_leader_replicas=self._some_replicas() if has_elr else None,
            last_known_elr=self._some_replicas(1) if has_elr else None,
        )

    def _new_partition(self) -> list[TopLevel]:
        if not self._now.topics:
            return []
        topic_id = self._rng.choice(list(self._now.topics))
        return [self._partition_record(topic_id, len(self._now.partitions[topic_id]))]

    def _partition_change(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        found = [(topic_id, index) for topic_id, indexes in now.partitions.items() for index in indexes]
        if not found:
            return []
        topic_id, index = rng.choice(found)
        replicas = self._some_replicas() if rng.random() < 0.4 else None
        count = now.partitions[topic_id][index] = now.partitions[topic_id][index] if replicas is None else len(replicas)
        directories = None
        if now.version >= DIRECTORIES_FROM and (replicas is not None or rng.random() < 0.2):
            directories = self._directories(count)

        def maybe(most: int = 4) -> list[int] | None:
            return rng.choice([None, [], self._some_replicas(most)])

        return [
            PartitionChangeRecord(
                partition_id=index,
                topic_id=topic_id,
                isr=maybe(),
                leader=rng.choice([*_LEADER_CHANGES, 1, 2]),
                replicas=replicas,
                removing_replicas=maybe(),
                adding_replicas=maybe(),
                leader_recovery_state=rng.randint(-1, 1),
                directories=directories,
                eligible_leader_replicas=maybe() if now.elr else None,
                last_known_elr=maybe(1) if now.elr else None,
            )
        ]

    def _remove_topic(self) -> list[TopLevel]:
        found = [each for each, name in self._now.topics.items() if name not in self._configured]
        if not found:
            return []
        topic_id = self._rng.choice(found)
        name = self._now.topics.pop(topic_id)
        del self._now.partitions[topic_id]
        self._now.configs = [each for each in self._now.configs if each[:2] != (2, name)]
        return [RemoveTopicRecord(topic_id=topic_id)]

    def _config(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if now.configs and rng.random() < 0.3:
            resource_type, name, key = now.configs.pop(rng.randrange(len(now.configs)))
            value = None
        else:
            topics = [(2, name) for name in now.topics.values()]
            resource_type, name = rng.choice([*topics, (4, ""), (4, "1"), (8, "2"), (16, "metrics"), (32, "group")])
            key, value = rng.choice(["k", "l", "m"]), rng.choice(["", "1", "é"])
            now.configs.append((resource_type, name, key))
        if resource_type == 2:
            self._configured.add(name)
        return [ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)]

    def _feature(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        chance = rng.random()
        if chance < 0.2:
            raised = [each for each in METADATA_VERSIONS if each > now.version]
            if not raised or self._before_transaction is not None:
                return []
            record = FeatureLevelRecord(name="metadata.version", feature_level=raised[0])
            now.version = raised[0]
            return [record]
        if chance < 0.4:
            if now.version < ELR_FROM:
                return []
            now.elr = not now.elr
            changed = FeatureLevelRecord(name=ELR, feature_level=int(now.elr))
            return [changed] if now.elr else [changed, ClearElrRecord(topic_name="")]
        name = rng.choice(["group.version", "transaction.version", "share.version", "kraft.version"])
        return [FeatureLevelRecord(name=name, feature_level=rng.randint(0, 1))]

    def _clear_elr(self) -> list[TopLevel]:
        if self._now.version < ELR_FROM:
            return []
        return [ClearElrRecord(topic_name=self._rng.choice(["", *self._now.topics.values()]))]

    def _register_broker(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        broker_id = rng.randint(0, 7)
        now.brokers[broker_id] = epoch = rng.randint(0, 1 << 40)
        known = now.version >= DIRECTORIES_FROM
        return [
            RegisterBrokerRecord(
                broker_id=broker_id,
                is_migrating_zk_broker=False,
                incarnation_id=rng.randbytes(16),
                broker_epoch=epoch,
                end_points=[
                    BrokerEndpoint(name=name, host=rng.choice(["h", "é.example", "::1"]), port=9, security_protocol=i)
                    for i, name in enumerate(rng.sample(["PLAINTEXT", "SSL", "REPLICATION"], rng.randint(1, 3)))
                ],
                features=[
                    BrokerFeature(name=name, min_supported_version=0, max_supported_version=rng.randint(1, 30))
                    for name in rng.sample(["metadata.version", "group.version", "x"], rng.randint(0, 3))
                ],
                rack=rng.choice([None, "", "a"]),
                fenced=rng.random() < 0.5,
                in_controlled_shutdown=rng.random() < 0.2,
                log_dirs=self._directories(rng.randint(0, 3)) if known else [],
                cordoned_log_dirs=self._cordoned(),
            )
        ]

    def _cordoned(self) -> list[bytes] | None:
        if self._now.version < CORDONED_FROM or self._rng.random() < 0.5:
            return None
        return self._directories(self._rng.randint(0, 2))

    def _broker_change(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if not now.brokers:
            return []
        broker_id, epoch = rng.choice(list(now.brokers.items()))
        chance = rng.random()
        if chance < 0.2:
            return [FenceBrokerRecord(id=broker_id, epoch=epoch)]
        if chance < 0.4:
            return [UnfenceBrokerRecord(id=broker_id, epoch=epoch)]
        if chance < 0.5:
            del now.brokers[broker_id]
            return [UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch)]
        known = now.version >= DIRECTORIES_FROM
        return [
            BrokerRegistrationChangeRecord(
                broker_id=broker_id,
                broker_epoch=epoch,
                fenced=rng.randint(-1, 1),
                in_controlled_shutdown=rng.randint(0, 1),
                log_dirs=self._directories(rng.randint(0, 2)) if known else [],
                cordoned_log_dirs=self._cordoned(),
            )
        ]

    def _register_controller(self) -> list[TopLevel]:
        rng = self._rng
        if self._now.version < CONTROLLERS_FROM:
            return []
        return [
            RegisterControllerRecord(
                controller_id=rng.randint(0, 3),
                incarnation_id=rng.randbytes(16),
                zk_migration_ready=rng.random() < 0.2,
                end_points=[
                    ControllerEndpoint(name=name, host="h", port=rng.randint(1, 65535), security_protocol=0)
                    for name in rng.sample(["CONTROLLER", "C2"], rng.randint(1, 2))
                ],
                features=[ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
            )
        ]

    def _quota(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if now.quotas and rng.random() < 0.4:
            entity = rng.choice(now.quotas)
        else:
            kinds = rng.sample(["user", "client-id", "ip"], rng.randint(1, 2))
            entity = tuple((kind, rng.choice([None, "", "é", "x"])) for kind in kinds)
            now.quotas.append(entity)
        data = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        key = rng.choice(["producer_byte_rate", "request_percentage"])
        return [ClientQuotaRecord(entity=data, key=key, value=rng.random() * 1e6, remove=rng.random() < 0.3)]

    def _producer_ids(self) -> list[TopLevel]:
        rng = self._rng
        return [ProducerIdsRecord(broker_id=1, broker_epoch=2, next_producer_id=rng.randint(0, 1 << 40))]

    def _acl(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if now.acls and rng.random() < 0.4:
            return [RemoveAccessControlEntryRecord(id=now.acls.pop(rng.randrange(len(now.acls))))]
        acl_id = rng.randbytes(16)
        now.acls.append(acl_id)
        return [
            AccessControlEntryRecord(
                id=acl_id,
                resource_type=rng.randint(2, 7),
                resource_name=rng.choice(["*", "é", "t"]),
                pattern_type=rng.choice([3, 4]),
                principal="User:x",
                host="*",
                operation=rng.randint(2, 15),
                permission_type=rng.choice([2, 3]),
            )
        ]

    def _scram(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if now.version < _SCRAM_FROM:
            return []
        if now.users and rng.random() < 0.4:
            name, mechanism = rng.choice(now.users)
            if self._scram_changes.setdefault(mechanism, "removed") != "removed":
                return []
            now.users.remove((name, mechanism))
            return [RemoveUserScramCredentialRecord(name=name, mechanism=mechanism)]
        name, mechanism = rng.choice(["alice", "bob", "é"]), rng.choice([1, 2])
        if self._scram_changes.setdefault(mechanism, "added") != "added":
            return []
        if (name, mechanism) not in now.users:
            now.users.append((name, mechanism))
        salt, stored, server = (rng.randbytes(8) for _ in range(3))
        return [
            UserScramCredentialRecord(
                name=name, mechanism=mechanism, salt=salt, stored_key=stored, server_key=server, iterations=4096
            )
        ]

    def _token(self) -> list[TopLevel]:
        rng, now = self._rng, self._now
        if now.version < _TOKENS_FROM:
            return []
        if now.tokens and rng.random() < 0.4:
            return [RemoveDelegationTokenRecord(token_id=now.tokens.pop(rng.randrange(len(now.tokens))))]
        token_id = self._name()
        now.tokens.append(token_id)
        return [
            DelegationTokenRecord(
                owner="User:alice",
                requester="User:bob",
                renewers=rng.sample(["User:x", "User:y"], rng.randint(0, 2)),
                issue_timestamp=rng.randint(0, 99),
                max_timestamp=rng.randint(0, 99),
                expiration_timestamp=rng.randint(0, 99),
                token_id=token_id,
            )
        ]

    def _nothing(self) -> list[TopLevel]:
        return [NoOpRecord()]

    def _zookeeper(self) -> list[TopLevel]:
        return [ZkMigrationStateRecord(zk_migration_state=0)]


_KINDS: tuple[Callable[[History], list[TopLevel]], ...] = (
    *(History._topic, History._partition_change, History._config) * 3,
    *(History._remove_topic, History._register_broker, History._broker_change, History._acl) * 2,
    History._new_partition,
    History._feature,
    History._clear_elr,
    History._register_controller,
    History._quota,
    History._producer_ids,
    History._scram,
    History._token,
    History._nothing,
    History._zookeeper,
)

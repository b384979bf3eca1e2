"""The names of Apache Kafka 4.3's client properties, so that a misspelt key can be reported.

Responsible for names alone. client_properties.py decides which keys have an effect.
"""

from __future__ import annotations

from typing import Final

from pykbroker.config.key_table import BROKER_KEYS

_COMMON: Final = """
bootstrap.controllers bootstrap.servers client.dns.lookup client.id client.rack connections.max.idle.ms
default.api.timeout.ms enable.metrics.push interceptor.classes metadata.max.age.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
metrics.recording.level metrics.sample.window.ms receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms security.protocol security.providers send.buffer.bytes
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms
"""
_OF_PRODUCERS: Final = """
acks batch.size buffer.memory compression.gzip.level compression.lz4.level compression.type compression.zstd.level
delivery.timeout.ms enable.idempotence key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.idle.ms partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms
partitioner.class partitioner.ignore.keys transaction.timeout.ms transaction.two.phase.commit.enable transactional.id
value.serializer
"""
_OF_CONSUMERS: Final = """
allow.auto.create.topics auto.commit.interval.ms auto.offset.reset check.crcs enable.auto.commit exclude.internal.topics
fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
heartbeat.interval.ms isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
partition.assignment.strategy session.timeout.ms value.deserializer
"""
_SECURED_CLIENTS: Final = "sasl.client.callback.handler.class sasl.mechanism"

CLIENT_KEYS: Final = frozenset(" ".join((_COMMON, _OF_PRODUCERS, _OF_CONSUMERS, _SECURED_CLIENTS)).split()) | frozenset(
    key for key in BROKER_KEYS if key.startswith(("ssl.", "sasl."))
)

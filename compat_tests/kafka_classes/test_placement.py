"""Our placement of replicas, compared with Apache Kafka's StripedReplicaPlacer, with the same random numbers."""

from __future__ import annotations

import random
from typing import Any

from compat_tests.kafka_classes.java_random import JavaRandom
from compat_tests.remote import Program
from pykbroker.controller.placement import UsableBroker, place
from pykbroker_wire.errors import ErrorCode, KafkaError

CLUSTERS = 2_000
#: Java's HashMap keeps these in their order, in which Apache Kafka draws for one rack after another.
RACKS = "abcdefghijk"


def cluster(rng: random.Random, seed: int) -> dict[str, Any]:
    racks = [None, *RACKS[: rng.randint(1, len(RACKS))]]
    if rng.random() < 0.3:
        racks = [None]
    elif rng.random() < 0.8:
        racks.remove(None)
    fenced = rng.choice([0, 0, 0.2, 0.8])
    ids = rng.sample(range(200), rng.randint(1, 12))
    return {
        "seed": seed,
        "brokers": [[each, rng.choice(racks), rng.random() < fenced] for each in ids],
        "partitions": rng.randint(1, 40),
        "factor": rng.randint(0, min(len(ids) + 1, 5)),
    }


def placed(cluster: dict[str, Any]) -> list[list[int]] | None:
    brokers = [UsableBroker(*broker) for broker in cluster["brokers"]]
    try:
        return place(brokers, cluster["partitions"], cluster["factor"], JavaRandom(cluster["seed"]))
    except KafkaError as error:
        if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        return None


def test_replicas_of_2_000_topics_go_to_the_same_brokers(kafka: Program) -> None:
    rng = random.Random(4)
    clusters = [cluster(rng, seed) for seed in range(CLUSTERS)]
    answers = kafka.ask("places", clusters=clusters)
    refused = 0
    for each, theirs in zip(clusters, answers, strict=True):
        assert placed(each) == theirs, each
        refused += theirs is None
    assert 0 < refused < CLUSTERS / 2

"""Checks before a job starts: its checkpoint fits the topics, and all records that it has not read are still there.

Spark looks only at offsets. If a topic was deleted and created again, or a checkpoint belongs to another topic, Spark
continues in the middle of it. If `fail_on_data_loss` is false, it skips records that are gone, with a warning in its
log. Here each of these is a message: what happened, in which partition, how many records, what to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipeline import checkpoint, permissions
from pipeline.broker import Broker, Partition, Range, Topic
from pipeline.checkpoint import Files, Identity, Position
from pipeline.config import Config
from pipeline.errors import DoesNotFitError, PipelineError

#: The most that a record's time may be ahead of the brokers' clock, and whose time it is.
AHEAD, TIMESTAMP_TYPE = "message.timestamp.after.max.ms", "message.timestamp.type"
GONE = "deleted, by retention or by hand, before they were read"


@dataclass(frozen=True, slots=True)
class Loss:
    """Offsets [first, end) of a partition that the job never reads. None if their number cannot be known."""

    partition: Partition
    first: int | None
    end: int | None
    why: str

    @property
    def records(self) -> int | None:
        return None if self.first is None or self.end is None else self.end - self.first

    def __str__(self) -> str:
        if self.records is None:
            return f"{self.partition}: {self.why}"
        assert self.end is not None
        offsets = f"offset {self.first}" if self.records == 1 else f"offsets {self.first} to {self.end - 1}"
        return f"{self.partition}: {self.records} record{'s' * (self.records != 1)} ({offsets}): {self.why}"

    def as_json(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "first_offset": self.first,
            "records": self.records,
            "why": self.why,
        }


def allowed(config: Config, job: str, topics: Sequence[str], broker: Broker) -> None:
    """Check which operations on topics the brokers allow this principal; topics that do not exist are left out.

    Raises:
        PipelineError: an ACL is missing, or the brokers do not answer.
    """
    wanted = permissions.needed(config)
    there = broker.topics(topics)
    refused = [
        topic
        for topic in topics
        if topic in there
        and (operations := there[topic].operations) is not None
        and wanted.get(topic, permissions.READ) not in operations
    ]
    if refused:
        raise permissions.refusal(config, f"{job}: TOPIC_AUTHORIZATION_FAILED", refused)


def check(config: Config, job: str, topics: Sequence[str], files: Files, broker: Broker) -> list[Loss]:
    """Return what the job loses by continuing, which is nothing unless `fail_on_data_loss` is false.

    Raises:
        DoesNotFitError: the checkpoint is of other topics or of another job; or records are gone and loss is not
        allowed.
        PipelineError: a topic is missing, or the brokers do not answer.
    """
    known = checkpoint.identity(files)
    position = checkpoint.position(files)
    _belongs(config, job, topics, known, position)
    there = broker.topics(topics)
    missing = [topic for topic in topics if topic not in there]
    if missing:
        deleted = " any more; it was there at an earlier start" if known else ""
        raise PipelineError(
            f"{job}: topic {', '.join(missing)} does not exist{deleted}",
            "Create it, or correct its name in [topics] or the address in [kafka] bootstrap.servers.",
        )
    asked = [Partition(topic, number) for topic, each in there.items() for number in each.partitions]
    ranges = broker.ranges(asked) if position.next else {}
    ids = known.topics if known else {}
    anew = {topic for topic, each in there.items() if recreated(ids.get(topic), each)}
    found = losses(position, anew, ranges)
    if found and config.source.fail_on_data_loss:
        raise lost(config, job, found, anew)
    now: Identity = Identity(job, {topic: there[topic].id for topic in topics})
    if known != now:
        checkpoint.write_identity(files, now)
    return found


def clocks(config: Config, topics: Sequence[str], broker: Broker) -> list[str]:
    """Return warnings about topics in which a record may be newer than the brokers' clock by more than max_skew_s.
    There one client whose clock is ahead moves the watermark, and the events of other clients are then before it.

    Raises:
        PipelineError: there is such a topic, and `fail_on_data_loss` is true; or the brokers do not answer.
    """
    most_ms = config.times.max_skew_s * 1000
    far: dict[str, int] = {}
    told = []
    for topic, settings in broker.topic_settings(topics, (TIMESTAMP_TYPE, AHEAD)).items():
        if settings.get(TIMESTAMP_TYPE) == "LogAppendTime":
            continue
        if AHEAD not in settings:
            told.append(
                f"{topic}: {AHEAD} is not known, so a client whose clock is ahead may move the watermark: brokers have "
                f"it since Apache Kafka 3.6, and show it to clients with DescribeConfigs on the topic"
            )
        elif int(settings[AHEAD]) > most_ms:
            far[topic] = int(settings[AHEAD])
    if not far:
        return told
    named = ", ".join(f"{topic} ({ms} ms)" for topic, ms in far.items())
    message = (
        f"{AHEAD} of topic {named} is more than max_skew_s ({most_ms} ms): one client whose clock is so far ahead "
        "moves the watermark, and the events of others become dead letters (behind-watermark)"
    )
    if not config.source.fail_on_data_loss:
        return [*told, message]
    servers = config.kafka["bootstrap.servers"]
    commands = [
        f"kafka-configs --bootstrap-server {servers} --alter --topic {topic} --add-config {AHEAD}={most_ms}"
        for topic in far
    ]
    raise PipelineError(message, "\n".join(["Have the brokers refuse such records:", *commands]))


def recreated(known_id: str | None, topic: Topic) -> bool:
    return known_id is not None and topic.id is not None and known_id != topic.id


def changed(files: Files, topics: Sequence[str], broker: Broker) -> bool:
    """Return True if a topic was deleted and created again since `check`. Spark sees that only by offsets, if at all.

    Raises:
        PipelineError: the brokers do not answer.
    """
    known = checkpoint.identity(files)
    there = broker.topics(topics)
    return known is not None and any(recreated(known.topics.get(name), topic) for name, topic in there.items())


def losses(position: Position, anew: set[str], ranges: Mapping[Partition, Range]) -> list[Loss]:
    """Return the losses between a checkpoint and the partitions of now. `anew`: topics that were created again."""
    found = []
    for partition, start in sorted(position.next.items()):
        there = ranges.get(partition)
        ends = max(start, position.planned.get(partition, start))
        if there is None:
            found.append(Loss(partition, None, None, f"the partition is gone; it was read up to offset {start}"))
        elif partition.topic in anew:
            why = "the topic was deleted and created again"
            found.append(Loss(partition, None, None, f"{why}; what the old one had from offset {start} on is gone"))
            if start > there.earliest and there.latest > there.earliest:
                skipped = f"{why}, and the checkpoint goes on at offset {start} of the old one"
                found.append(Loss(partition, there.earliest, min(start, there.latest), skipped))
            elif there.earliest > start:
                found.append(Loss(partition, start, there.earliest, f"the new topic begins at {there.earliest}"))
        elif start < there.earliest:
            found.append(Loss(partition, start, there.earliest, GONE))
        elif ends > there.latest:
            what = "the checkpoint goes on" if ends == start else "a batch ends that is to be repeated"
            why = f"it ends at offset {there.latest} and {what} at {ends}: the brokers have lost their newest records"
            found.append(Loss(partition, None, None, why))
    read = {partition.topic for partition in position.next}
    for partition, there in sorted(ranges.items()):
        if partition.topic in read and partition not in position.next and there.earliest > 0:
            found.append(Loss(partition, 0, there.earliest, "deleted from a new partition before it was first read"))
    return found


def lost(config: Config, job: str, found: Sequence[Loss], anew: set[str]) -> DoesNotFitError:
    """Return the refusal to continue."""
    lines = "".join(f"\n  {loss}" for loss in found)
    begin = (
        f"To read {'the new topic' if anew else 'what is there'} from its beginning: stop all jobs, and set "
        "checkpoints and [lake] path to new places."
    )
    go_on = "To go on without these records: [source] fail_on_data_loss = false; they are then named at the start."
    return DoesNotFitError(
        f"{job}: records are gone that were never read, or are not what was read (checkpoint "
        f"{config.checkpoint(job)}){lines}",
        f"{begin} {go_on}",
    )


def _belongs(config: Config, job: str, topics: Sequence[str], known: Identity | None, position: Position) -> None:
    """Raises DoesNotFitError if the checkpoint is another job's, or of topics that this job does not read."""
    where = config.checkpoint(job)
    if known and known.job != job:
        raise DoesNotFitError(
            f"{job}: {where} is the checkpoint of {known.job}",
            "Give each job its own: set checkpoints to another place.",
        )
    of = set(known.topics) if known else {partition.topic for partition in position.next}
    others = sorted(of - set(topics))
    if others or (known and set(topics) - of):
        raise DoesNotFitError(
            f"{job}: {where} is the checkpoint of {_and(sorted(of))}, and [topics] says {_and(topics)}",
            "Put the names back in [topics]; or, to read other topics from their beginning, set checkpoints and [lake] "
            "path to new places.",
        )


def _and(names: Sequence[str]) -> str:
    return " and ".join(names)

"""The error that ended a query, in the words of preflight: what happened and what to do, without a Java stack trace."""

from __future__ import annotations

import re

from pipeline import permissions
from pipeline.config import Config
from pipeline.errors import DoesNotFitError, PipelineError

# The pipeline's own errors, which Python code raised when Spark called it; Python's traceback ends with them.
OWN = re.compile(r"pipeline\.[\w.]*Error: (?P<text>.+?)(?:\n\s*\n|\n\s+at |\n SQLSTATE|\Z)", re.DOTALL)
DATA_LOSS = re.compile(r"Some data may have been lost.*?Reason:\s*(?P<reason>.+?)\.?\s*(?:SQLSTATE|\n|\Z)", re.DOTALL)
# Part of the text, what happened, what to do. `{servers}` is filled in.
CAUSES = (
    (
        "CONCURRENT_STREAM_LOG_UPDATE",
        "another driver runs this job on the same checkpoint",
        "Stop one of them. A checkpoint is one driver's at a time.",
    ),
    (
        "RecordTooLargeException",
        "a record is larger than the topic that it is written to takes",
        "Raise max.message.bytes of that topic: a dead letter is some KB larger than the record that it was.",
    ),
    (
        "AuthorizationException",
        "the brokers do not allow it: {cause}",
        "Give the principal of this client Read on the topics that are read, Write on those that are written.",
    ),
    (
        "AuthenticationException",
        "the brokers do not know who this is: {cause}",
        "Look at [security], or at security and sasl in [kafka].",
    ),
    (
        "not present in metadata",
        "a topic that is to be written does not exist: {cause}",
        "Create it, or correct its name in [topics].",
    ),
    (
        "UnknownTopicOrPartitionException",
        "a topic has been deleted while it was read or written: {cause}",
        "Start again: what can be said of it is said before the start.",
    ),
    (
        "TimeoutException",
        "the brokers at {servers} did not answer in time: {cause}",
        "Start again when they are back: the checkpoint knows how far it came.",
    ),
)
#: The most characters of a Java error that Spark gets.
LONGEST = 1500
# The Java client names the topics that it may not read like this.
REFUSED = re.compile(r"TopicAuthorizationException: Not authorized to access topics: \[(?P<topics>[^\]\n]+)\]")
CAUSE = re.compile(r"(?:[\w.]+\.\w+Exception: )+(?P<text>[^\n]+)")


def shortened(text: str) -> str:
    """Return the text of a Java error in Python, without Java's frames.

    When a batch has failed, Spark searches its text with an expression that recurses for each character. A long text
    overflows the stack of the stream's thread, which then ends without an error message.
    """
    lines = [line for line in text.splitlines() if not line.startswith(("\tat ", "\t... "))]
    short = "\n".join(lines)
    return short if len(short) <= LONGEST else f"{short[: LONGEST // 2]}\n...\n{short[-LONGEST // 2 :]}"


def explain(error: BaseException, config: Config) -> PipelineError | None:
    """Return the meaning of a StreamingQueryException, or None if it is not known."""
    text = str(error)
    own = OWN.search(text)
    if own:
        message, _, advice = own["text"].strip().partition("\n")
        return PipelineError(message, advice.strip())
    loss = DATA_LOSS.search(text)
    if loss:
        return DoesNotFitError(
            f"records are gone before they were read: {loss['reason'].strip()}",
            "Start again: which records of which partition is said before the start. To go on without them: "
            "[source] fail_on_data_loss = false.",
        )
    refused = REFUSED.search(text)
    if refused:
        topics = sorted(topic.strip() for topic in refused["topics"].split(","))
        return permissions.refusal(config, f"the brokers do not allow it ({refused[0]})", topics)
    for part, message, advice in CAUSES:
        if part in text:
            named = [match for match in CAUSE.finditer(text) if part in match[0]]
            cause = named[-1]["text"] if named else part
            servers = config.kafka["bootstrap.servers"]
            return PipelineError(message.format(cause=cause, servers=servers), advice)
    return None

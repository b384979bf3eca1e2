"""The policies of a controller: for new topics (KIP-108), and for changes of configuration (KIP-133)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pykbroker.config.typed_config import Config
from pykbroker.plugins import AlterConfigPolicy, ChangedConfigs, CreateTopicPolicy, NewTopic, PolicyViolation
from pykbroker_wire.errors import ErrorCode, KafkaError

CREATE_TOPIC_POLICY: Final = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY: Final = "alter.config.policy.class.name"

logger = logging.getLogger(__name__)


class Policies:
    """The configured policies. Without plugins everything is allowed."""

    def __init__(self, new_topics: CreateTopicPolicy | None = None, configs: AlterConfigPolicy | None = None) -> None:
        self._new_topics = new_topics
        self._configs = configs

    @classmethod
    def of(cls, config: Config) -> Policies:
        """Make the policies of a configuration. Raises ConfigError for a class that cannot be loaded."""
        if not (config.optional_str(CREATE_TOPIC_POLICY) or config.optional_str(ALTER_CONFIG_POLICY)):
            return cls()
        from pykbroker.plugins.plugin_loading import plugin  # imported only by a node that needs it

        new_topics = plugin(config, CREATE_TOPIC_POLICY, CreateTopicPolicy)
        return cls(new_topics, plugin(config, ALTER_CONFIG_POLICY, AlterConfigPolicy))

    def check_new_topic(self, topic: NewTopic) -> None:
        """Raise KafkaError for a topic that must not be created."""
        policy = self._new_topics
        if policy is not None:
            _judge(CREATE_TOPIC_POLICY, lambda: policy.validate(topic))

    def check_configs(self, change: ChangedConfigs) -> None:
        """Raise KafkaError for a change that must not be made."""
        policy = self._configs
        if policy is not None:
            _judge(ALTER_CONFIG_POLICY, lambda: policy.validate(change))


def _judge(key: str, validate: Callable[[], None]) -> None:
    try:
        validate()
    except PolicyViolation as error:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, str(error)) from None
    except Exception as error:
        logger.error("Policy of %s raised %s: the request is refused", key, type(error).__name__)
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR) from error

"""The authorization of a properties file: the authorizer, and the two keys that Apache Kafka passes to it.

`super.users` and `allow.everyone.if.no.acl.found` are keys of StandardAuthorizer, not of a broker: they have no row in
the key table, and apply only together with `authorizer.class.name`. Only the properties file is read; a dynamic
configuration cannot change permissions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from pykbroker.config.kinds import STANDARD_AUTHORIZER, ConfigError
from pykbroker.config.typed_config import Config

AUTHORIZER: Final = "authorizer.class.name"
SUPER_USERS: Final = "super.users"
ALLOW_IF_NO_ACL: Final = "allow.everyone.if.no.acl.found"
AUDIT_FILE: Final = "pykbroker.authorizer.audit.file"
EARLY_LISTENERS: Final = "early.start.listeners"


class AuthorizerSettings(NamedTuple):
    super_users: tuple[str, ...]
    allow_if_no_acl: bool


def authorizer_settings(config: Config) -> AuthorizerSettings | None:
    """Return the settings, or None if the authorizer is not StandardAuthorizer. Raises ConfigError for a super user
    that is not a principal, and for an audit without an authorizer."""
    if config.optional_str(AUDIT_FILE) and not config.optional_str(AUTHORIZER):
        raise ConfigError(f"{AUDIT_FILE} is set, but no {AUTHORIZER}: there is nothing to audit")
    if (config.optional_str(AUTHORIZER) or "").strip() != STANDARD_AUTHORIZER:
        return None
    super_users = []
    for text in (config.raw(SUPER_USERS) or "").split(";"):
        principal = text.strip()
        if principal and ":" not in principal:
            raise ConfigError(
                f"{SUPER_USERS}: expected a string in format principalType:principalName but got {principal}"
            )
        if principal:
            super_users.append(principal)
    return AuthorizerSettings(tuple(super_users), (config.raw(ALLOW_IF_NO_ACL) or "").strip().lower() == "true")


def starts_early(config: Config, listener_name: str) -> bool:
    """Return True if a listener serves before the ACLs are loaded (KIP-801). By default only the controller's listeners
    do."""
    early = config.optional_list(EARLY_LISTENERS)
    return listener_name in (config.listeners.controller_names if early is None else early)

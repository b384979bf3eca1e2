"""Checks of the values in generated files, so that no text of a user changes the structure of a file.

Each function returns its value or raises ConfigError, one line.
"""

from __future__ import annotations

import random
import re
from typing import Final

from pykbroker.config.kinds import ConfigError
from pykbroker_wire.primitives import random_uuid, uuid_from_str, uuid_to_str

#: A StatefulSet's name is the beginning of its pods' names and of a label, which has at most 63 characters.
_LONGEST_NAME: Final = 50
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_IMAGE: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._/:@]*")
_QUANTITY: Final = re.compile(r"[1-9][0-9]*(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_HOST: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?")
_ADDRESS: Final = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
_USER: Final = re.compile(r"[a-z_][-a-z0-9_]*")
#: A path with no character that has a meaning in YAML, a shell or systemd: no space, no quote, no $, no %.
_PATH: Final = re.compile(r"(/[-A-Za-z0-9._+@]+)+")


def _matching(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise ConfigError(f"{text!r} is not {what}")
    return text


def name(text: str) -> str:
    """Check a DNS label: the name of a Service, a StatefulSet, a namespace."""
    if len(text) > _LONGEST_NAME:
        raise ConfigError(f"the name {text!r} has more than {_LONGEST_NAME} characters")
    return _matching(_LABEL, text, "a name: small letters, digits and dashes, a letter first")


def storage_class(text: str) -> str:
    return _matching(_SUBDOMAIN, text, "the name of a storage class: small letters, digits, dashes and dots")


def image(text: str) -> str:
    return _matching(_IMAGE, text, "the name of an image, such as pykbroker:latest")


def quantity(text: str) -> str:
    """Check one of Kubernetes' amounts: 10Gi, 500m."""
    return _matching(_QUANTITY, text, "an amount, such as 10Gi or 500m")


def host(text: str) -> str:
    return _matching(_HOST, text, "a host name")


def address(text: str) -> str:
    """Check an IPv4 address, at which a port is published."""
    return _matching(_ADDRESS, text, "an IPv4 address")


def user(text: str) -> str:
    return _matching(_USER, text, "the name of a user")


def path(text: str) -> str:
    """Check an absolute path of plain characters, without `..`."""
    if ".." in text.split("/"):
        raise ConfigError(f"the path {text!r} goes upwards")
    return _matching(_PATH, text, "an absolute path of letters, digits and -._+@")


def cluster_id(text: str | None, of: str) -> str:
    """Check `text`, a uuid in Kafka's form. If it is None, return an id that is always the same for `of`: a file that
    is generated a second time must have the id of the existing volumes."""
    if text is None:
        return uuid_to_str(random_uuid(random.Random(f"pykbroker {of}")))  # noqa: S311  # the id of a cluster is no secret
    try:
        uuid_from_str(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not a cluster id: `pykbroker random-uuid` makes one") from None
    return text

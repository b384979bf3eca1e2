"""The sender of a JoinGroup, and its refusal. Groups of all kinds with classic members use them.

Responsible for the values alone. Not responsible for what a JoinGroup does (classic_step.py, mixed.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from pykbroker_wire.errors import ErrorCode
from pykbroker_wire.messages.join_group import JoinGroupResponse

UNKNOWN_MEMBER = ""
#: The first versions of JoinGroup in which a new dynamic member must come back with its id, and in which the answer can
#: ask a leader not to assign.
MEMBER_ID_REQUIRED_FROM = 4
SKIP_ASSIGNMENT_FROM = 9


def _everything(_topic: str) -> bool:
    return True


class Client(NamedTuple):
    """The sender of a request, as far as a group stores it. `member_suffix` is a new uuid for the case that an id is
    needed."""

    client_id: str
    client_host: str
    api_version: int
    member_suffix: str
    #: returns True for topics that the client may describe; used by groups with regular expressions (KIP-848)
    may_describe: Callable[[str], bool] = _everything


def join_refused(error: ErrorCode, member_id: str = UNKNOWN_MEMBER) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)

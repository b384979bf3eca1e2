"""For tests: an object of one loop raises an error if the other loop's thread calls it.

`install` wraps the methods of classes whose objects belong to one loop. Each object belongs to the thread that calls it
first. The owner of an object with `__slots__` cannot be stored in the object. It is stored under the object's address,
and removed when the next object is made at that address. Only tests use this module.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

_OWNER: Final = "_owner_of_tests"
_installed: set[type] = set()
#: the owners of objects with `__slots__`, by address
_owners: dict[int, int] = {}
#: The calls by a wrong thread. Tests read this list, because the error that was raised may be visible only in the log.
found: list[str] = []


class WrongLoop(BaseException):
    """The thread of one loop called a part of the other loop. It is not an Exception, so that `except Exception` does
    not catch it."""


def install(kinds: Iterable[type]) -> None:
    """Check the calls of all plain methods of these classes from now on. A class that is already checked is skipped."""
    for kind in kinds:
        if kind in _installed:
            continue
        _installed.add(kind)
        has_slots = "__slots__" in vars(kind)
        if has_slots:
            setattr(kind, "__init__", _forgetting(vars(kind)["__init__"]))  # noqa: B010  # mypy lets nothing else
        for name, method in list(vars(kind).items()):
            if inspect.isfunction(method) and not name.startswith("__"):
                setattr(kind, name, _checked(kind, method, _owner_by_address if has_slots else _owner))


def _owner(part: Any, here: int) -> int:
    owner: int = part.__dict__.setdefault(_OWNER, here)
    return owner


def _owner_by_address(part: object, here: int) -> int:
    return _owners.setdefault(id(part), here)


def _forgetting(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def forgetting(self: object, *args: Any, **named: Any) -> None:
        _owners.pop(id(self), None)
        init(self, *args, **named)

    return forgetting


def _checked(kind: type, method: Callable[..., Any], owner_of: Callable[[Any, int], int]) -> Callable[..., Any]:
    @functools.wraps(method)
    def checked(self: Any, *args: Any, **named: Any) -> Any:
        here = threading.get_ident()
        owner = owner_of(self, here)
        if owner != here:
            found.append(f"{kind.__name__}.{method.__name__} was called by {threading.current_thread().name}")
            raise WrongLoop(found[-1])
        return method(self, *args, **named)

    return checked


def parts_of_loops() -> tuple[type, ...]:
    """Return the classes of a node whose objects must each be called on only one of the loops."""
    from pykbroker.config.live import LiveConfig
    from pykbroker.controller.active import ActiveController
    from pykbroker.coordinator.group.service import GroupService
    from pykbroker.coordinator.transaction.service import TransactionService
    from pykbroker.crossing.broker_end import BrokerEnd
    from pykbroker.crossing.calls import Calls, CallsAnswered
    from pykbroker.crossing.control_end import ControlEnd
    from pykbroker.crossing.feed import MetadataFeed
    from pykbroker.crossing.lease import Lease
    from pykbroker.metadata.loader import MetadataLoader
    from pykbroker.metadata.view import MetadataView
    from pykbroker.node.tls_stores import TlsStores
    from pykbroker.node_to_controller.controller_channel import ControllerChannel
    from pykbroker.node_to_controller.controller_sender import ControllerSender
    from pykbroker.node_to_controller.lifecycle import BrokerLifecycle
    from pykbroker.plugins.plugin_authorizer import PluginAuthorizer
    from pykbroker.quorum.driver import QuorumDriver
    from pykbroker.replica.commit import Commit
    from pykbroker.replica.fetching.manager import FetcherManager
    from pykbroker.replica.follower import PartitionFollower
    from pykbroker.replica.isr_updates import IsrUpdates
    from pykbroker.replica.leader import PartitionLeader
    from pykbroker.replica.partition import Partition
    from pykbroker.replica.table import ReplicaTable
    from pykbroker.runtime.cold_reads import ColdReads
    from pykbroker.security.standard_authorizer import StandardAuthorizer
    from pykbroker.storage.space import DiskSpace

    return (
        ActiveController,
        BrokerEnd,
        BrokerLifecycle,
        Calls,
        CallsAnswered,
        ColdReads,
        Commit,
        ControlEnd,
        ControllerChannel,
        ControllerSender,
        DiskSpace,
        FetcherManager,
        GroupService,
        IsrUpdates,
        Lease,
        LiveConfig,
        MetadataFeed,
        MetadataLoader,
        MetadataView,
        Partition,
        PartitionFollower,
        PartitionLeader,
        PluginAuthorizer,
        QuorumDriver,
        ReplicaTable,
        StandardAuthorizer,
        TlsStores,
        TransactionService,
    )

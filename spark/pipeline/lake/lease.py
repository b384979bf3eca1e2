"""The lease of a lake on an object store: one driver at a time, and a second one stops with a message.

    _pipeline.lease/00000007.json     the seventh driver's: its name, its number of renewals, and if it has ended

An object is created only if it is absent, so one of two drivers gets a number. Its driver rewrites it every `RENEW_S`,
and with `ended` when the driver ends. A driver that starts watches the newest object. If the object changes, its driver
lives, and the new driver stops. If it stays the same for `PATIENCE_S`, or has `ended`, the new driver creates the next
number. Clocks of different machines are never compared.

**What a lease does not do.** It does not decide which batches count: the log of the table does (`table`). A driver that
stands still for longer than `PATIENCE_S` loses the lease to a waiting driver. When it continues, the log takes none of
its batches. So no promise to readers depends on a time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Protocol

from pipeline.lake.positions import LakeError, LakeTakenError

FOLDER = "_pipeline.lease"  # Delta's VACUUM and readers that list the folder skip names that begin with _
RENEW_S = 5.0
PATIENCE_S = 30.0
LOOK_S = 1.0


class LeaseFiles(Protocol):
    """The objects of a lease, by name."""

    def names(self) -> list[str]:
        """Return the names, an empty list if there is no folder."""

    def read(self, name: str) -> str:
        """Raises FileNotFoundError."""

    def create(self, name: str, text: str) -> bool:
        """Create the object. Return False if it exists."""

    def write(self, name: str, text: str) -> None:
        """Replace the object."""

    def delete(self, name: str) -> None:
        """Delete the object if it exists."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The content of an object of the lease. `driver` is unique, `where` is for people."""

    driver: str
    where: str
    renewals: int = 0
    ended: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


def decode(text: str) -> Holder | None:
    """Return None for a text that is damaged or of a later version of the pipeline; its driver may still live."""
    try:
        return Holder(**json.loads(text))
    except (ValueError, TypeError):
        return None


class Lease:
    """A driver's own lease. `take` it, `check` it before each write, `give_back` at the end."""

    def __init__(
        self,
        files: LeaseFiles,
        place: str,
        holder: Holder,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], object] = time.sleep,
    ) -> None:
        self._files = files
        self._place = place
        self._holder = holder
        self._clock = clock
        self._wait = wait
        self._number = 0  # 0 if not held
        self._lost = False
        self._ending = threading.Event()
        self._renewing: threading.Thread | None = None

    def take(self) -> None:
        """Wait until the driver that holds the lease no longer renews it, then take it.

        Raises:
            LakeTakenError: another driver holds it, and lives.
            LakeError: the object store also creates objects that exist.
        """
        while True:
            newest = self._newest()
            if newest and not self._has_ended(newest):
                continue  # the object is gone, because another driver has created the next one
            if self._created(newest + 1):
                return

    def keep(self) -> None:
        """Renew it from now on, in a thread, until it is given back or lost."""
        self._renewing = threading.Thread(target=self._renew_on, name="lease of the lake", daemon=True)
        self._renewing.start()

    def renew(self) -> None:
        """Rewrite the object, unless another driver has taken the lease."""
        if self._newest() != self._number:
            self._lost = True
            return
        self._holder = replace(self._holder, renewals=self._holder.renewals + 1)
        self._files.write(_name(self._number), self._holder.encode())

    def check(self) -> None:
        """Raises LakeTakenError if another driver has taken it."""
        if self._lost:
            raise LakeTakenError(
                f"another driver has taken the lake {self._place}, because this one had not renewed its lease for "
                f"{PATIENCE_S:.0f} s; so this one stops; nothing is lost",
                "Run one driver for each lake",
            )

    def give_back(self) -> None:
        """End the lease, so that the next driver need not wait."""
        self._ending.set()
        if self._renewing is not None:
            self._renewing.join()
        if self._number and self._newest() == self._number:
            self._files.write(_name(self._number), replace(self._holder, ended=True).encode())
        self._number = 0

    def _newest(self) -> int:
        stems = (name.removesuffix(".json") for name in self._files.names())
        return max((int(stem) for stem in stems if stem.isdecimal()), default=0)

    def _has_ended(self, number: int) -> bool:
        """Watch another driver's object; False if it disappears in that time. Raises LakeTakenError if it is
        renewed."""
        try:
            first = self._files.read(_name(number))
            holder, until = decode(first), self._clock() + PATIENCE_S
            while not (holder and holder.ended) and self._clock() < until:
                self._wait(LOOK_S)
                now = self._files.read(_name(number))
                if now != first:
                    holder = decode(now)
                    if not (holder and holder.ended):
                        raise self._taken(holder)
        except FileNotFoundError:
            return False
        return True

    def _created(self, number: int) -> bool:
        name = _name(number)
        if not self._files.create(name, self._holder.encode()):
            return False
        if self._files.create(name, replace(self._holder, ended=True).encode()):
            raise LakeError(
                f"the object store of the lake {self._place} creates an object that is there already (PutObject with "
                "If-None-Match: *): on it two drivers could overwrite each other's commits",
                "Use a store that has conditional writes, as S3 does, or put the lake on hdfs:",
            )
        if self._newest() != number:
            return False  # an object of this number existed and is deleted: a later driver is at work
        self._number = number
        for each in self._files.names():
            if each != name:
                self._files.delete(each)
        return True

    def _renew_on(self) -> None:
        while not self._lost and not self._ending.wait(RENEW_S):
            with suppress(Exception):  # the store does not answer: renewing is repeated, and the log decides
                self.renew()

    def _taken(self, holder: Holder | None) -> LakeTakenError:
        where = holder.where if holder else "of another version of the pipeline"
        return LakeTakenError(
            f"another driver ({where}) writes to the lake {self._place} and renews its lease, so this one stops",
            f"Run one driver for each lake. One that was killed is followed after {PATIENCE_S:.0f} s",
        )


def _name(number: int) -> str:
    return f"{number:08d}.json"

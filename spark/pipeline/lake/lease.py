"""The lease of a lake on an object store: one driver at a time, and a second one stops with a message.

    _pipeline.lease/00000007.json     the seventh driver's: who it is, how often it has renewed, whether it has ended

An object is created only if it is absent, so one of two drivers gets a number. Its driver writes it anew every
`RENEW_S`, and with `ended` when it ends. A driver that starts watches the newest object: if it changes, its driver
lives, and the one that watches stops; if it stays the same for `PATIENCE_S`, or says `ended`, the one that watches
creates the next number. No clock is compared with another machine's.

**What a lease does not do.** It does not say what counts: the log of the table does (`table`). A driver that stands
still for longer than `PATIENCE_S` loses the lease to one that waits, and whatever it does when it goes on, the log
takes no batch of it any more. So no promise to readers rests on a time.
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

FOLDER = "_pipeline.lease"  # Delta's VACUUM and readers that list pass over what begins with _
RENEW_S = 5.0
PATIENCE_S = 30.0
LOOK_S = 1.0


class LeaseFiles(Protocol):
    """The objects of a lease, by name."""

    def names(self) -> list[str]:
        """None if there is no folder."""

    def read(self, name: str) -> str:
        """Raises FileNotFoundError."""

    def create(self, name: str, text: str) -> bool:
        """False if it is there."""

    def write(self, name: str, text: str) -> None:
        """In the place of what was there."""

    def delete(self, name: str) -> None:
        """Also if it is not there."""


@dataclass(frozen=True, slots=True)
class Holder:
    """What an object of the lease says. `driver` is unique, `where` is for people."""

    driver: str
    where: str
    renewals: int = 0
    ended: bool = False

    def encode(self) -> str:
        return json.dumps(asdict(self))


def decode(text: str) -> Holder | None:
    """None for a text that is damaged, or of a later version of the pipeline: its driver may live all the same."""
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
        self._number = 0  # 0: not held
        self._lost = False
        self._ending = threading.Event()
        self._renewing: threading.Thread | None = None

    def take(self) -> None:
        """Waits for a driver that does not renew any more.

        Raises:
            LakeTakenError: another driver holds it, and lives.
            LakeError: the object store creates what is there already.
        """
        while True:
            newest = self._newest()
            if newest and not self._has_ended(newest):
                continue  # the object is gone: another driver has made the next one
            if self._created(newest + 1):
                return

    def keep(self) -> None:
        """Renew it from now on, in a thread, until it is given back or lost."""
        self._renewing = threading.Thread(target=self._renew_on, name="lease of the lake", daemon=True)
        self._renewing.start()

    def renew(self) -> None:
        """Write it anew, unless another driver has taken it."""
        if self._newest() != self._number:
            self._lost = True
            return
        self._holder = replace(self._holder, renewals=self._holder.renewals + 1)
        self._files.write(_name(self._number), self._holder.encode())

    def check(self) -> None:
        """Raises LakeTakenError when another driver has taken it."""
        if self._lost:
            raise LakeTakenError(
                f"another driver has taken the lake {self._place}, because this one had not renewed its lease for "
                f"{PATIENCE_S:.0f} s; so this one stops; nothing is lost",
                "Run one driver for each lake",
            )

    def give_back(self) -> None:
        """The next driver need not wait."""
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
        """Watches another driver's object; False if it goes meanwhile. Raises LakeTakenError if it is renewed."""
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
            return False  # an object of this number was there and is deleted: a later driver is at work
        self._number = number
        for each in self._files.names():
            if each != name:
                self._files.delete(each)
        return True

    def _renew_on(self) -> None:
        while not self._lost and not self._ending.wait(RENEW_S):
            with suppress(Exception):  # the store does not answer: it is tried again, and the log decides what counts
                self.renew()

    def _taken(self, holder: Holder | None) -> LakeTakenError:
        where = holder.where if holder else "of another version of the pipeline"
        return LakeTakenError(
            f"another driver ({where}) writes to the lake {self._place} and renews its lease, so this one stops",
            f"Run one driver for each lake. One that was killed is followed after {PATIENCE_S:.0f} s",
        )


def _name(number: int) -> str:
    return f"{number:08d}.json"

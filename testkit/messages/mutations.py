"""Bytes that were damaged at random, for readers that must refuse them or read them, and do nothing else."""

from __future__ import annotations

import random
from collections.abc import Iterator


def mutations(rng: random.Random, data: bytes, count: int) -> Iterator[bytes]:
    for _ in range(count):
        mutated = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(mutated) + 1)
            match rng.randrange(5):
                case 0 if mutated:
                    mutated[at % len(mutated)] = rng.randrange(256)
                case 1 if mutated:
                    mutated[at % len(mutated)] ^= 1 << rng.randrange(8)
                case 2:
                    del mutated[at : at + rng.randrange(1, 9)]
                case 3:
                    mutated[at:at] = rng.choice((b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\xff\xff", b"\x80"))
                case _:
                    mutated[at:at] = rng.randbytes(rng.randrange(1, 9))
        yield bytes(mutated)

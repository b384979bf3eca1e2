"""XXH3 with 64 bits and no seed (Yann Collet's, as published), in Python: what Kafka hashes topics with.

Responsible for the number alone. It is computed once per topic and change, so that plain Python will do: 4 KB take
half a millisecond.
"""

from __future__ import annotations

from struct import Struct, unpack_from
from typing import Final

_MASK: Final = 0xFFFF_FFFF_FFFF_FFFF
_P32_1: Final = 0x9E3779B1
_P32_2: Final = 0x85EBCA77
_P32_3: Final = 0xC2B2AE3D
_P64_1: Final = 0x9E3779B185EBCA87
_P64_2: Final = 0xC2B2AE3D27D4EB4F
_P64_3: Final = 0x165667B19E3779F9
_P64_4: Final = 0x85EBCA77C2B2AE63
_P64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25

#: The default secret of the algorithm.
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221b8084674f743248e"
    "e03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8fa763fe39c343ff9dcbbc7c70b4f1d"
    "8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc"
    "8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE: Final = 64
_STRIPES_PER_BLOCK: Final = (len(_SECRET) - _STRIPE) // 8
_LANES: Final = Struct("<8Q").unpack_from


def _u64(data: bytes, at: int) -> int:
    value: int = unpack_from("<Q", data, at)[0]
    return value


def _u32(data: bytes, at: int) -> int:
    value: int = unpack_from("<I", data, at)[0]
    return value


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product ^ product >> 64) & _MASK


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _avalanche64(value: int) -> int:
    value ^= value >> 33
    value = value * _P64_2 & _MASK
    value ^= value >> 29
    value = value * _P64_3 & _MASK
    return value ^ value >> 32


def _mix16(data: bytes, at: int, secret_at: int) -> int:
    return _fold(_u64(data, at) ^ _u64(_SECRET, secret_at), _u64(data, at + 8) ^ _u64(_SECRET, secret_at + 8))


def xxh3_64(data: bytes) -> int:
    """Unsigned."""
    length = len(data)
    if length <= 16:
        return _short(data, length)
    if length <= 240:
        return _middle(data, length)
    return _long(data, length)


def _short(data: bytes, length: int) -> int:
    if length > 8:
        low = _u64(data, 0) ^ (_u64(_SECRET, 24) ^ _u64(_SECRET, 32))
        high = _u64(data, length - 8) ^ (_u64(_SECRET, 40) ^ _u64(_SECRET, 48))
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _fold(low, high) & _MASK)
    if length >= 4:
        joined = _u32(data, length - 4) + (_u32(data, 0) << 32)
        value = joined ^ (_u64(_SECRET, 8) ^ _u64(_SECRET, 16))
        value ^= (value << 49 | value >> 15) & _MASK ^ (value << 24 | value >> 40) & _MASK
        value = value * _PRIME_MX2 & _MASK
        value ^= (value >> 35) + length
        value = value * _PRIME_MX2 & _MASK
        return value ^ value >> 28
    if length:
        joined = data[0] << 16 | data[length >> 1] << 24 | data[length - 1] | length << 8
        return _avalanche64(joined ^ (_u32(_SECRET, 0) ^ _u32(_SECRET, 4)))
    return _avalanche64(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _middle(data: bytes, length: int) -> int:
    total = length * _P64_1 & _MASK
    if length <= 128:
        for step in range((length - 1) // 32, -1, -1):
            total += _mix16(data, 16 * step, 32 * step)
            total += _mix16(data, length - 16 * (step + 1), 32 * step + 16)
        return _avalanche(total & _MASK)
    for step in range(8):
        total += _mix16(data, 16 * step, 16 * step)
    total = _avalanche(total & _MASK)
    for step in range(8, length // 16):
        total += _mix16(data, 16 * step, 16 * (step - 8) + 3)
    total += _mix16(data, length - 16, 136 - 17)
    return _avalanche(total & _MASK)


def _long(data: bytes, length: int) -> int:
    accumulators = [_P32_3, _P64_1, _P64_2, _P64_3, _P64_4, _P32_2, _P64_5, _P32_1]
    secrets = [_LANES(_SECRET, 8 * stripe) for stripe in range(_STRIPES_PER_BLOCK)]
    scramble = _LANES(_SECRET, len(_SECRET) - _STRIPE)
    stripes = (length - 1) // _STRIPE
    for stripe in range(stripes):
        inside = stripe % _STRIPES_PER_BLOCK
        _accumulate(accumulators, _LANES(data, stripe * _STRIPE), secrets[inside])
        if inside == _STRIPES_PER_BLOCK - 1:
            for lane, secret in enumerate(scramble):
                value = accumulators[lane]
                accumulators[lane] = ((value ^ value >> 47) ^ secret) * _P32_1 & _MASK
    _accumulate(accumulators, _LANES(data, length - _STRIPE), _LANES(_SECRET, len(_SECRET) - _STRIPE - 7))
    total = length * _P64_1
    for pair in range(4):
        total += _fold(
            accumulators[2 * pair] ^ _u64(_SECRET, 11 + 16 * pair),
            accumulators[2 * pair + 1] ^ _u64(_SECRET, 19 + 16 * pair),
        )
    return _avalanche(total & _MASK)


def _accumulate(accumulators: list[int], data: tuple[int, ...], secret: tuple[int, ...]) -> None:
    for lane in range(8):
        value = data[lane]
        keyed = value ^ secret[lane]
        accumulators[lane ^ 1] = accumulators[lane ^ 1] + value & _MASK
        accumulators[lane] = accumulators[lane] + (keyed & 0xFFFF_FFFF) * (keyed >> 32) & _MASK

"""Common parts of the generated message classes: two errors, the base class, lengths, varints, tagged fields, uuids.

Not responsible for any particular message. Invariants of every reader, generated or in this file:

- A length beyond the end of the buffer is not checked where it is read. Slices become shorter, `pos` moves beyond the
  end and never goes back, every later fixed-width read fails, and `decode` checks once, at the end.
- No memory is allocated for a declared length: arrays grow by what was really decoded, and a count that the remaining
  bytes cannot hold is refused before the first element.
- A "lead" is the length before a string, bytes or array. In compact form it is length + 1 and 0 is null. The readers
  below leave `pos` on the last byte of a compact lead, so that the content always starts at `pos + 1`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Sequence, Sized
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, cast

Buffer: TypeAlias = bytes | bytearray | memoryview
# Record batches to be sent: one buffer, or several that the encoder adds to its output without a copy. A part of a
# file, which goes to the socket without passing through memory, is added too: only its size is used.
RecordsOut: TypeAlias = Buffer | Sequence[Buffer | Sized]
Write: TypeAlias = Callable[[Buffer], None]

ZERO_UUID: Final = bytes(16)
# Apache Kafka 4.4 refuses more than this; 4.3.1 has no such limit and no client comes near it.
MAX_ARRAY_ELEMENTS: Final = 1_000_000
MAX_TAGGED_FIELDS: Final = 10_000
# The limit for the elements of all arrays inside other arrays of one request together. A struct of three bytes becomes
# a few hundred bytes of Python objects: without this limit a request of 100 MB of them would take many GB.
MAX_NESTED_ELEMENTS: Final = 1_000_000
MAX_STRING_BYTES: Final = 0x7FFF
# FLEXIBLE_FROM of a message that has no flexible version.
NEVER: Final = 32_768

# The default of list parameters, which distinguishes "not given" from None, a value of nullable arrays. Never changed.
EMPTY: Final[Any] = []
# The same for the one kind of nullable struct whose default is not null.
ABSENT: Final[Any] = object()

# COMPACT[n] is the compact lead of a length n.
COMPACT: Final = tuple(bytes((n + 1,)) for n in range(127))
# The encoding of compact null and of an empty tag section.
ZERO: Final = b"\x00"
NULL_INT16: Final = b"\xff\xff"
NULL_INT32: Final = b"\xff\xff\xff\xff"

new: Final = object.__new__
unpack_from: Final = struct.unpack_from
pack: Final = struct.pack
pack_int16: Final = struct.Struct(">h").pack
pack_int32: Final = struct.Struct(">i").pack
# Arrays of up to 16 int32 (replicas, partitions), by length: a third of the time of a format that is built each time.
UNPACK_INT32S: Final = tuple(struct.Struct(f">{n}i").unpack_from for n in range(17))
PACK_INT32S: Final = tuple(struct.Struct(f">{n}i").pack for n in range(17))


class DecodeError(Exception):
    """These bytes are not what they claim to be. The sender is at fault."""


class EncodeError(Exception):
    """This value has no form in that version. The caller is at fault."""


# Errors that the generated readers raise for broken bytes: an index past the end, a struct past the end.
READ_ERRORS: Final = (IndexError, struct.error)
# Errors that the generated writers raise for a wrong value: None in a field that may not be null, a number out of
# range, a string with a lone surrogate.
WRITE_ERRORS: Final = (AttributeError, TypeError, struct.error, UnicodeEncodeError)


#: Fields that may contain passwords or keys, or requests that contain some.
_SECRET_FIELDS: Final = frozenset(
    {"auth_bytes", "hmac", "request_data", "response_data", "salted_password", "server_key", "stored_key"}
)


class Message:
    """A struct of the protocol: slots, equality by value, a readable repr without secrets."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    # A mutable value has no hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in self.__slots__}
        hidden = _SECRET_FIELDS.intersection(shown)
        if "value" in shown and "Config" in type(self).__name__ and not type(self).__name__.startswith("Creatable"):
            # The value of a broker's config may be a password.
            hidden |= {"value"}
        fields = (f"{name}={'[hidden]' if name in hidden else repr(value)}" for name, value in shown.items())
        return f"{type(self).__name__}({', '.join(fields)})"


class TopLevel(Message):
    """A message that can be read and written on its own."""

    __slots__: tuple[str, ...] = ()

    # The API's key, the type of a stored record, or -1.
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    # The highest stable version, which a broker advertises.
    MAX_VERSION: ClassVar[int]
    # The highest version that can be read and written; above MAX_VERSION where Kafka has an unstable one.
    LATEST_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def decode(cls, buf: Buffer, pos: int, version: int) -> tuple[Self, int]:
        """Return the message at `pos` and the position after it. Raises DecodeError and nothing else."""
        raise NotImplementedError

    def encode(self, version: int) -> list[Buffer]:
        """Return the buffers to write, in order; usually one. Raises EncodeError and nothing else."""
        raise NotImplementedError

    def encode_bytes(self, version: int) -> bytes:
        return b"".join(self.encode(version))


# --- reading ---------------------------------------------------------------------------------------------------------


def null_field() -> DecodeError:
    return DecodeError("a field that may not be null is null")


def bad_version(name: str, version: int) -> DecodeError:
    return DecodeError(f"{name} has no version {version}")


def broken(name: str, version: int, error: Exception | None = None) -> DecodeError:
    return DecodeError(f"{name} version {version} is cut short or garbled" + (f": {error}" if error else ""))


def read_lead(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint of at most five bytes, and the position of its last byte."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = buf[pos]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, pos
        pos += 1
    raise DecodeError("a varint of more than five bytes")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return an unsigned varint and the position after it."""
    value, pos = read_lead(buf, pos)
    return value, pos + 1


def nullable_lead(buf: Buffer, pos: int) -> tuple[int, int]:
    # Kafka reads the number as a signed int32, so every "negative" number is null as well.
    lead, pos = read_lead(buf, pos)
    return (0 if lead > 0x80000000 else lead), pos


def long_nullable_string(buf: Buffer, pos: int) -> tuple[int, int]:
    lead, pos = nullable_lead(buf, pos)
    if lead > MAX_STRING_BYTES + 1:
        raise DecodeError(f"a string of {lead - 1} bytes")
    return lead, pos


def long_string(buf: Buffer, pos: int) -> tuple[int, int]:
    lead, pos = long_nullable_string(buf, pos)
    if lead == 0:
        raise null_field()
    return lead, pos


def long_nullable_bytes(buf: Buffer, pos: int) -> tuple[int, int]:
    lead, pos = nullable_lead(buf, pos)
    if lead - 1 > len(buf) - pos:
        raise DecodeError(f"{lead - 1} bytes declared, {len(buf) - pos - 1} left")
    return lead, pos


def long_bytes(buf: Buffer, pos: int) -> tuple[int, int]:
    lead, pos = long_nullable_bytes(buf, pos)
    if lead == 0:
        raise null_field()
    return lead, pos


def long_nullable_array(buf: Buffer, pos: int, element_bytes: int) -> tuple[int, int]:
    lead, pos = nullable_lead(buf, pos)
    if lead > 1:
        check_count(buf, pos + 1, lead - 1, element_bytes)
    return lead, pos


def long_array(buf: Buffer, pos: int, element_bytes: int) -> tuple[int, int]:
    lead, pos = long_nullable_array(buf, pos, element_bytes)
    if lead == 0:
        raise null_field()
    return lead, pos


def check_count(buf: Buffer, pos: int, count: int, element_bytes: int) -> None:
    """Refuse an array that cannot fit: `element_bytes` is the smallest size of one element."""
    if count > MAX_ARRAY_ELEMENTS or count * element_bytes > len(buf) - pos:
        raise DecodeError(f"an array of {count} elements of at least {element_bytes} bytes in {len(buf) - pos} bytes")


# The rest of MAX_NESTED_ELEMENTS for the request that is being decoded. One cell is enough: decoding does not wait.
budget: Final = [MAX_NESTED_ELEMENTS]


def over_budget() -> DecodeError:
    return DecodeError(f"more than {MAX_NESTED_ELEMENTS} elements in the arrays of one request")


def tag_count(buf: Buffer, pos: int) -> tuple[int, int]:
    count, pos = read_varint(buf, pos)
    if count > MAX_TAGGED_FIELDS:
        raise DecodeError(f"{count} tagged fields")
    return count, pos


def skip_tags(buf: Buffer, pos: int) -> int:
    """Return the position after a tag section whose tags are all unknown."""
    count, pos = tag_count(buf, pos)
    for _ in range(count):
        _, pos = read_lead(buf, pos)
        size, pos = read_varint(buf, pos + 1)
        pos += size
    return pos


def bad_tag(tag: int, version: int) -> DecodeError:
    return DecodeError(f"tag {tag} does not belong in version {version}")


def bad_tag_size(tag: int) -> DecodeError:
    return DecodeError(f"tagged field {tag} has another size than it declares")


# --- writing ---------------------------------------------------------------------------------------------------------


def no_version(name: str, version: int) -> EncodeError:
    return EncodeError(f"{name} has no version {version}")


def unsupported(field: str, version: int) -> EncodeError:
    return EncodeError(f"{field} is set, but version {version} does not have it")


def not_encodable(message: Message, version: int, error: Exception) -> EncodeError:
    return EncodeError(f"{type(message).__name__} version {version}: {error}")


def null_write(field: str) -> EncodeError:
    return EncodeError(f"{field} may not be null")


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def compact(size: int) -> bytes:
    """Return the compact lead of a length that is too large for the COMPACT table."""
    return varint(size + 1)


def compact_string(size: int) -> bytes:
    if size > MAX_STRING_BYTES:
        raise EncodeError(f"a string of {size} bytes")
    return varint(size + 1)


def write_tags(write: Write, tags: list[tuple[int, bytes]]) -> None:
    """Write a tag section; `tags` are in ascending order."""
    write(varint(len(tags)))
    for tag, value in tags:
        write(varint(tag) + varint(len(value)))
        write(value)


def write_records(write: Write, records: RecordsOut) -> None:
    if isinstance(records, (bytes, bytearray, memoryview)):
        write(records)
    else:
        for piece in records:
            write(cast(Buffer, piece))


def records_size(records: RecordsOut) -> int:
    if isinstance(records, memoryview):
        return records.nbytes
    if isinstance(records, (bytes, bytearray)):
        return len(records)
    return sum([piece.nbytes if isinstance(piece, memoryview) else len(piece) for piece in records])


# A records buffer of this size or less is cheaper to copy than to pass to the socket separately.
_SPLICE_BYTES: Final = 512


def gather(parts: list[Buffer]) -> list[Buffer]:
    """Join the small pieces between the record buffers, and leave those unchanged."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for part in parts:
        if len(part) > _SPLICE_BYTES:
            if small:
                buffers.append(b"".join(small))
                small = []
            buffers.append(part)
        else:
            small.append(part)
    if small:
        buffers.append(b"".join(small))
    return buffers


# --- uuids -----------------------------------------------------------------------------------------------------------


class Chance(Protocol):
    """A `random.Random`; this module creates none."""

    def randbytes(self, n: int, /) -> bytes: ...


def random_uuid(chance: Chance) -> bytes:
    """Return a version 4 uuid like Apache Kafka's: not a reserved one, and its text does not begin with a dash, which a
    command line would take for an option."""
    while True:
        value = bytearray(chance.randbytes(16))
        value[6] = value[6] & 0x0F | 0x40
        value[8] = value[8] & 0x3F | 0x80
        if not uuid_to_str(bytes(value)).startswith("-"):
            return bytes(value)


def uuid_to_str(value: bytes) -> str:
    """Return Kafka's text form of a uuid: base64url of the 16 bytes without padding."""
    return base64.urlsafe_b64encode(value)[:22].decode("ascii")


def uuid_from_str(text: str) -> bytes:
    """Parse a uuid in Kafka's text form. Raises ValueError for anything else."""
    # The decoder also accepts + and / in place of their replacements.
    if len(text) != 22 or not text.isascii() or "+" in text or "/" in text:
        raise ValueError(f"not a uuid: {text!r}")
    try:
        return base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError(f"not a uuid: {text!r}") from None

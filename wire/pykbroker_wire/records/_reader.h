/* Reading records from bytes, within bounds: the common part of walk, columns and the loops of compaction.
 *
 * No byte outside of the buffer is read: `Reader.end` is the only bound, and every read goes through `varint` or a
 * comparison with it. */

#ifndef PYKBROKER_READER_H
#define PYKBROKER_READER_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

typedef struct {
    const uint8_t *data;
    int64_t position; /* 64 bits: lengths of up to 2^31 are added before they are compared */
    int64_t end;
} Reader;

enum { OK = 0, ENDS = 1, TOO_LONG = 2 };

/* A zigzag varint of at most `bits` bits; excess bits of the last byte are dropped, as in Java. */
static inline int varint(Reader *reader, int bits, int64_t *value)
{
    uint64_t zigzag = 0;
    int shift = 0;
    for (;;) {
        if (reader->position >= reader->end)
            return ENDS;
        uint8_t byte = reader->data[reader->position++];
        zigzag |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
        shift += 7;
        if (shift >= bits)
            return TOO_LONG;
    }
    if (bits == 32)
        zigzag &= 0xFFFFFFFFu;
    *value = (int64_t)(zigzag >> 1) ^ -(int64_t)(zigzag & 1);
    return OK;
}

/* Skip a key, value or header value: a length and that many bytes, or a negative length. */
static inline int skip_bytes(Reader *reader, int64_t *size)
{
    int result = varint(reader, 32, size);
    if (result == OK && *size > 0)
        reader->position += *size; /* the next read, or the comparison with the record's end, checks it */
    return result;
}

typedef struct {
    int64_t timestamp_delta;
    int64_t after_timestamp; /* where the offset delta begins */
    int64_t offset_delta;
    int64_t key; /* where it begins */
    int64_t key_size;
    int64_t value; /* likewise */
    int64_t value_size;
    int64_t headers; /* where their number begins */
} Record;

/* Read the fields of the record that fills [position, end). Return NULL, or an error message. */
static inline const char *walk_record(Reader *reader, Record *record)
{
    static const char *out = "a length in a record leads out of it";
    int64_t size, headers;
    reader->position += 1; /* the attributes have no meaning yet */
    if (varint(reader, 64, &record->timestamp_delta))
        return out;
    record->after_timestamp = reader->position;
    if (varint(reader, 32, &record->offset_delta) || varint(reader, 32, &record->key_size))
        return out;
    record->key = reader->position;
    if (record->key_size > 0)
        reader->position += record->key_size;
    if (varint(reader, 32, &record->value_size))
        return out;
    record->value = reader->position;
    if (record->value_size > 0)
        reader->position += record->value_size;
    record->headers = reader->position;
    if (varint(reader, 32, &headers))
        return out;
    if (headers < 0 || headers > reader->end - reader->position)
        return "a record with a wrong number of headers";
    for (; headers > 0; headers--) {
        if (skip_bytes(reader, &size))
            return out;
        if (size < 0)
            return "a record header without a key";
        if (skip_bytes(reader, &size))
            return out;
    }
    return reader->position == reader->end ? NULL : "a record does not end where it says";
}

/* Read the next record of a batch that has one more. Return NULL, or an error message. */
static inline const char *next_record(Reader *reader, int64_t end, Record *record)
{
    int64_t size;
    reader->end = end;
    if (varint(reader, 32, &size) || size < 0 || size > end - reader->position)
        return "the batch ends inside it";
    reader->end = reader->position + size;
    return walk_record(reader, record);
}

/* The exception for a record that breaks a rule: pykbroker_wire.records.record.InvalidRecord. */
extern PyObject *invalid_record;

PyObject *put_keys(PyObject *module, PyObject *args);
PyObject *survivors(PyObject *module, PyObject *args);
PyObject *rebase(PyObject *module, PyObject *args);
PyObject *fill_columns(PyObject *module, PyObject *args);

#endif

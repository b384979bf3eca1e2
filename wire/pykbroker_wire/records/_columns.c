/* The compiled twin of `fill_records_python` in columns.py: same arguments, same buffers, same errors, same tests.
 *
 * Records are read through `_reader.h`, within bounds. Every write goes through `room`, which lets a bytearray grow by
 * doubling and never shrinks it, because memory that is used again costs no page faults. `used` has the number of used
 * bytes of each. A Python object is made per record only for a header's name that is not ASCII. */

#include "_reader.h"
#include <string.h>

enum {
    KEY = 0, /* validity, offsets, data */
    VALUE = 3,
    OFFSET = 6,
    TIMESTAMP = 7,
    TIMESTAMP_TYPE = 8,
    HEADERS = 9, /* validity, offsets */
    NAME = 11,   /* offsets, data */
    CONTENT = 13,
    BUFFERS = 16
};

typedef struct {
    PyObject *array; /* NULL if not wanted */
    uint8_t *bytes;
    int64_t used;
    int64_t size;
} Out;

#define MOST_MS (INT64_MAX / 1000)

/* `PROBLEM_SET` means that a Python exception is set already. */
static const char PROBLEM_SET[] = "";

/* Return the place for `size` more bytes, or NULL with an exception set. */
static inline uint8_t *room(Out *out, int64_t size)
{
    if (out->size - out->used < size) {
        int64_t wanted = out->used + size;
        wanted += wanted < 4096 ? 4096 : wanted;
        if (PyByteArray_Resize(out->array, (Py_ssize_t)wanted) < 0)
            return NULL;
        out->bytes = (uint8_t *)PyByteArray_AsString(out->array);
        out->size = wanted;
    }
    uint8_t *place = out->bytes + out->used;
    out->used += size;
    return place;
}

static inline int put(Out *out, const void *bytes, int64_t size)
{
    uint8_t *place = room(out, size);
    if (place == NULL)
        return 0;
    memcpy(place, bytes, (size_t)size);
    return 1;
}

static inline int put_bit(Out *out, int64_t index, int on)
{
    if ((index & 7) && out->used) {
        out->bytes[out->used - 1] |= (uint8_t)(on << (index & 7));
        return 1;
    }
    uint8_t bits = (uint8_t)on;
    return put(out, &bits, 1);
}

static inline const char *put_end(Out *offsets, const Out *data)
{
    if (data->used > INT32_MAX)
        return "more than 2 GiB in one column";
    int32_t end = (int32_t)data->used;
    return put(offsets, &end, 4) ? NULL : PROBLEM_SET;
}

/* Write a key, a value, or the value of a header: validity bit, data, the offset after the data. */
static inline const char *put_binary(Out *column, int64_t index, const uint8_t *bytes, int64_t size)
{
    if (!put_bit(&column[0], index, size >= 0) || (size > 0 && !put(&column[2], bytes, size)))
        return PROBLEM_SET;
    return put_end(&column[1], &column[2]);
}

static int is_ascii(const uint8_t *bytes, int64_t size)
{
    uint8_t all = 0;
    for (int64_t i = 0; i < size; i++)
        all |= bytes[i];
    return all < 128;
}

static const char *put_name(Out *column, const uint8_t *bytes, int64_t size)
{
    if (is_ascii(bytes, size)) {
        if (!put(&column[1], bytes, size))
            return PROBLEM_SET;
        return put_end(&column[0], &column[1]);
    }
    Py_ssize_t length;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)bytes, (Py_ssize_t)size, "replace");
    const char *encoded = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &length);
    int done = encoded != NULL && put(&column[1], encoded, length);
    Py_XDECREF(text);
    return done ? put_end(&column[0], &column[1]) : PROBLEM_SET;
}

/* Write the headers of a record that `walk_record` has checked. */
static const char *put_headers(Out *outs, Reader *reader, int64_t position, int64_t row)
{
    static const char *out = "a length in a record leads out of it";
    int64_t count, size, index = outs[NAME].used / 4 - 1;
    const char *problem = NULL;
    reader->position = position;
    if (varint(reader, 32, &count))
        return out;
    if (!put_bit(&outs[HEADERS], row, count > 0))
        return PROBLEM_SET;
    for (; count > 0; count--, index++) {
        if (varint(reader, 32, &size))
            return out;
        problem = put_name(&outs[NAME], reader->data + reader->position, size);
        if (problem != NULL)
            return problem;
        reader->position += size;
        if (varint(reader, 32, &size))
            return out;
        problem = put_binary(&outs[CONTENT], index, reader->data + reader->position, size);
        if (problem != NULL)
            return problem;
        if (size > 0)
            reader->position += size;
    }
    if (index > INT32_MAX)
        return "more headers than a column can count";
    int32_t end = (int32_t)index;
    return put(&outs[HEADERS + 1], &end, 4) ? NULL : PROBLEM_SET;
}

static const char *put_row(Out *outs, Reader *reader, const Record *record, int64_t offset, int64_t timestamp,
                           int append_time, int64_t row)
{
    const char *problem = NULL;
    if (outs[KEY].array != NULL)
        problem = put_binary(&outs[KEY], row, reader->data + record->key, record->key_size);
    if (outs[VALUE].array != NULL && problem == NULL)
        problem = put_binary(&outs[VALUE], row, reader->data + record->value, record->value_size);
    if (problem != NULL)
        return problem;
    if (outs[OFFSET].array != NULL && !put(&outs[OFFSET], &offset, 8))
        return PROBLEM_SET;
    if (outs[TIMESTAMP].array != NULL) {
        if (timestamp > MOST_MS || timestamp < -MOST_MS)
            return "a timestamp that microseconds cannot hold";
        int64_t microseconds = timestamp * 1000;
        if (!put(&outs[TIMESTAMP], &microseconds, 8))
            return PROBLEM_SET;
    }
    int32_t type = append_time;
    if (outs[TIMESTAMP_TYPE].array != NULL && !put(&outs[TIMESTAMP_TYPE], &type, 4))
        return PROBLEM_SET;
    return outs[HEADERS].array != NULL ? put_headers(outs, reader, record->headers, row) : NULL;
}

/* Open the caller's buffers, column by column. Return 0 with an exception set if they are wrong. */
static int open_buffers(PyObject *buffers, const Py_buffer *used, Out *outs)
{
    if (used->len != BUFFERS * sizeof(int64_t)) {
        PyErr_SetString(PyExc_TypeError, "sixteen numbers of used bytes");
        return 0;
    }
    if (!PyTuple_Check(buffers) || PyTuple_Size(buffers) != BUFFERS) {
        PyErr_SetString(PyExc_TypeError, "sixteen buffers in a tuple");
        return 0;
    }
    for (int i = 0; i < BUFFERS; i++) {
        PyObject *array = PyTuple_GetItem(buffers, i);
        if (array == Py_None) {
            outs[i] = (Out){NULL, NULL, 0, 0};
            continue;
        }
        if (!PyByteArray_Check(array)) {
            PyErr_SetString(PyExc_TypeError, "a buffer is a bytearray or None");
            return 0;
        }
        int64_t size = PyByteArray_Size(array);
        outs[i] = (Out){array, (uint8_t *)PyByteArray_AsString(array), 0, size};
        memcpy(&outs[i].used, (const uint8_t *)used->buf + i * sizeof(int64_t), sizeof(int64_t));
        if (outs[i].used < 0 || outs[i].used > size) {
            PyErr_SetString(PyExc_ValueError, "more bytes are used than there are");
            return 0;
        }
    }
    static const int starts[][2] = {{KEY, 3}, {VALUE, 3}, {HEADERS, 7}};
    for (int column = 0; column < 3; column++)
        for (int i = 1; i < starts[column][1]; i++)
            if ((outs[starts[column][0]].array == NULL) != (outs[starts[column][0] + i].array == NULL)) {
                PyErr_SetString(PyExc_TypeError, "a column has all of its buffers or none");
                return 0;
            }
    return 1;
}

PyObject *fill_columns(PyObject *module, PyObject *args)
{
    Py_buffer buffer, used;
    PyObject *buffers, *result = NULL;
    long long count, base_offset, timestamp, first_offset, last_offset, rows, index = 0;
    int append_time;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLLpLLLOw*:fill_columns", &buffer, &count, &base_offset, &timestamp, &append_time,
                          &first_offset, &last_offset, &rows, &buffers, &used))
        return NULL;

    Out outs[BUFFERS];
    if (!open_buffers(buffers, &used, outs)) {
        PyBuffer_Release(&buffer);
        PyBuffer_Release(&used);
        return NULL;
    }
    Reader reader = {buffer.buf, 0, buffer.len};
    const char *problem = count < 0 ? "a batch of a negative number of records" : NULL;
    for (; problem == NULL && index < count; index++) {
        Record record;
        problem = next_record(&reader, buffer.len, &record);
        if (problem != NULL)
            break;
        /* Sums wrap around as in Java. */
        int64_t offset = (int64_t)((uint64_t)base_offset + (uint64_t)record.offset_delta);
        if (offset < first_offset || offset > last_offset)
            continue;
        int64_t stamp = append_time ? timestamp : (int64_t)((uint64_t)timestamp + (uint64_t)record.timestamp_delta);
        problem = put_row(outs, &reader, &record, offset, stamp, append_time, rows);
        if (problem != NULL)
            break;
        reader.position = reader.end;
        rows++;
    }
    if (problem == NULL && reader.position != buffer.len)
        problem = "there is more behind it";
    for (int i = 0; i < BUFFERS; i++)
        memcpy((uint8_t *)used.buf + i * sizeof(int64_t), &outs[i].used, sizeof(int64_t));
    if (problem == NULL)
        result = PyLong_FromLongLong(rows);
    else if (problem != PROBLEM_SET)
        PyErr_Format(invalid_record, "record %lld: %s", index, problem);
    PyBuffer_Release(&buffer);
    PyBuffer_Release(&used);
    return result;
}

/* The compiled twin of `walk_python` in walk.py: same arguments, same results, same errors, same tests.
 *
 * Limited API of CPython 3.11, so that one build serves every later version. Without a compiler pykbroker runs on the
 * Python twin. Nothing is read outside [position, end) of the buffer: `Reader.end` is the one bound, and every read
 * goes through `byte`, `varint` or a comparison with it. */

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

static PyObject *invalid_record;

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

/* Key, value or header value: a length and that many bytes, or a negative length. */
static inline int skip_bytes(Reader *reader, int64_t *size)
{
    int result = varint(reader, 32, size);
    if (result == OK && *size > 0)
        reader->position += *size; /* the next read, or the comparison with the record's end, finds it beyond */
    return result;
}

/* The fields of the record that fills [position, end). OK, or what is wrong as a message. */
static const char *walk_record(Reader *reader, int64_t *timestamp_delta, int64_t *offset_delta, int64_t *key_size)
{
    static const char *out = "a length in a record leads out of it";
    int64_t size, headers;
    reader->position += 1; /* the attributes have no meaning yet */
    if (varint(reader, 64, timestamp_delta) || varint(reader, 32, offset_delta))
        return out;
    if (skip_bytes(reader, key_size) || skip_bytes(reader, &size) || varint(reader, 32, &headers))
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

static PyObject *walk(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    long long position, expected, count;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLL:walk", &buffer, &position, &expected, &count))
        return NULL;

    const uint8_t *data = buffer.buf;
    const int64_t end = buffer.len;
    const int64_t first = expected;
    int64_t low = INT64_MAX, high = INT64_MIN, keyless = 0;
    int dense = 1;
    const char *problem = position < 0 ? "a negative position" : NULL;

    while (problem == NULL && count > 0) {
        Reader reader = {data, position, end};
        int64_t size;
        int result = varint(&reader, 32, &size);
        if (result == ENDS)
            break;
        if (result == TOO_LONG || size < 0) {
            problem = "a record of a negative or endless size";
            break;
        }
        if (size > end - reader.position)
            break;
        reader.end = reader.position + size;
        int64_t timestamp_delta = 0, offset_delta = 0, key_size = 0;
        problem = walk_record(&reader, &timestamp_delta, &offset_delta, &key_size);
        if (problem != NULL)
            break;
        if (timestamp_delta < low)
            low = timestamp_delta;
        if (timestamp_delta > high)
            high = timestamp_delta;
        keyless += key_size < 0;
        dense &= offset_delta == expected;
        position = reader.end;
        expected++;
        count--;
    }
    PyBuffer_Release(&buffer);
    if (problem != NULL)
        return PyErr_Format(invalid_record, "record %lld: %s", expected, problem);
    return Py_BuildValue("(LLLLLO)", position, (long long)(expected - first), (long long)low, (long long)high,
                         (long long)keyless, dense ? Py_True : Py_False);
}

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS, "walk(data, position, expected, count): see walk.py"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_walk", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walk(void)
{
    PyObject *record = PyImport_ImportModule("pykbroker_wire.records.record");
    if (record == NULL)
        return NULL;
    invalid_record = PyObject_GetAttrString(record, "InvalidRecord");
    Py_DECREF(record);
    return invalid_record == NULL ? NULL : PyModule_Create(&definition);
}

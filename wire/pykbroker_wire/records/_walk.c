/* The compiled twins of the walks in walk.py: same arguments, same results, same errors, same tests.
 *
 * Limited API of CPython 3.11, so that one build serves every later version. Without a compiler pykbroker runs on the
 * Python twin. The module also has the loops of compaction (_dedupe.c) and of columns (_columns.c). */

#include "_reader.h"
#include <string.h>

#ifndef PACKAGE /* a wheel with its own copy sets the name */
#define PACKAGE "pykbroker_wire.records"
#endif

PyObject *invalid_record;

static const char *const TOO_LARGE = "a record of more bytes than the topic accepts";

/* Return 1 if the next record is complete and valid; `problem` is set if it is not valid, or has more bytes than
 * `most`. */
static inline int is_whole(Reader *reader, Record *record, int64_t most, const char **problem)
{
    int64_t size;
    int result = varint(reader, 32, &size);
    if (result == ENDS)
        return 0;
    if (result == TOO_LONG || size < 0) {
        *problem = "a record of a negative or endless size";
        return 0;
    }
    if (size > most) {
        *problem = TOO_LARGE;
        return 0;
    }
    if (size > reader->end - reader->position)
        return 0;
    reader->end = reader->position + size;
    *problem = walk_record(reader, record);
    return *problem == NULL;
}

static PyObject *walk(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    long long position, expected, count, most = INT64_MAX;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLL|L:walk", &buffer, &position, &expected, &count, &most))
        return NULL;

    const uint8_t *data = buffer.buf;
    const int64_t end = buffer.len;
    const int64_t first = expected;
    int64_t low = INT64_MAX, high = INT64_MIN, keyless = 0;
    int dense = 1;
    const char *problem = position < 0 ? "a negative position" : NULL;

    while (problem == NULL && count > 0) {
        Reader reader = {data, position, end};
        Record record;
        if (!is_whole(&reader, &record, most, &problem))
            break;
        if (record.timestamp_delta < low)
            low = record.timestamp_delta;
        if (record.timestamp_delta > high)
            high = record.timestamp_delta;
        keyless += record.key_size < 0;
        dense &= record.offset_delta == expected;
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

/* --- one record in several chunks ---------------------------------------------------------------------------------- */

enum { SIZE, ATTRIBUTES, TIMESTAMP, OFFSET, KEY, VALUE, HEADERS, NAME, CONTENT, LAST, DONE };

/* The layout of walk.py: nine numbers of 64 bits. */
typedef struct {
    int64_t stage;
    int64_t skip; /* bytes of a key, value or header that are still to come */
    int64_t shift;
    uint64_t zigzag; /* of the number that is being read */
    int64_t left;    /* bytes of the record, after those that are skipped */
    int64_t headers;
    int64_t timestamp_delta;
    int64_t offset_delta;
    int64_t key_size;
} Across;

/* Handle a number of the record that has been read completely. Return NULL, or an error message. */
static const char *take_number(Across *across, int64_t value, int64_t most)
{
    int64_t skip = 0;
    switch (across->stage) {
    case SIZE:
        if (value < 0)
            return "a record of a negative or endless size";
        if (value > most)
            return TOO_LARGE;
        across->left = value;
        across->stage = ATTRIBUTES;
        return NULL;
    case TIMESTAMP:
        across->timestamp_delta = value;
        across->stage = OFFSET;
        return NULL;
    case OFFSET:
        across->offset_delta = value;
        across->stage = KEY;
        return NULL;
    case KEY:
        across->key_size = skip = value;
        across->stage = VALUE;
        break;
    case VALUE:
        skip = value;
        across->stage = HEADERS;
        break;
    case HEADERS:
        if (value < 0 || value > across->left)
            return "a record with a wrong number of headers";
        across->headers = value;
        across->stage = value > 0 ? NAME : LAST;
        return NULL;
    case NAME:
        if (value < 0)
            return "a record header without a key";
        skip = value;
        across->stage = CONTENT;
        break;
    case CONTENT:
        skip = value;
        across->stage = --across->headers > 0 ? NAME : LAST;
        break;
    default:
        return "a state that no walk leaves behind";
    }
    if (skip > across->left)
        return "a length in a record leads out of it";
    if (skip > 0) {
        across->skip = skip;
        across->left -= skip;
    }
    return NULL;
}

static PyObject *walk_across(PyObject *module, PyObject *args)
{
    Py_buffer state, buffer;
    long long position, most = INT64_MAX;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*L|L:walk_across", &state, &buffer, &position, &most))
        return NULL;

    const uint8_t *data = buffer.buf;
    const int64_t end = buffer.len;
    Across across;
    const char *problem = position < 0 ? "a negative position" : NULL;
    if (state.len != sizeof across)
        problem = "a state of another size";
    else
        memcpy(&across, state.buf, sizeof across);
    while (problem == NULL && across.stage != DONE) {
        if (across.skip > 0) {
            int64_t step = across.skip < end - position ? across.skip : end - position;
            position += step;
            across.skip -= step;
            if (across.skip > 0)
                break;
        }
        if (across.stage == LAST) {
            if (across.left != 0)
                problem = "a record does not end where it says";
            across.stage = DONE;
            break;
        }
        if (position >= end)
            break;
        uint8_t byte = data[position++];
        if (across.stage != SIZE && --across.left < 0) {
            problem = "a length in a record leads out of it";
        } else if (across.stage == ATTRIBUTES) {
            across.stage = TIMESTAMP; /* the attributes have no meaning yet */
        } else {
            across.zigzag |= (uint64_t)(byte & 127) << across.shift;
            if (byte > 127) {
                across.shift += 7;
                if (across.shift >= (across.stage == TIMESTAMP ? 64 : 32))
                    problem = "a number of too many bytes";
                continue;
            }
            if (across.stage != TIMESTAMP)
                across.zigzag &= 0xFFFFFFFFu;
            int64_t value = (int64_t)(across.zigzag >> 1) ^ -(int64_t)(across.zigzag & 1);
            across.zigzag = 0;
            across.shift = 0;
            problem = take_number(&across, value, most);
        }
    }
    if (problem == NULL)
        memcpy(state.buf, &across, sizeof across);
    PyBuffer_Release(&state);
    PyBuffer_Release(&buffer);
    if (problem != NULL)
        return PyErr_Format(invalid_record, "%s", problem);
    return PyLong_FromLongLong(position);
}

/* --- records that a rule refuses, and the first one of a time ------------------------------------------------------ */

static int64_t sum(int64_t one, int64_t other) /* with the wrap-around of Java's long */
{
    return (int64_t)((uint64_t)one + (uint64_t)other);
}

static int64_t difference(int64_t one, int64_t other)
{
    return (int64_t)((uint64_t)one - (uint64_t)other);
}

static PyObject *examine(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    long long position, count, base_timestamp, now, before, after, seen = 0;
    int keyed, timed;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLLLLLpp:examine", &buffer, &position, &count, &base_timestamp, &now, &before, &after,
                          &keyed, &timed))
        return NULL;

    const int64_t end = buffer.len;
    int64_t greatest = INT64_MIN, timestamp = INT64_MIN;
    int wrong = 0;
    const char *problem = position < 0 ? "a negative position" : NULL;
    while (problem == NULL && wrong == 0 && seen < count) {
        Reader reader = {buffer.buf, position, end};
        Record record;
        if (!is_whole(&reader, &record, INT64_MAX, &problem))
            break;
        position = reader.end;
        seen++;
        timestamp = sum(base_timestamp, record.timestamp_delta);
        if (timestamp > greatest)
            greatest = timestamp;
        if (keyed && record.key_size < 0) {
            wrong = 1;
        } else if (timed && timestamp != -1) {
            int64_t age = difference(now, timestamp);
            wrong = age > before || difference(0, age) > after ? 2 : 0;
        }
    }
    PyBuffer_Release(&buffer);
    if (problem != NULL)
        return PyErr_Format(invalid_record, "%s", problem);
    return Py_BuildValue("(LLLLi)", position, seen, (long long)greatest, (long long)timestamp, wrong);
}

static PyObject *find_timestamp(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    long long count, base_timestamp, target, first_delta, index;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLLL:find_timestamp", &buffer, &count, &base_timestamp, &target, &first_delta))
        return NULL;

    Reader reader = {buffer.buf, 0, buffer.len};
    int64_t timestamp = 0;
    Record record = {0};
    const char *problem = NULL;
    int found = 0;
    /* A batch that is too large for a turn of the event loop is searched on a thread, while the loop runs. */
    PyThreadState *others = buffer.len > 1 << 20 ? PyEval_SaveThread() : NULL;
    for (index = 0; problem == NULL && !found && index < count; index++) {
        problem = next_record(&reader, buffer.len, &record);
        if (problem == NULL) {
            timestamp = sum(base_timestamp, record.timestamp_delta);
            found = timestamp >= target && record.offset_delta >= first_delta;
        }
    }
    if (others != NULL)
        PyEval_RestoreThread(others);
    if (problem == NULL && !found && reader.position != buffer.len)
        problem = "there is more behind the last record";
    PyBuffer_Release(&buffer);
    if (problem != NULL)
        return PyErr_Format(invalid_record, "%s", problem);
    if (!found)
        Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)record.offset_delta, (long long)timestamp);
}

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS, "walk(data, position, expected, count, most): see walk.py"},
    {"walk_across", walk_across, METH_VARARGS, "see walk.py"},
    {"examine", examine, METH_VARARGS, "see walk.py"},
    {"find_timestamp", find_timestamp, METH_VARARGS, "see walk.py"},
    {"put_keys", put_keys, METH_VARARGS, "see dedupe.py"},
    {"survivors", survivors, METH_VARARGS, "see dedupe.py"},
    {"rebase", rebase, METH_VARARGS, "see dedupe.py"},
    {"fill_columns", fill_columns, METH_VARARGS, "see columns.py"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_walk", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__walk(void)
{
    PyObject *record = PyImport_ImportModule(PACKAGE ".record");
    if (record == NULL)
        return NULL;
    invalid_record = PyObject_GetAttrString(record, "InvalidRecord");
    Py_DECREF(record);
    return invalid_record == NULL ? NULL : PyModule_Create(&definition);
}

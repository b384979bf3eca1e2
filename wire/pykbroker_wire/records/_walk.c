/* The compiled twin of `walk_python` in walk.py: same arguments, same results, same errors, same tests.
 *
 * Limited API of CPython 3.11, so that one build serves every later version. Without a compiler pykbroker runs on the
 * Python twin. The module also has the loops of compaction (_dedupe.c) and of columns (_columns.c). */

#include "_reader.h"

#ifndef PACKAGE /* a wheel that has its own copy says its name */
#define PACKAGE "pykbroker_wire.records"
#endif

PyObject *invalid_record;

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
        Record record;
        problem = walk_record(&reader, &record);
        if (problem != NULL)
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

static PyMethodDef methods[] = {
    {"walk", walk, METH_VARARGS, "walk(data, position, expected, count): see walk.py"},
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

/* The compiled twins of the loops in dedupe.py: same arguments, same results, same errors, same tests. Only the hash
 * differs (SipHash-2-4 of 128 bits, by its authors' description), because the other twin never reads this one's tables.
 *
 * No byte outside of the buffers is read: records through `_reader.h`, slots by an index below the table's count. */

#include "_reader.h"
#include <string.h>

#define SLOT_SIZE 24

/* Native byte order, because a table lives only as long as its process. */
typedef struct {
    uint64_t hash[2];
    int64_t after; /* the offset + 1; 0 in a free slot */
} Slot;

typedef struct {
    uint8_t *slots;
    uint64_t count;
    uint64_t seed[2];
} Table;

/* --- hash ---------------------------------------------------------------------------------------------------------- */

#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))

#define ROUND                                                                                                          \
    do {                                                                                                               \
        v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                                                  \
        v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                                       \
        v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                                       \
        v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32);                                                  \
    } while (0)

static uint64_t little_endian(const uint8_t *bytes, int count)
{
    uint64_t value = 0;
    while (count > 0)
        value = value << 8 | bytes[--count];
    return value;
}

static void hash_key(const uint64_t seed[2], const uint8_t *key, int64_t size, uint64_t hash[2])
{
    uint64_t v0 = seed[0] ^ 0x736f6d6570736575u, v1 = seed[1] ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t v2 = seed[0] ^ 0x6c7967656e657261u, v3 = seed[1] ^ 0x7465646279746573u;
    int64_t left = size;
    for (; left >= 8; left -= 8, key += 8) {
        uint64_t word = little_endian(key, 8);
        v3 ^= word;
        ROUND;
        ROUND;
        v0 ^= word;
    }
    uint64_t last = (uint64_t)size << 56 | little_endian(key, (int)left);
    v3 ^= last;
    ROUND;
    ROUND;
    v0 ^= last;
    v2 ^= 0xee;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    hash[0] = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    hash[1] = v0 ^ v1 ^ v2 ^ v3;
}

/* --- table --------------------------------------------------------------------------------------------------------- */

/* Return the slot with the key, or the free one for it; NULL if the table is full of other keys. */
static uint8_t *find(const Table *table, const uint8_t *key, int64_t size, Slot *slot)
{
    uint64_t hash[2];
    hash_key(table->seed, key, size, hash);
    uint64_t index = hash[0] % table->count;
    for (uint64_t looked = 0; looked < table->count; looked++) {
        uint8_t *place = table->slots + index * SLOT_SIZE;
        memcpy(slot, place, SLOT_SIZE);
        if (slot->after == 0) {
            memcpy(slot->hash, hash, sizeof hash);
            return place;
        }
        if (slot->hash[0] == hash[0] && slot->hash[1] == hash[1])
            return place;
        if (++index == table->count)
            index = 0;
    }
    return NULL;
}

static int open_table(Table *table, Py_buffer *slots, Py_buffer *seed)
{
    if (slots->len < SLOT_SIZE || slots->len % SLOT_SIZE || seed->len != 16) {
        PyErr_SetString(PyExc_ValueError, "a table has slots of 24 bytes and a seed of 16");
        return 0;
    }
    table->slots = slots->buf;
    table->count = (uint64_t)slots->len / SLOT_SIZE;
    table->seed[0] = little_endian(seed->buf, 8);
    table->seed[1] = little_endian((const uint8_t *)seed->buf + 8, 8);
    return 1;
}

/* --- records ------------------------------------------------------------------------------------------------------- */

static PyObject *invalid(long long index, const char *problem)
{
    return PyErr_Format(invalid_record, "record %lld: %s", index, problem);
}

PyObject *put_keys(PyObject *module, PyObject *args)
{
    Py_buffer slots, seed, buffer;
    long long room, count, base_offset, start_offset;
    (void)module;
    if (!PyArg_ParseTuple(args, "w*y*Ly*LLL:put_keys", &slots, &seed, &room, &buffer, &count, &base_offset, &start_offset))
        return NULL;

    Table table;
    Reader reader = {buffer.buf, 0, buffer.len};
    PyObject *result = NULL;
    const char *problem = NULL;
    long long index = 0, added = 0, reached = start_offset - 1;
    int full = 0;
    if (!open_table(&table, &slots, &seed))
        goto done;
    for (; problem == NULL && index < count; index++) {
        Record record;
        problem = next_record(&reader, buffer.len, &record);
        if (problem != NULL)
            break;
        int64_t offset = base_offset + record.offset_delta;
        if (offset < start_offset)
            continue;
        if (record.key_size >= 0) {
            Slot slot;
            uint8_t *place = find(&table, reader.data + record.key, record.key_size, &slot);
            if (place == NULL || (slot.after == 0 && added >= room)) {
                full = 1;
                break;
            }
            added += slot.after == 0;
            slot.after = offset + 1;
            memcpy(place, &slot, SLOT_SIZE);
        }
        reached = offset;
    }
    if (problem == NULL && !full && reader.position != buffer.len)
        problem = "there is more behind it";
    result = problem != NULL ? invalid(index, problem)
                             : Py_BuildValue("(LLL)", added, index, reached);
done:
    PyBuffer_Release(&slots);
    PyBuffer_Release(&seed);
    PyBuffer_Release(&buffer);
    return result;
}

/* Append (start, end) to a list. Return 0 with an exception set if that fails. */
static int add_run(PyObject *runs, int64_t start, int64_t end)
{
    PyObject *run = Py_BuildValue("(LL)", (long long)start, (long long)end);
    if (run == NULL)
        return 0;
    int failed = PyList_Append(runs, run);
    Py_DECREF(run);
    return !failed;
}

PyObject *survivors(PyObject *module, PyObject *args)
{
    Py_buffer slots, seed, buffer;
    long long count, base_offset, latest_offset;
    int drop_tombstones;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*LLLp:survivors", &slots, &seed, &buffer, &count, &base_offset, &latest_offset,
                          &drop_tombstones))
        return NULL;

    Table table;
    Reader reader = {buffer.buf, 0, buffer.len};
    const char *problem = NULL;
    long long index = 0, kept = 0, tombstones = 0, keyless = 0;
    int64_t first = 0, high = INT64_MIN, run = -1;
    PyObject *result = NULL, *runs = PyList_New(0);
    if (runs == NULL || !open_table(&table, &slots, &seed))
        goto done;
    for (; problem == NULL && index < count; index++) {
        Record record;
        int64_t start = reader.position;
        int survives = 1;
        problem = next_record(&reader, buffer.len, &record);
        if (problem != NULL)
            break;
        int64_t offset = base_offset + record.offset_delta;
        if (offset <= latest_offset) {
            if (record.key_size < 0) {
                keyless++;
                survives = 0;
            } else {
                Slot slot;
                uint8_t *place = find(&table, reader.data + record.key, record.key_size, &slot);
                survives = (place == NULL || offset >= slot.after - 1) && (record.value_size >= 0 || !drop_tombstones);
            }
        }
        if (survives) {
            if (kept == 0)
                first = record.timestamp_delta;
            if (record.timestamp_delta > high)
                high = record.timestamp_delta;
            kept++;
            tombstones += record.value_size < 0;
            if (run < 0)
                run = start;
        } else if (run >= 0) {
            if (!add_run(runs, run, start))
                goto done;
            run = -1;
        }
    }
    if (problem == NULL && reader.position != buffer.len)
        problem = "there is more behind it";
    if (problem != NULL)
        invalid(index, problem);
    else if (run < 0 || add_run(runs, run, reader.position))
        result = Py_BuildValue("(OLLLLL)", runs, kept, tombstones, keyless, (long long)first,
                               (long long)(kept ? high : 0));
done:
    Py_XDECREF(runs);
    PyBuffer_Release(&slots);
    PyBuffer_Release(&seed);
    PyBuffer_Release(&buffer);
    return result;
}

static uint8_t *put_varint(uint8_t *out, int64_t value)
{
    uint64_t zigzag = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    for (; zigzag > 127; zigzag >>= 7)
        *out++ = (uint8_t)(zigzag & 127) | 128;
    *out++ = (uint8_t)zigzag;
    return out;
}

PyObject *rebase(PyObject *module, PyObject *args)
{
    Py_buffer buffer;
    long long count, shift, index = 0;
    int renumber;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLp:rebase", &buffer, &count, &shift, &renumber))
        return NULL;

    Reader reader = {buffer.buf, 0, buffer.len};
    PyObject *result = NULL;
    const char *problem = count < 0 || count > buffer.len ? "no such count" : NULL;
    /* A timestamp delta grows from 1 byte to 10 at most, an offset delta and the record's length from 1 to 5. */
    uint8_t *start = PyMem_Malloc(problem == NULL ? (size_t)buffer.len + (size_t)count * 17 + 1 : 1), *out = start;
    if (start == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    /* A whole batch may have 128 MiB. `bytes` never change, so other threads may run during the loop. */
    PyThreadState *others = buffer.len > 1 << 20 && PyBytes_Check(buffer.obj) ? PyEval_SaveThread() : NULL;
    for (; problem == NULL && index < count; index++) {
        Record record;
        uint8_t deltas[20];
        problem = next_record(&reader, buffer.len, &record);
        if (problem != NULL)
            break;
        uint8_t *after = put_varint(deltas, (int64_t)((uint64_t)record.timestamp_delta + (uint64_t)shift));
        Reader rest = {reader.data, record.after_timestamp, reader.end};
        if (renumber) {
            int64_t old;
            varint(&rest, 32, &old);
            after = put_varint(after, index);
        }
        int64_t size = after - deltas, left = rest.end - rest.position;
        out = put_varint(out, 1 + size + left);
        *out++ = 0;
        memcpy(out, deltas, (size_t)size);
        memcpy(out + size, rest.data + rest.position, (size_t)left);
        out += size + left;
    }
    if (problem == NULL && reader.position != buffer.len)
        problem = "there is more behind it";
    if (others != NULL)
        PyEval_RestoreThread(others);
    result = problem != NULL ? invalid(index, problem) : PyBytes_FromStringAndSize((char *)start, out - start);
done:
    PyMem_Free(start);
    PyBuffer_Release(&buffer);
    return result;
}

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=False, binding=False
"""The loops over records, compiled. `kernels_py` is the twin, and documents each.

The C functions read raw memory, and check every length before they use it. They return 0 or a
number from `Fault`. Only the functions that Python calls, at the end, raise.
On more than RELEASE_ABOVE bytes they run without the interpreter's lock.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_SET_ITEM
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from zlib import crc32 as _zlib_crc32

from ..checksum import crc32c as _crc32c
from ..errors import CorruptMessage, InvalidRecord, MessageTooLarge
from . import layout
from .column_buffers import BrokenBatch, EncodedRows
from .layout import Batch, Findings, Region, Rewritten
from .plan import Prepared, PreparedBatch

IMPLEMENTATION = "compiled"
INTERFACE = 6  # that of `kernels_py` which this module was written against

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define tl_swap32(x) __builtin_bswap32(x)
    #define tl_swap64(x) __builtin_bswap64(x)
    #else
    #error "the kernels are written for gcc and clang; without them the Python twin serves"
    #endif
    #define tl_new(kind, size) PyType_GenericAlloc((PyTypeObject *)(kind), (size))
    #if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    #undef tl_swap32
    #undef tl_swap64
    #define tl_swap32(x) (x)
    #define tl_swap64(x) (x)
    #endif
    """
    object tl_new(object, Py_ssize_t)
    uint32_t tl_swap32(uint32_t) nogil
    uint64_t tl_swap64(uint64_t) nogil

cdef enum:
    RELEASE_ABOVE = 65536
    OWN_CRC_BELOW = 512
    PREFIX = 12
    V2_HEADER = 61
    NO_TIMESTAMP = -1

cdef enum:
    HAS_MISSING = 1
    GAPS = 2
    HAS_HEADERS = 4
    NULL_KEY = 8
    OUTSIDE = 16
    NESTED = 32

cdef enum Fault:
    NO_FAULT = 0
    NUMBER_CUT
    NUMBER_LONG
    COUNT_NEGATIVE
    RECORD_LONG
    FIELD_LENGTH
    FIELD_LONG
    HEADERS_NEGATIVE
    HEADER_NULL
    RECORD_NOT_FILLED
    BATCH_NOT_FILLED
    MESSAGE_CUT
    MESSAGE_SIZE
    MESSAGE_MAGIC
    MESSAGE_NOT_FILLED
    MESSAGE_CRC
    TOO_LARGE
    NO_MEMORY

cdef tuple FAULTS = (
    "",
    layout.NUMBER_CUT,
    layout.NUMBER_LONG,
    layout.COUNT_NEGATIVE,
    layout.RECORD_LONG,
    layout.FIELD_LENGTH,
    layout.FIELD_LONG,
    layout.HEADERS_NEGATIVE,
    layout.HEADER_NULL,
    layout.RECORD_NOT_FILLED,
    layout.BATCH_NOT_FILLED,
    layout.MESSAGE_CUT,
    layout.MESSAGE_SIZE,
    layout.MESSAGE_MAGIC,
    layout.MESSAGE_NOT_FILLED,
    layout.MESSAGE_CRC,
    layout.TOO_LARGE,
)

ctypedef const uint8_t *Bytes

cdef struct Raw:
    int64_t offset
    int64_t timestamp
    Bytes key
    Bytes value
    Bytes headers
    int32_t key_size  # -1: null
    int32_t value_size
    int32_t header_count
    Py_ssize_t headers_size
    int nested

cdef struct Source:
    Bytes data
    Py_ssize_t position
    Py_ssize_t end
    int magic
    int64_t left  # records a format-2 batch still promises
    int64_t base_offset
    int64_t base_timestamp
    int stamped  # `stamp` replaces the time of every record
    int64_t stamp
    int check_crc

cdef struct Output:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room
    Py_ssize_t limit

cdef struct Offender:
    int64_t index
    int64_t timestamp
    int outside


# --- numbers -------------------------------------------------------------------------------------


cdef inline int get16(Bytes p) noexcept nogil:
    """Reads a signed number of two bytes."""
    cdef int value = p[0] << 8 | p[1]
    return value - 65536 if value > 32767 else value


cdef inline uint32_t get32(Bytes p) noexcept nogil:
    cdef uint32_t value
    memcpy(&value, p, 4)
    return tl_swap32(value)


cdef inline int64_t get64(Bytes p) noexcept nogil:
    cdef uint64_t value
    memcpy(&value, p, 8)
    return <int64_t>tl_swap64(value)


cdef inline void put32(uint8_t *p, uint32_t value) noexcept nogil:
    value = tl_swap32(value)
    memcpy(p, &value, 4)


cdef inline void put64(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint64_t value = tl_swap64(<uint64_t>number)
    memcpy(p, &value, 8)


cdef inline int64_t add(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline int64_t subtract(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a - <uint64_t>b)


cdef inline int varint(Bytes data, Py_ssize_t *position, Py_ssize_t end, int32_t *out) noexcept nogil:
    cdef uint32_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef Py_ssize_t at = position[0]
    while True:
        if at >= end:
            return NUMBER_CUT
        byte = data[at]
        at += 1
        value |= <uint32_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int32_t>((value >> 1) ^ (0 - (value & 1)))
            position[0] = at
            return NO_FAULT
        shift += 7
        if shift > 28:
            return NUMBER_LONG


cdef inline int varlong(Bytes data, Py_ssize_t *position, Py_ssize_t end, int64_t *out) noexcept nogil:
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef Py_ssize_t at = position[0]
    while True:
        if at >= end:
            return NUMBER_CUT
        byte = data[at]
        at += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            out[0] = <int64_t>((value >> 1) ^ (0 - (value & 1)))
            position[0] = at
            return NO_FAULT
        shift += 7
        if shift > 63:
            return NUMBER_LONG


cdef inline int varint_size(int64_t number) noexcept nogil:
    cdef uint64_t value = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    cdef int size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *p, int64_t number) noexcept nogil:
    cdef uint64_t value = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while value > 0x7F:
        p[0] = <uint8_t>(value & 0x7F) | 0x80
        p += 1
        value >>= 7
    p[0] = <uint8_t>value
    return p + 1


# --- CRC-32, eight bytes a step ------------------------------------------------------------------

cdef uint32_t CRC_TABLE[8][256]


cdef void fill_crc_table() noexcept:
    cdef uint32_t value
    cdef int i, bit, row
    for i in range(256):
        value = <uint32_t>i
        for bit in range(8):
            value = (value >> 1) ^ (<uint32_t>0xEDB88320U if value & 1 else <uint32_t>0)
        CRC_TABLE[0][i] = value
    for i in range(256):
        value = CRC_TABLE[0][i]
        for row in range(1, 8):
            value = (value >> 8) ^ CRC_TABLE[0][value & 0xFF]
            CRC_TABLE[row][i] = value


fill_crc_table()


cdef uint32_t crc32_of(Bytes p, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = <uint32_t>0xFFFFFFFFU
    while size >= 8:
        crc = (
            CRC_TABLE[7][(crc ^ p[0]) & 0xFF]
            ^ CRC_TABLE[6][((crc >> 8) ^ p[1]) & 0xFF]
            ^ CRC_TABLE[5][((crc >> 16) ^ p[2]) & 0xFF]
            ^ CRC_TABLE[4][((crc >> 24) ^ p[3]) & 0xFF]
            ^ CRC_TABLE[3][p[4]]
            ^ CRC_TABLE[2][p[5]]
            ^ CRC_TABLE[1][p[6]]
            ^ CRC_TABLE[0][p[7]]
        )
        p += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ CRC_TABLE[0][(crc ^ p[0]) & 0xFF]
        p += 1
        size -= 1
    return crc ^ <uint32_t>0xFFFFFFFFU


# --- reading records -----------------------------------------------------------------------------


cdef inline int field(Bytes data, Py_ssize_t *position, Py_ssize_t end, Bytes *out, int32_t *size) noexcept nogil:
    cdef int fault = varint(data, position, end, size)
    if fault:
        return fault
    out[0] = data + position[0]
    if size[0] < 0:
        return NO_FAULT if size[0] == -1 else FIELD_LENGTH
    if size[0] > end - position[0]:
        return FIELD_LONG
    position[0] += size[0]
    return NO_FAULT


cdef inline int next_v2(Source *source, Raw *raw) noexcept nogil:
    cdef Bytes data = source.data
    cdef Py_ssize_t position = source.position
    cdef Py_ssize_t stop
    cdef int32_t length = 0, offset_delta = 0, i
    cdef int64_t delta = 0
    cdef Bytes ignored
    cdef int fault = varint(data, &position, source.end, &length)
    if fault:
        return fault
    if length < 0 or length > source.end - position:
        return RECORD_LONG
    stop = position + length
    position += 1  # attributes: none are defined
    fault = varlong(data, &position, stop, &delta)
    if fault:
        return fault
    fault = varint(data, &position, stop, &offset_delta)
    if fault:
        return fault
    fault = field(data, &position, stop, &raw.key, &raw.key_size)
    if fault:
        return fault
    fault = field(data, &position, stop, &raw.value, &raw.value_size)
    if fault:
        return fault
    fault = varint(data, &position, stop, &raw.header_count)
    if fault:
        return fault
    if raw.header_count < 0:
        return HEADERS_NEGATIVE
    raw.headers = data + position
    raw.headers_size = stop - position
    for i in range(raw.header_count):
        fault = field(data, &position, stop, &ignored, &length)
        if fault:
            return fault
        if length < 0:
            return HEADER_NULL
        fault = field(data, &position, stop, &ignored, &length)
        if fault:
            return fault
    if position != stop:
        return RECORD_NOT_FILLED
    raw.offset = offset_delta
    raw.timestamp = add(source.base_timestamp, delta)
    raw.nested = 0
    source.position = stop
    source.left -= 1
    return NO_FAULT


cdef inline int message_field(Bytes data, Py_ssize_t *position, Py_ssize_t end, Bytes *out, int32_t *size) noexcept nogil:
    if end - position[0] < 4:
        return MESSAGE_CUT
    size[0] = <int32_t>get32(data + position[0])
    position[0] += 4
    out[0] = data + position[0]
    if size[0] < 0:
        return NO_FAULT if size[0] == -1 else FIELD_LENGTH
    if size[0] > end - position[0]:
        return FIELD_LONG
    position[0] += size[0]
    return NO_FAULT


cdef inline int next_message(Source *source, Raw *raw) noexcept nogil:
    cdef Bytes data = source.data
    cdef Py_ssize_t position = source.position
    cdef Py_ssize_t stop
    cdef int32_t size
    cdef int fault
    if source.end - position < PREFIX:
        return MESSAGE_CUT
    size = <int32_t>get32(data + position + 8)
    if size < 14 or size > source.end - position - PREFIX:
        return MESSAGE_SIZE
    if data[position + 16] != source.magic:
        return MESSAGE_MAGIC
    if source.magic and size < 22:
        return MESSAGE_SIZE
    stop = position + PREFIX + size
    if source.check_crc:
        if get32(data + position + 12) != crc32_of(data + position + 16, size - 4):
            return MESSAGE_CRC
    raw.offset = get64(data + position)
    raw.timestamp = get64(data + position + 18) if source.magic else NO_TIMESTAMP
    raw.nested = data[position + 17] & 7
    raw.header_count = 0
    raw.headers_size = 0
    raw.headers = NULL
    position += 26 if source.magic else 18
    fault = message_field(data, &position, stop, &raw.key, &raw.key_size)
    if fault:
        return fault
    fault = message_field(data, &position, stop, &raw.value, &raw.value_size)
    if fault:
        return fault
    if position != stop:
        return MESSAGE_NOT_FILLED
    source.position = stop
    return NO_FAULT


cdef inline int begin(Source *source) noexcept nogil:
    return COUNT_NEGATIVE if source.magic == 2 and source.left < 0 else NO_FAULT


cdef inline int advance(Source *source, Raw *raw, int *fault) noexcept nogil:
    """Reads the next record; returns 0 at the end or at a fault."""
    if source.magic == 2:
        if source.left == 0:
            fault[0] = NO_FAULT if source.position == source.end else BATCH_NOT_FILLED
            return 0
        fault[0] = next_v2(source, raw)
    else:
        if source.position == source.end:
            fault[0] = NO_FAULT
            return 0
        fault[0] = next_message(source, raw)
    return fault[0] == NO_FAULT


# --- the loops -----------------------------------------------------------------------------------

cdef struct Found:
    int64_t count
    int64_t first_offset
    int64_t last_offset
    int64_t largest
    int64_t first
    int has_time
    int flags


cdef inline int quick_varint(Bytes *at, Bytes end, int32_t *out) noexcept nogil:
    """Reads a varint; most have one or two bytes."""
    cdef Bytes p = at[0]
    cdef uint32_t value
    cdef Py_ssize_t position = 0
    cdef int fault
    if end - p >= 2:
        if p[0] < 0x80:
            out[0] = <int32_t>((p[0] >> 1) ^ (0 - (p[0] & 1)))
            at[0] = p + 1
            return NO_FAULT
        if p[1] < 0x80:
            value = (p[0] & 0x7F) | <uint32_t>p[1] << 7
            out[0] = <int32_t>((value >> 1) ^ (0 - (value & 1)))
            at[0] = p + 2
            return NO_FAULT
    fault = varint(p, &position, end - p, out)
    at[0] = p + position
    return fault


cdef inline int quick_field(Bytes *at, Bytes end, int32_t *size) noexcept nogil:
    cdef int fault = quick_varint(at, end, size)
    if fault:
        return fault
    if size[0] < 0:
        return NO_FAULT if size[0] == -1 else FIELD_LENGTH
    if size[0] > end - at[0]:
        return FIELD_LONG
    at[0] += size[0]
    return NO_FAULT


cdef int examine_v2(
    Source *source, int64_t minimum, int64_t maximum, Found *found
) noexcept nogil:
    """`examine_loop` for format 2, which most batches are: pointers instead of a Raw."""
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Bytes p = source.data + source.position
    cdef Bytes end = source.data + source.end
    cdef Bytes stop
    cdef Py_ssize_t used
    cdef int32_t length = 0, offset = 0, key_size = 0, size = 0, headers = 0, i
    cdef int64_t number, count = source.left, delta = 0, timestamp, largest = NO_TIMESTAMP
    cdef int64_t base_timestamp = source.base_timestamp
    cdef int flags = 0, has_time = 0, fault
    found.first_offset = found.last_offset = -1
    found.first = NO_TIMESTAMP
    if count < 0:
        return COUNT_NEGATIVE
    for number in range(count):
        fault = quick_varint(&p, end, &length)
        if fault:
            return fault
        if length < 0 or length > end - p:
            return RECORD_LONG
        stop = p + length
        used = 1  # attributes: none are defined
        fault = varlong(p, &used, length, &delta)
        if fault:
            return fault
        p += used
        fault = quick_varint(&p, stop, &offset)
        if fault:
            return fault
        fault = quick_field(&p, stop, &key_size)
        if fault:
            return fault
        fault = quick_field(&p, stop, &size)
        if fault:
            return fault
        fault = quick_varint(&p, stop, &headers)
        if fault:
            return fault
        if headers < 0:
            return HEADERS_NEGATIVE
        if p != stop:
            flags |= HAS_HEADERS
        for i in range(headers):
            fault = quick_field(&p, stop, &size)
            if fault:
                return fault
            if size < 0:
                return HEADER_NULL
            fault = quick_field(&p, stop, &size)
            if fault:
                return fault
        if p != stop:
            return RECORD_NOT_FILLED
        if key_size < 0:
            flags |= NULL_KEY
        if offset != number:
            flags |= GAPS
        if number == 0:
            found.first_offset = add(base_offset, offset)
        timestamp = stamp if stamped else add(base_timestamp, delta)
        if timestamp == NO_TIMESTAMP:
            flags |= HAS_MISSING
            continue
        if not has_time:
            has_time = 1
            found.first = timestamp
            largest = timestamp
        elif timestamp > largest:
            largest = timestamp
        if timestamp < minimum or timestamp > maximum:
            flags |= OUTSIDE
    if p != end:
        return BATCH_NOT_FILLED
    if count:
        found.last_offset = add(base_offset, offset)
    found.count = count
    found.largest = largest
    found.has_time = has_time
    found.flags = flags
    return NO_FAULT


cdef int examine_loop(
    Source *source, int64_t minimum, int64_t maximum, Found *found
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault
    cdef int flags = 0, has_time = 0
    cdef int64_t number = 0, timestamp, largest = NO_TIMESTAMP
    found.first_offset = found.last_offset = -1
    found.first = NO_TIMESTAMP
    if source.magic == 2:
        return examine_v2(source, minimum, maximum, found)
    while advance(source, &raw, &fault):
        timestamp = stamp if stamped else raw.timestamp
        found.last_offset = add(base_offset, raw.offset)
        if number == 0:
            found.first_offset = found.last_offset
        if raw.offset != number:
            flags |= GAPS
        if timestamp == NO_TIMESTAMP:
            flags |= HAS_MISSING
        else:
            if not has_time:
                has_time = 1
                found.first = timestamp
                largest = timestamp
            elif timestamp > largest:
                largest = timestamp
            if timestamp < minimum or timestamp > maximum:
                flags |= OUTSIDE
        if raw.key_size < 0:
            flags |= NULL_KEY
        if raw.headers_size:
            flags |= HAS_HEADERS
        if raw.nested:
            flags |= NESTED
        number += 1
    found.count = number
    found.largest = largest
    found.has_time = has_time
    found.flags = flags
    return fault


cdef int find_loop(
    Source *source, int64_t wanted, int64_t min_offset, int64_t *offset, int64_t *timestamp,
    int *hit,
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(source)
    hit[0] = 0
    if fault:
        return fault
    while advance(source, &raw, &fault):
        timestamp[0] = stamp if stamped else raw.timestamp
        offset[0] = add(base_offset, raw.offset)
        if timestamp[0] != NO_TIMESTAMP and timestamp[0] >= wanted and offset[0] >= min_offset:
            hit[0] = 1
            return NO_FAULT
    return fault


cdef int offenders_loop(
    Source *source, int64_t minimum, int64_t maximum, int keyed, Offender *named, int64_t room,
    int64_t *outside, int64_t *keyless,
) noexcept nogil:
    cdef Raw raw
    cdef int fault = begin(source)
    cdef int64_t number = 0, count = 0
    cdef int late
    outside[0] = keyless[0] = 0
    if fault:
        return fault
    while advance(source, &raw, &fault):
        late = raw.timestamp != NO_TIMESTAMP and (raw.timestamp < minimum or raw.timestamp > maximum)
        if late or (keyed and raw.key_size < 0):
            if late:
                outside[0] += 1
            else:
                keyless[0] += 1
            if count < room:
                named[count].index = number
                named[count].timestamp = raw.timestamp
                named[count].outside = late
                count += 1
        number += 1
    return fault


cdef inline int make_room(Output *out, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t room
    cdef uint8_t *grown
    if out.size + more <= out.room:
        return NO_FAULT
    if out.size + more > out.limit:
        return TOO_LARGE
    room = out.room + (out.room >> 1) + more
    grown = <uint8_t *>realloc(out.data, room)
    if grown == NULL:
        return NO_MEMORY
    out.data = grown
    out.room = room
    return NO_FAULT


cdef inline int write_v2(Output *out, Raw *raw, int64_t offset_delta, int64_t time_delta) noexcept nogil:
    cdef int fault
    cdef uint8_t *p
    cdef int64_t size = (
        1
        + varint_size(time_delta)
        + varint_size(offset_delta)
        + varint_size(raw.key_size)
        + varint_size(raw.value_size)
        + varint_size(raw.header_count)
        + raw.headers_size
    )
    if raw.key_size > 0:
        size += raw.key_size
    if raw.value_size > 0:
        size += raw.value_size
    fault = make_room(out, size + 10)
    if fault:
        return fault
    p = put_varint(out.data + out.size, size)
    p[0] = 0
    p = put_varint(p + 1, time_delta)
    p = put_varint(p, offset_delta)
    p = put_varint(p, raw.key_size)
    if raw.key_size > 0:
        memcpy(p, raw.key, raw.key_size)
        p += raw.key_size
    p = put_varint(p, raw.value_size)
    if raw.value_size > 0:
        memcpy(p, raw.value, raw.value_size)
        p += raw.value_size
    p = put_varint(p, raw.header_count)
    if raw.headers_size:
        memcpy(p, raw.headers, raw.headers_size)
        p += raw.headers_size
    out.size = p - out.data
    return NO_FAULT


cdef inline int write_message(
    Output *out, Raw *raw, int magic, int64_t offset, int attributes, int64_t timestamp
) noexcept nogil:
    cdef int fault
    cdef uint8_t *start
    cdef uint8_t *p
    cdef int64_t size = 22 if magic else 14
    if raw.key_size > 0:
        size += raw.key_size
    if raw.value_size > 0:
        size += raw.value_size
    fault = make_room(out, size + PREFIX)
    if fault:
        return fault
    start = out.data + out.size
    put64(start, offset)
    put32(start + 8, <uint32_t>size)
    start[16] = <uint8_t>magic
    start[17] = <uint8_t>attributes
    p = start + 18
    if magic:
        put64(p, timestamp)
        p += 8
    put32(p, <uint32_t>raw.key_size)
    p += 4
    if raw.key_size > 0:
        memcpy(p, raw.key, raw.key_size)
        p += raw.key_size
    put32(p, <uint32_t>raw.value_size)
    p += 4
    if raw.value_size > 0:
        memcpy(p, raw.value, raw.value_size)
        p += raw.value_size
    put32(start + 12, crc32_of(start + 16, p - start - 16))
    out.size = p - out.data
    return NO_FAULT


cdef struct Written:
    int64_t count
    int64_t first_offset
    int64_t last_offset
    int64_t base_timestamp


cdef int rewrite_loop(
    Source *source, int target_magic, int renumber, int64_t next_offset, int64_t min_offset,
    int relative, Output *out, Written *to,
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(source)
    cdef int64_t offset, timestamp
    cdef int attributes = 8 if stamped and target_magic == 1 else 0
    to.count = 0
    to.first_offset = to.last_offset = -1
    to.base_timestamp = NO_TIMESTAMP
    if fault:
        return fault
    while advance(source, &raw, &fault):
        offset = add(base_offset, raw.offset)
        if offset < min_offset:
            continue
        if renumber:
            offset = add(next_offset, to.count)
        timestamp = stamp if stamped else raw.timestamp
        if to.count == 0:
            to.first_offset = offset
            to.base_timestamp = timestamp
        to.last_offset = offset
        to.count += 1
        if target_magic == 2:
            fault = write_v2(
                out, &raw, subtract(offset, to.first_offset),
                subtract(timestamp, to.base_timestamp),
            )
        else:
            if relative:
                offset = subtract(offset, to.first_offset)
            fault = write_message(out, &raw, target_magic, offset, attributes, timestamp)
        if fault:
            return fault
    return fault


cdef int stamp_loop(
    uint8_t *data, Py_ssize_t position, Py_ssize_t end, int64_t offset, int stamped, int64_t stamp
) noexcept nogil:
    cdef int32_t size
    while position < end:
        if end - position < PREFIX:
            return MESSAGE_CUT
        size = <int32_t>get32(data + position + 8)
        if size < 14 or size > end - position - PREFIX:
            return MESSAGE_SIZE
        if data[position + 16] and size < 22:
            return MESSAGE_SIZE
        put64(data + position, offset)
        if stamped and data[position + 16]:
            data[position + 17] |= 8
            put64(data + position + 18, stamp)
            put32(data + position + 12, crc32_of(data + position + 16, size - 4))
        position += PREFIX + size
        offset = add(offset, 1)
    return NO_FAULT


# --- functions for Python ------------------------------------------------------------------------


cdef object broken(int fault):
    if fault == NO_MEMORY:
        return MemoryError()
    if fault == MESSAGE_CRC:
        return CorruptMessage(FAULTS[fault])
    if fault == TOO_LARGE:
        return MessageTooLarge(FAULTS[fault])
    return InvalidRecord(FAULTS[fault])


cdef inline object new_tuple(object cls, Py_ssize_t size):
    return tl_new(cls, size)


cdef inline void put(object target, Py_ssize_t index, object item):
    Py_INCREF(item)
    PyTuple_SET_ITEM(target, index, item)


cdef inline int64_t item(object source, Py_ssize_t index) except? -1:
    """Returns an integer of a tuple whose shape the caller knows."""
    return <object>PyTuple_GET_ITEM(source, index)


cdef int open_source(
    Source *source, Py_buffer *view, Py_ssize_t start, Py_ssize_t end, int magic, int64_t count,
    int64_t base_offset, int64_t base_timestamp,
) except -1:
    """Describes records in a buffer that is held; their own times count."""
    source.data = <Bytes>view.buf
    source.position = start
    source.end = end
    source.magic = magic
    source.left = count
    source.base_offset = base_offset
    source.base_timestamp = base_timestamp
    source.stamped = 0
    source.stamp = NO_TIMESTAMP
    source.check_crc = 0
    if not 0 <= start <= end <= view.len:
        raise ValueError(f"{start}..{end} is not within {view.len} bytes")
    return 0


cdef int open_region(Source *source, Py_buffer *view, region) except -1:
    """Describes the records of a Region, and holds its buffer, which the caller must release."""
    if type(region) is not Region:
        raise TypeError(f"a Region is needed, not {type(region).__name__}")
    PyObject_GetBuffer(<object>PyTuple_GET_ITEM(region, 0), view, PyBUF_SIMPLE)
    try:
        open_source(
            source, view, item(region, 1), item(region, 2), <int>item(region, 3), item(region, 4),
            item(region, 5), item(region, 6),
        )
        if <object>PyTuple_GET_ITEM(region, 7) is not None:
            source.stamped = 1
            source.stamp = item(region, 7)
    except BaseException:
        PyBuffer_Release(view)
        raise
    return 0


cdef object v2_batch(Bytes p, Py_ssize_t position, int32_t size):
    cdef int64_t base = get64(p)
    cdef object batch = new_tuple(Batch, 13)
    put(batch, 0, position)
    put(batch, 1, <Py_ssize_t>size + PREFIX)
    put(batch, 2, base)
    put(batch, 3, add(base, <int32_t>get32(p + 23)))
    put(batch, 4, 2)
    put(batch, 5, get16(p + 21))
    put(batch, 6, <int32_t>get32(p + 12))
    put(batch, 7, get64(p + 27))
    put(batch, 8, get64(p + 35))
    put(batch, 9, get64(p + 43))
    put(batch, 10, get16(p + 51))
    put(batch, 11, <int32_t>get32(p + 53))
    put(batch, 12, <int32_t>get32(p + 57))
    return batch


cdef object message_batch(Bytes p, Py_ssize_t position, int32_t size):
    cdef int64_t offset = get64(p)
    cdef int64_t timestamp = get64(p + 18) if p[16] else NO_TIMESTAMP
    cdef int plain = not p[17] & 7
    cdef object batch = new_tuple(Batch, 13)
    put(batch, 0, position)
    put(batch, 1, <Py_ssize_t>size + PREFIX)
    put(batch, 2, offset if plain else <int64_t>-1)
    put(batch, 3, offset)
    put(batch, 4, <int>p[16])
    put(batch, 5, <int>p[17])
    put(batch, 6, -1)
    put(batch, 7, timestamp)
    put(batch, 8, timestamp)
    put(batch, 9, -1)
    put(batch, 10, -1)
    put(batch, 11, -1)
    put(batch, 12, 1 if plain else -1)
    return batch


cdef int whole(Bytes data, Py_ssize_t position, Py_ssize_t end, int32_t *size) except -1:
    """Returns whether a whole batch begins at `position`; its size goes to `size`."""
    cdef uint8_t magic
    if end - position < PREFIX:
        return 0
    size[0] = <int32_t>get32(data + position + 8)
    if size[0] < 14:
        raise CorruptMessage(f"a batch at byte {position} claims {size[0]} bytes")
    if size[0] > end - position - PREFIX:
        return 0
    magic = data[position + 16]
    if magic > 2:
        raise CorruptMessage(f"a batch at byte {position} has magic {magic}")
    if size[0] < (49 if magic == 2 else 22 if magic else 14):
        raise CorruptMessage(f"a batch at byte {position} claims {size[0]} bytes")
    return 1


def scan(data, Py_ssize_t start, Py_ssize_t end):
    """See kernels_py.scan."""
    cdef Py_buffer view
    cdef Bytes p
    cdef int32_t size
    cdef list batches = []
    cdef Py_ssize_t position = start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"{start}..{end} is not within {view.len} bytes")
        p = <Bytes>view.buf
        while whole(p, position, end, &size):
            if p[position + 16] == 2:
                batches.append(v2_batch(p + position, position, size))
            else:
                batches.append(message_batch(p + position, position, size))
            position += PREFIX + size
        return batches
    finally:
        PyBuffer_Release(&view)


def find_offset(data, int64_t offset, Py_ssize_t start, Py_ssize_t end):
    """See kernels_py.find_offset."""
    cdef Py_buffer view
    cdef Bytes p
    cdef int32_t size
    cdef int64_t last
    cdef Py_ssize_t position = start
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"{start}..{end} is not within {view.len} bytes")
        p = <Bytes>view.buf
        while whole(p, position, end, &size):
            last = get64(p + position)
            if p[position + 16] == 2:
                last = add(last, <int32_t>get32(p + position + 23))
            if last >= offset:
                break
            position += PREFIX + size
        return position
    finally:
        PyBuffer_Release(&view)


def find_last(data, Py_ssize_t start, Py_ssize_t end):
    """See kernels_py.find_last."""
    cdef Py_buffer view
    cdef Bytes p
    cdef int32_t size
    cdef Py_ssize_t position = start
    cdef Py_ssize_t last = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"{start}..{end} is not within {view.len} bytes")
        p = <Bytes>view.buf
        while whole(p, position, end, &size):
            last = position
            position += PREFIX + size
        return last
    finally:
        PyBuffer_Release(&view)


def find_other_format(data, int magic, int carried):
    """See kernels_py.find_other_format."""
    cdef Py_buffer view
    cdef Bytes p
    cdef Py_ssize_t position = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <Bytes>view.buf
        while position + 16 < view.len:
            if min(<int>p[position + 16], carried) != magic:
                return position
            position += PREFIX + <Py_ssize_t>get32(p + position + 8)
        return view.len
    finally:
        PyBuffer_Release(&view)


def checksum_ok(data, Py_ssize_t position, Py_ssize_t size, int magic):
    """See kernels_py.checksum_ok."""
    cdef Py_buffer view
    cdef Bytes p
    cdef uint32_t stored
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or size < (61 if magic == 2 else 34 if magic else 26) or size > view.len - position:
            raise ValueError(f"{size} bytes at {position} are not a batch within {view.len} bytes")
        p = <Bytes>view.buf + position
        if magic == 2:
            stored = get32(p + 17)
        else:
            stored = get32(p + 12)
            if size < OWN_CRC_BELOW:
                return stored == crc32_of(p + 16, size - 16)
    finally:
        PyBuffer_Release(&view)
    if magic == 2:
        return stored == <uint32_t>_crc32c(memoryview(data)[position + 21 : position + size])
    return stored == <uint32_t>_zlib_crc32(memoryview(data)[position + 16 : position + size])


def first_damaged(data, list batches):
    """See kernels_py.first_damaged."""
    cdef Py_buffer view
    cdef Bytes p
    cdef Py_ssize_t position, size
    cdef int magic
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        for batch in batches:
            position = item(batch, 0)
            size = item(batch, 1)
            magic = item(batch, 4)
            if magic == 2 or size >= OWN_CRC_BELOW:
                if not checksum_ok(data, position, size, magic):
                    return position
                continue
            if position < 0 or size < (34 if magic else 26) or size > view.len - position:
                raise ValueError(f"{size} bytes at {position} are not within {view.len} bytes")
            p = <Bytes>view.buf + position
            if get32(p + 12) != crc32_of(p + 16, size - 16):
                return position
        return None
    finally:
        PyBuffer_Release(&view)


def examine(region, int64_t minimum, int64_t maximum, bint check_crc):
    """See kernels_py.examine."""
    cdef Py_buffer view
    cdef Source source
    cdef Found found
    cdef int fault
    open_region(&source, &view, region)
    try:
        source.check_crc = check_crc
        if source.end - source.position > RELEASE_ABOVE:
            with nogil:
                fault = examine_loop(&source, minimum, maximum, &found)
        else:
            fault = examine_loop(&source, minimum, maximum, &found)
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise broken(fault)
    result = new_tuple(Findings, 6)
    put(result, 0, found.count)
    put(result, 1, found.first_offset)
    put(result, 2, found.last_offset)
    put(result, 3, found.largest if found.has_time else None)
    put(result, 4, found.first if found.has_time else None)
    put(result, 5, found.flags)
    return result


def offenders(region, int64_t minimum, int64_t maximum, bint keyed, Py_ssize_t most):
    """See kernels_py.offenders."""
    cdef Py_buffer view
    cdef Source source
    cdef int64_t outside = 0, keyless = 0, i
    cdef int fault
    cdef Offender *named = <Offender *>malloc(most * sizeof(Offender) + 1)
    if named == NULL:
        raise MemoryError
    try:
        open_region(&source, &view, region)
        try:
            with nogil:
                fault = offenders_loop(
                    &source, minimum, maximum, keyed, named, most, &outside, &keyless
                )
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise broken(fault)
        found = [
            (named[i].index, named[i].timestamp, named[i].outside != 0)
            for i in range(min(outside + keyless, most))
        ]
        return found, outside, keyless
    finally:
        free(named)


def find(region, int64_t timestamp, int64_t min_offset):
    """See kernels_py.find."""
    cdef Py_buffer view
    cdef Source source
    cdef int64_t offset = 0, found = 0
    cdef int hit = 0, fault
    open_region(&source, &view, region)
    try:
        if source.end - source.position > RELEASE_ABOVE:
            with nogil:
                fault = find_loop(&source, timestamp, min_offset, &offset, &found, &hit)
        else:
            fault = find_loop(&source, timestamp, min_offset, &offset, &found, &hit)
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise broken(fault)
    return (offset, found) if hit else None


def stamp_messages(data, Py_ssize_t start, Py_ssize_t end, int64_t first_offset, stamp):
    """See kernels_py.stamp_messages."""
    cdef Py_buffer view
    cdef int fault
    cdef int stamped = stamp is not None
    cdef int64_t stamp_time = stamp if stamped else NO_TIMESTAMP
    PyObject_GetBuffer(data, &view, PyBUF_WRITABLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"{start}..{end} is not within {view.len} bytes")
        if end - start > RELEASE_ABOVE:
            with nogil:
                fault = stamp_loop(
                    <uint8_t *>view.buf, start, end, first_offset, stamped, stamp_time
                )
        else:
            fault = stamp_loop(
                <uint8_t *>view.buf, start, end, first_offset, stamped, stamp_time
            )
    finally:
        PyBuffer_Release(&view)
    if fault:
        raise broken(fault)


def rewrite(
    region, int target_magic, first_offset, int64_t min_offset, bint relative, Py_ssize_t limit
):
    """See kernels_py.rewrite."""
    cdef Py_buffer view
    cdef Source source
    cdef Output out
    cdef Written written
    cdef int fault
    cdef Py_ssize_t size
    cdef int renumber = first_offset is not None
    cdef int64_t next_offset = first_offset if renumber else -1
    out.data = NULL
    open_region(&source, &view, region)
    try:
        size = source.end - source.position
        out.size = 0
        out.limit = limit
        out.room = min(size + size // 4 + 64, limit)
        out.data = <uint8_t *>malloc(out.room)
        if out.data == NULL:
            raise MemoryError
        if size > RELEASE_ABOVE:
            with nogil:
                fault = rewrite_loop(
                    &source, target_magic, renumber, next_offset, min_offset, relative, &out,
                    &written,
                )
        else:
            fault = rewrite_loop(
                &source, target_magic, renumber, next_offset, min_offset, relative, &out,
                &written,
            )
        if fault:
            raise broken(fault)
        result = new_tuple(Rewritten, 5)
        put(result, 0, PyBytes_FromStringAndSize(<char *>out.data, out.size))
        put(result, 1, written.count)
        put(result, 2, written.first_offset)
        put(result, 3, written.last_offset)
        put(result, 4, written.base_timestamp)
        return result
    finally:
        free(out.data)
        PyBuffer_Release(&view)


def describe_messages(list batches, plan):
    """See kernels_py.describe_messages."""
    cdef list prepared = []
    cdef int64_t position = 0, offset = item(plan, 0)
    cdef int64_t magic = item(plan, 1)
    cdef bint stamped = magic and <object>PyTuple_GET_ITEM(plan, 4)
    cdef int64_t size
    cdef object stamp = <object>PyTuple_GET_ITEM(plan, 3)
    cdef object own, at
    for batch in batches:
        size = item(batch, 1)
        own = stamp if stamped else <object>PyTuple_GET_ITEM(batch, 8)
        if not stamped and (not magic or <int64_t>own == NO_TIMESTAMP):
            own = None
        at = offset
        described = new_tuple(PreparedBatch, 14)
        put(described, 0, position)
        put(described, 1, size)
        put(described, 2, at)
        put(described, 3, at)
        put(described, 4, 1)
        put(described, 5, own)
        put(described, 6, at)
        put(described, 7, own)
        put(described, 8, own is None)
        put(described, 9, -1)
        put(described, 10, -1)
        put(described, 11, -1)
        put(described, 12, False)
        put(described, 13, False)
        prepared.append(described)
        position += size
        offset = add(offset, 1)
    return prepared


cdef struct Kept:
    int64_t first_offset
    int64_t last_offset
    int64_t leader_epoch
    int64_t append_time
    int32_t count
    int attributes
    int same  # nothing the CRC covers changes


cdef object describe_v2(Bytes head, Py_ssize_t size, Kept *kept, Found *found):
    """Builds the PreparedBatch of a format-2 batch that is kept."""
    cdef object described = new_tuple(PreparedBatch, 14)
    cdef object last = kept.last_offset
    cdef object largest = None, first = None
    cdef bint missing = found.flags & HAS_MISSING
    if kept.attributes & 8:
        largest = first = kept.append_time
        missing = False
    elif found.has_time:
        largest = found.largest
        first = found.first
    put(described, 0, 0)
    put(described, 1, size)
    put(described, 2, kept.first_offset)
    put(described, 3, last)
    put(described, 4, kept.count)
    put(described, 5, largest)
    put(described, 6, last)
    put(described, 7, first)
    put(described, 8, missing)
    put(described, 9, get64(head + 43))
    put(described, 10, get16(head + 51))
    put(described, 11, <int32_t>get32(head + 53))
    put(described, 12, (kept.attributes & 16) != 0)
    put(described, 13, (kept.attributes & 32) != 0)
    return described


def keep_v2(data, batch, records, plan):
    """Prepares a format-2 batch that may be stored as it is; None if it may not.

    `records` is what the batch's records unpack to, or `data` itself where they are not packed.
    """
    cdef Py_buffer view, inner
    cdef Source source
    cdef Found found
    cdef Kept kept
    cdef uint8_t patch[43]
    cdef Bytes head
    cdef Py_ssize_t position = item(batch, 0), size = item(batch, 1)
    cdef bint stamped = <object>PyTuple_GET_ITEM(plan, 4)
    cdef object codec = <object>PyTuple_GET_ITEM(plan, 2)
    cdef int64_t minimum = INT64_MIN, maximum = INT64_MAX, highest
    cdef int fault
    if item(plan, 1) != 2 or position < 0 or size < V2_HEADER:
        return None
    if not stamped:
        minimum = item(plan, 5)
        maximum = item(plan, 6)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if size > view.len - position:
            return None
        head = <Bytes>view.buf + position
        kept.attributes = get16(head + 21)
        kept.count = <int32_t>get32(head + 57)
        # `prepare` handles control batches, the LogAppendTime bit, another codec, impossible counts
        # or sequences, and every batch that the broker makes itself.
        if kept.attributes & 0x28 or (codec is not None and <int>codec != kept.attributes & 7):
            return None
        if kept.count <= 0 or <int64_t>(<int32_t>get32(head + 23)) + 1 != kept.count:
            return None
        if get64(head + 43) != -1 and <int32_t>get32(head + 53) < 0:
            return None
        if <object>PyTuple_GET_ITEM(plan, 10):
            return None
        if records is data:
            open_source(
                &source, &view, position + V2_HEADER, position + size, 2, kept.count, 0,
                get64(head + 27),
            )
            fault = examine_some(&source, minimum, maximum, &found)
        else:
            PyObject_GetBuffer(records, &inner, PyBUF_SIMPLE)
            try:
                open_source(&source, &inner, 0, inner.len, 2, kept.count, 0, get64(head + 27))
                fault = examine_some(&source, minimum, maximum, &found)
            finally:
                PyBuffer_Release(&inner)
        if fault or found.flags & (GAPS | OUTSIDE):
            return None
        if found.flags & NULL_KEY and <object>PyTuple_GET_ITEM(plan, 8):
            return None
        kept.first_offset = item(plan, 0)
        kept.last_offset = add(kept.first_offset, kept.count - 1)
        kept.leader_epoch = item(plan, 7)
        kept.append_time = item(plan, 3)
        highest = found.largest
        if stamped:
            kept.attributes |= 8
            highest = kept.append_time
        kept.same = not stamped and highest == get64(head + 35)
        memcpy(patch, head, 43)
        put64(patch, kept.first_offset)
        put32(patch + 12, <uint32_t>kept.leader_epoch)
        patch[22] = <uint8_t>(kept.attributes & 0xFF)
        put64(patch + 35, highest)
        described = describe_v2(head, size, &kept, &found)
    finally:
        PyBuffer_Release(&view)
    cdef Py_ssize_t cut = 16
    if not kept.same:
        cut = 43
        patch[21] = 0
        patch[22] &= 0x7F  # layout.KNOWN_ATTRIBUTES
        covered = PyBytes_FromStringAndSize(<char *>patch + 21, 22)
        body = memoryview(data)[position + cut : position + size]
        put32(patch + 17, <uint32_t>_crc32c(body, _crc32c(covered)))
    else:
        body = memoryview(data)[position + cut : position + size]
    result = new_tuple(Prepared, 7)
    put(result, 0, [PyBytes_FromStringAndSize(<char *>patch, cut), body])
    put(result, 1, size)
    put(result, 2, [described])
    put(result, 3, <object>PyTuple_GET_ITEM(plan, 0))
    put(result, 4, kept.last_offset)
    put(result, 5, kept.count)
    put(result, 6, False)
    return result


cdef int examine_some(Source *source, int64_t minimum, int64_t maximum, Found *found) noexcept:
    """Runs `examine_v2`, without the interpreter's lock if it takes long."""
    cdef int fault
    if source.end - source.position > RELEASE_ABOVE:
        with nogil:
            fault = examine_v2(source, minimum, maximum, found)
    else:
        fault = examine_v2(source, minimum, maximum, found)
    return fault


# --- columns -------------------------------------------------------------------------------------

cdef struct Range:
    int64_t low_offset
    int64_t high_offset
    int64_t low_time
    int64_t high_time
    int timed

cdef struct Sizes:
    int64_t records
    int64_t keys
    int64_t values
    int64_t headers
    int64_t header_keys
    int64_t header_values

cdef struct Columns:
    int64_t *offsets
    int64_t *timestamps
    int32_t *key_ends
    uint8_t *key_valid
    uint8_t *keys
    int32_t *value_ends
    uint8_t *value_valid
    uint8_t *values
    int32_t *header_ends
    int32_t *header_key_ends
    uint8_t *header_keys
    int32_t *header_value_ends
    uint8_t *header_value_valid
    uint8_t *header_values
    Sizes used


cdef inline uint8_t *memory(bytearray buffer):
    return <uint8_t *>PyByteArray_AS_STRING(buffer)


cdef int point(Columns *columns, out) except -1:
    """Points at the buffers, which stay where they are until they grow."""
    columns.offsets = <int64_t *>memory(out.offsets)
    columns.timestamps = <int64_t *>memory(out.timestamps)
    columns.key_ends = <int32_t *>memory(out.key_ends)
    columns.key_valid = memory(out.key_valid)
    columns.keys = memory(out.keys)
    columns.value_ends = <int32_t *>memory(out.value_ends)
    columns.value_valid = memory(out.value_valid)
    columns.values = memory(out.values)
    columns.header_ends = <int32_t *>memory(out.header_ends)
    columns.header_key_ends = <int32_t *>memory(out.header_key_ends)
    columns.header_keys = memory(out.header_keys)
    columns.header_value_ends = <int32_t *>memory(out.header_value_ends)
    columns.header_value_valid = memory(out.header_value_valid)
    columns.header_values = memory(out.header_values)
    columns.used.records = out.record_count
    columns.used.keys = out.key_bytes
    columns.used.values = out.value_bytes
    columns.used.headers = out.header_count
    columns.used.header_keys = out.header_key_bytes
    columns.used.header_values = out.header_value_bytes
    return 0


cdef inline int is_kept(const Range *wanted, int64_t offset, int64_t timestamp) noexcept nogil:
    if offset < wanted.low_offset or offset >= wanted.high_offset:
        return 0
    if not wanted.timed:
        return 1
    return timestamp != NO_TIMESTAMP and wanted.low_time <= timestamp <= wanted.high_time


cdef inline void header_sizes(const Raw *raw, Sizes *sizes) noexcept nogil:
    """Sums up the headers of a record that was read without a fault."""
    cdef Py_ssize_t position = 0
    cdef int32_t size = 0, i
    cdef Bytes ignored
    for i in range(raw.header_count):
        field(raw.headers, &position, raw.headers_size, &ignored, &size)
        sizes.header_keys += size
        field(raw.headers, &position, raw.headers_size, &ignored, &size)
        if size > 0:
            sizes.header_values += size


cdef int measure_loop(Source source, const Range *wanted, Sizes *sizes) noexcept nogil:
    """Reads every record, and sums up the sizes of the wanted ones."""
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(&source)
    memset(sizes, 0, sizeof(Sizes))
    if fault:
        return fault
    while advance(&source, &raw, &fault):
        if not is_kept(wanted, add(base_offset, raw.offset), stamp if stamped else raw.timestamp):
            continue
        sizes.records += 1
        if raw.key_size > 0:
            sizes.keys += raw.key_size
        if raw.value_size > 0:
            sizes.values += raw.value_size
        if raw.header_count:
            sizes.headers += raw.header_count
            header_sizes(&raw, sizes)
    return fault


cdef inline void put_bytes(
    uint8_t *data, int64_t *used, int32_t *ends, uint8_t *valid, int64_t row, Bytes content, int32_t size
) noexcept nogil:
    if size >= 0:
        if size:
            memcpy(data + used[0], content, size)
            used[0] += size
        if valid != NULL:
            valid[row >> 3] |= <uint8_t>(1 << (row & 7))
    ends[row + 1] = <int32_t>used[0]


cdef inline void put_headers(Columns *columns, const Raw *raw) noexcept nogil:
    cdef Py_ssize_t position = 0
    cdef int32_t size = 0, i
    cdef Bytes content
    cdef int64_t row
    for i in range(raw.header_count):
        row = columns.used.headers
        field(raw.headers, &position, raw.headers_size, &content, &size)
        put_bytes(
            columns.header_keys, &columns.used.header_keys, columns.header_key_ends, NULL, row,
            content, size,
        )
        field(raw.headers, &position, raw.headers_size, &content, &size)
        put_bytes(
            columns.header_values, &columns.used.header_values, columns.header_value_ends,
            columns.header_value_valid, row, content, size,
        )
        columns.used.headers = row + 1


cdef void fill_loop(Source source, const Range *wanted, Columns *columns) noexcept nogil:
    """Writes the wanted records; `measure_loop` found no fault, and there is room."""
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault
    cdef int64_t row, offset, timestamp
    while advance(&source, &raw, &fault):
        offset = add(base_offset, raw.offset)
        timestamp = stamp if stamped else raw.timestamp
        if not is_kept(wanted, offset, timestamp):
            continue
        row = columns.used.records
        columns.offsets[row] = offset
        columns.timestamps[row] = timestamp
        put_bytes(
            columns.keys, &columns.used.keys, columns.key_ends, columns.key_valid, row, raw.key,
            raw.key_size,
        )
        put_bytes(
            columns.values, &columns.used.values, columns.value_ends, columns.value_valid, row,
            raw.value, raw.value_size,
        )
        if raw.header_count:
            put_headers(columns, &raw)
        columns.header_ends[row + 1] = <int32_t>columns.used.headers
        columns.used.records = row + 1


cdef int times_loop(Source source, const Range *wanted, Columns *columns) noexcept nogil:
    """Writes offsets and times; of a format-2 record nothing else is read."""
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(&source)
    cdef Bytes data = source.data
    cdef Py_ssize_t position = source.position, stop
    cdef int32_t length = 0, offset_delta = 0
    cdef int64_t delta = 0, offset, timestamp, number
    cdef int64_t row = columns.used.records
    if fault:
        return fault
    if source.magic < 2:
        while advance(&source, &raw, &fault):
            offset = add(base_offset, raw.offset)
            timestamp = stamp if stamped else raw.timestamp
            if is_kept(wanted, offset, timestamp):
                columns.offsets[row] = offset
                columns.timestamps[row] = timestamp
                row += 1
        if not fault:
            columns.used.records = row
        return fault
    for number in range(source.left):
        fault = varint(data, &position, source.end, &length)
        if fault:
            return fault
        if length < 0 or length > source.end - position:
            return RECORD_LONG
        stop = position + length
        position += 1  # attributes
        fault = varlong(data, &position, stop, &delta)
        if fault:
            return fault
        fault = varint(data, &position, stop, &offset_delta)
        if fault:
            return fault
        position = stop
        offset = add(base_offset, offset_delta)
        timestamp = stamp if stamped else add(source.base_timestamp, delta)
        if is_kept(wanted, offset, timestamp):
            columns.offsets[row] = offset
            columns.timestamps[row] = timestamp
            row += 1
    if position != source.end:
        return BATCH_NOT_FILLED
    columns.used.records = row
    return NO_FAULT


cdef struct Head:
    Py_ssize_t position
    Py_ssize_t size
    int64_t offset  # as the first eight bytes have it
    int64_t base_offset  # -1 where a wrapper does not tell
    int64_t last_offset
    int magic
    int attributes
    int64_t leader_epoch
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int64_t producer_epoch
    int64_t base_sequence
    int64_t count


cdef inline void read_head(Bytes p, Py_ssize_t position, Py_ssize_t size, Head *head) noexcept nogil:
    head.position = position
    head.size = size
    head.offset = get64(p)
    head.magic = p[16]
    if head.magic == 2:
        head.base_offset = head.offset
        head.last_offset = add(head.offset, <int32_t>get32(p + 23))
        head.attributes = get16(p + 21)
        head.leader_epoch = <int32_t>get32(p + 12)
        head.base_timestamp = get64(p + 27)
        head.max_timestamp = get64(p + 35)
        head.producer_id = get64(p + 43)
        head.producer_epoch = get16(p + 51)
        head.base_sequence = <int32_t>get32(p + 53)
        head.count = <int32_t>get32(p + 57)
        return
    head.attributes = p[17]
    head.last_offset = head.offset
    head.base_offset = -1 if head.attributes & 7 else head.offset
    head.count = -1 if head.attributes & 7 else 1
    head.base_timestamp = head.max_timestamp = get64(p + 18) if head.magic else NO_TIMESTAMP
    head.leader_epoch = head.producer_id = head.producer_epoch = head.base_sequence = -1


cdef inline int is_outside(const Head *head, const Range *wanted) noexcept nogil:
    """Returns whether the header proves that no record has a wanted time."""
    cdef int64_t timestamp = head.max_timestamp
    if head.magic == 0:
        return 1
    if head.attributes & 8 or (head.magic == 1 and not head.attributes & 7):
        return timestamp == NO_TIMESTAMP or timestamp < wanted.low_time or timestamp > wanted.high_time
    return head.magic == 2 and timestamp < wanted.low_time


cdef int is_aborted(const Head *head, aborted) except -1:
    cdef object first, last
    for first, last in aborted.get(head.producer_id, ()):
        if <int64_t>first <= head.base_offset <= <int64_t>last:
            return 1
    return 0


cdef int check_head(Bytes p, const Head *head, view, int verify) except -1:
    """Raises BrokenBatch if the CRC is wrong or the header is impossible."""
    cdef uint32_t stored, computed
    cdef int codec = head.attributes & 7
    cdef Py_ssize_t stop = head.position + head.size
    if verify:
        if head.magic == 2:
            stored = get32(p + 17)
            computed = <uint32_t>_crc32c(view[head.position + 21 : stop])
        else:
            stored = get32(p + 12)
            if head.size < OWN_CRC_BELOW:
                computed = crc32_of(p + 16, head.size - 16)
            else:
                computed = <uint32_t>_zlib_crc32(view[head.position + 16 : stop])
        if stored != computed:
            raise BrokenBatch(head.position, head.offset, "fails its CRC")
    if codec > (4 if head.magic == 2 else 3):
        raise BrokenBatch(head.position, head.offset, f"names codec {codec}, which is none")
    if head.magic == 2:
        if not 0 <= head.count <= <int64_t>(<int32_t>get32(p + 23)) + 1:
            raise BrokenBatch(
                head.position,
                head.offset,
                f"claims {head.count} records for offsets {head.base_offset} to {head.last_offset}",
            )
    return 0


cdef int put_row(out, const Head *head, int64_t records) except -1:
    cdef int64_t *row
    cdef Py_ssize_t count = out.batch_count
    if (count + 1) * 112 > PyByteArray_GET_SIZE(out.batches):
        out.reserve_batches(1)
    row = <int64_t *>memory(out.batches) + count * 14
    row[0] = head.position
    row[1] = head.size
    row[2] = head.base_offset
    row[3] = head.last_offset
    row[4] = head.magic
    row[5] = head.attributes
    row[6] = head.leader_epoch
    row[7] = head.base_timestamp
    row[8] = head.max_timestamp
    row[9] = head.producer_id
    row[10] = head.producer_epoch
    row[11] = head.base_sequence
    row[12] = head.count
    row[13] = records
    out.batch_count = count + 1
    return 0


cdef int append_region(Source *source, const Range *wanted, int times_only, out) except -1:
    """Appends the wanted records of a region; returns 0, or a fault and appends nothing."""
    cdef Columns columns
    cdef Sizes sizes
    cdef int fault
    cdef int64_t least = 26 if source.magic < 2 else 4  # bytes of the smallest record
    if times_only:
        out.reserve_times((source.end - source.position) // least + 1)
        point(&columns, out)
        with nogil:
            fault = times_loop(source[0], wanted, &columns)
        if not fault:
            out.record_count = columns.used.records
        return fault
    with nogil:
        fault = measure_loop(source[0], wanted, &sizes)
    if fault or not sizes.records:
        return fault
    out.reserve(
        sizes.records, sizes.keys, sizes.values, sizes.headers, sizes.header_keys,
        sizes.header_values,
    )
    point(&columns, out)
    with nogil:
        fill_loop(source[0], wanted, &columns)
    out.record_count = columns.used.records
    out.key_bytes = columns.used.keys
    out.value_bytes = columns.used.values
    out.header_count = columns.used.headers
    out.header_key_bytes = columns.used.header_keys
    out.header_value_bytes = columns.used.header_values
    return NO_FAULT


cdef object batch_of(Bytes p, const Head *head):
    if head.magic == 2:
        return v2_batch(p, head.position, <int32_t>(head.size - PREFIX))
    return message_batch(p, head.position, <int32_t>(head.size - PREFIX))


cdef int append_batch(
    data, Py_buffer *view, Bytes p, const Head *head, const Range *wanted, int depth, out, unpack
) except -1:
    """Appends the records of one batch; raises BrokenBatch."""
    cdef Source source
    cdef Py_buffer inner
    cdef int fault
    if head.attributes & 7:
        open_region(&source, &inner, unpack(data, batch_of(p, head)))
        try:
            fault = append_region(&source, wanted, depth == 1, out)
        finally:
            PyBuffer_Release(&inner)
    elif head.magic == 2:
        open_source(
            &source, view, head.position + V2_HEADER, head.position + head.size, 2, head.count,
            head.base_offset, head.base_timestamp,
        )
        if head.attributes & 8:
            source.stamped = 1
            source.stamp = head.max_timestamp
        fault = append_region(&source, wanted, depth == 1, out)
    else:
        open_source(
            &source, view, head.position, head.position + head.size, head.magic, -1, 0,
            head.base_timestamp,
        )
        fault = append_region(&source, wanted, depth == 1, out)
    if fault:
        raise BrokenBatch(head.position, head.offset, f"is broken: {FAULTS[fault]}")
    return 0


def append_set(data, Py_ssize_t start, Py_ssize_t end, out, wanted, unpack):
    """See kernels_py.append_set."""
    cdef Py_buffer view
    cdef Bytes p
    cdef Head head
    cdef Range within
    cdef int32_t size
    cdef int depth = wanted.depth
    cdef int verify = wanted.verify
    cdef int64_t limit = wanted.limit, first
    cdef Py_ssize_t position = start
    cdef object aborted = wanted.aborted, sliced = memoryview(data)
    within.low_offset = wanted.low_offset
    within.high_offset = wanted.high_offset
    within.low_time = wanted.low_time
    within.high_time = wanted.high_time
    within.timed = wanted.timed
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            raise ValueError(f"{start}..{end} is not within {view.len} bytes")
        while True:
            if <int64_t>out.filled() >= limit:
                return position, 1
            if end - position < PREFIX:
                return position, 0
            p = <Bytes>view.buf + position
            size = <int32_t>get32(p + 8)
            if size < 14:
                raise BrokenBatch(position, get64(p), f"claims {size} bytes")
            if size > end - position - PREFIX:
                return position, 0
            if p[16] > 2:
                raise BrokenBatch(position, get64(p), f"has magic {p[16]}")
            if size < (49 if p[16] == 2 else 22 if p[16] else 14):
                raise BrokenBatch(position, get64(p), f"claims {size} bytes")
            read_head(p, position, <Py_ssize_t>size + PREFIX, &head)
            if head.last_offset >= within.low_offset:
                first = head.last_offset if depth == 0 else head.base_offset
                if first >= within.high_offset and (depth == 0 or head.magic == 2 or head.count == 1):
                    return position, 2
                if within.timed and is_outside(&head, &within):
                    pass
                elif (
                    depth and head.magic == 2
                    and (head.attributes & 32 or (head.attributes & 16 and is_aborted(&head, aborted)))
                ):
                    pass
                else:
                    check_head(p, &head, sliced, verify)
                    if depth:
                        append_batch(data, &view, p, &head, &within, depth, out, unpack)
                    put_row(out, &head, out.record_count)
            position += head.size
            if head.last_offset >= within.high_offset - 1:
                return position, 2
    finally:
        PyBuffer_Release(&view)


# --- columns into records ------------------------------------------------------------------------

cdef struct Given:  # a column of bytes as it was given: nothing of it is believed
    const int32_t *ends
    Bytes valid  # NULL: every row is
    Bytes data
    int64_t size

cdef struct Rows:
    const int64_t *timestamps
    const int32_t *header_ends
    int64_t header_count
    Given keys
    Given values
    Given header_keys
    Given header_values

cdef struct Packed:
    int64_t end
    int64_t size
    int64_t base_timestamp
    int64_t largest


cdef inline int given(const Given *column, int64_t row, Bytes *content, int32_t *size) noexcept nogil:
    """Finds the bytes of a row, size -1 for null; returns 0 if the ends are impossible."""
    cdef int32_t first, last
    if column.valid != NULL and not (column.valid[row >> 3] >> (row & 7)) & 1:
        size[0] = -1
        return 1
    first = column.ends[row]
    last = column.ends[row + 1]
    if first < 0 or last < first or last > column.size:
        return 0
    content[0] = column.data + first
    size[0] = last - first
    return 1


cdef inline int64_t field_size(int32_t size) noexcept nogil:
    return 1 if size < 0 else varint_size(size) + size


cdef int64_t body_size(const Rows *rows, int64_t row, int64_t delta, int64_t index) noexcept nogil:
    """Returns the size of a record without its length; -1 if its columns are impossible."""
    cdef Bytes content = NULL
    cdef int32_t size = 0, first = rows.header_ends[row], last = rows.header_ends[row + 1], i
    cdef int64_t total
    if first < 0 or last < first or last > rows.header_count:
        return -1
    total = 1 + varint_size(delta) + varint_size(index) + varint_size(last - first)
    if not given(&rows.keys, row, &content, &size):
        return -1
    total += field_size(size)
    if not given(&rows.values, row, &content, &size):
        return -1
    total += field_size(size)
    for i in range(first, last):
        if not given(&rows.header_keys, i, &content, &size):
            return -1
        total += field_size(size)
        if not given(&rows.header_values, i, &content, &size):
            return -1
        total += field_size(size)
    return total if total <= 0x7FFFFFFF else -1


cdef int measure_rows(const Rows *rows, int64_t start, int64_t end, int64_t limit, Packed *packed) noexcept nogil:
    """Finds how many rows fit, at least one, and their size; 0 if the columns are impossible."""
    cdef int64_t row, body, more, timestamp
    packed.size = 0
    packed.largest = NO_TIMESTAMP
    packed.base_timestamp = rows.timestamps[start]
    cdef int has_time = 0
    for row in range(start, end):
        timestamp = rows.timestamps[row]
        body = body_size(rows, row, subtract(timestamp, packed.base_timestamp), row - start)
        if body < 0:
            return 0
        more = varint_size(body) + body
        if row > start and packed.size + more > limit:
            packed.end = row
            return 1
        packed.size += more
        if timestamp != NO_TIMESTAMP and (not has_time or timestamp > packed.largest):
            packed.largest = timestamp
            has_time = 1
    packed.end = end
    return 1


cdef inline uint8_t *put_field(uint8_t *p, Bytes content, int32_t size) noexcept nogil:
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, content, size)
        p += size
    return p


cdef void write_rows(const Rows *rows, int64_t start, const Packed *packed, uint8_t *p) noexcept nogil:
    """Writes the rows that `measure_rows` has checked."""
    cdef Bytes content = NULL
    cdef int32_t size = 0, i
    cdef int64_t row, delta
    for row in range(start, packed.end):
        delta = subtract(rows.timestamps[row], packed.base_timestamp)
        p = put_varint(p, body_size(rows, row, delta, row - start))
        p[0] = 0
        p = put_varint(p + 1, delta)
        p = put_varint(p, row - start)
        given(&rows.keys, row, &content, &size)
        p = put_field(p, content, size)
        given(&rows.values, row, &content, &size)
        p = put_field(p, content, size)
        p = put_varint(p, rows.header_ends[row + 1] - rows.header_ends[row])
        for i in range(rows.header_ends[row], rows.header_ends[row + 1]):
            given(&rows.header_keys, i, &content, &size)
            p = put_field(p, content, size)
            given(&rows.header_values, i, &content, &size)
            p = put_field(p, content, size)


cdef int take_column(Given *column, Py_buffer *ends, Py_buffer *valid, Py_buffer *data, int64_t rows) except -1:
    """Points a column at its buffers. Raises ValueError if they are too short for their rows."""
    column.ends = <const int32_t *>ends.buf
    column.valid = <Bytes>valid.buf if valid.len else NULL
    column.data = <Bytes>data.buf
    column.size = data.len
    if ends.len < 4 * (rows + 1) or (valid.len and valid.len < (rows + 7) // 8):
        raise ValueError("a column is shorter than its rows")
    return 0


def encode_rows(columns, int64_t start, int64_t end, int64_t limit):
    """See kernels_py.encode_rows."""
    cdef Py_buffer views[12]
    cdef int held = 0, sound
    cdef Rows rows
    cdef Packed packed
    given_buffers = (
        columns.timestamps, columns.key_ends, columns.key_valid, columns.keys, columns.value_ends,
        columns.value_valid, columns.values, columns.header_ends, columns.header_key_ends,
        columns.header_keys, columns.header_value_ends, columns.header_value_valid,
    )
    cdef Py_buffer last
    if not 0 <= start < end <= columns.record_count:
        raise ValueError(f"rows {start} to {end} are not among {columns.record_count}")
    rows.header_count = columns.header_count
    try:
        for buffer in given_buffers:
            PyObject_GetBuffer(buffer, &views[held], PyBUF_SIMPLE)
            held += 1
        PyObject_GetBuffer(columns.header_values, &last, PyBUF_SIMPLE)
        try:
            if views[0].len < 8 * end or views[7].len < 4 * (end + 1):
                raise ValueError("a column is shorter than its rows")
            rows.timestamps = <const int64_t *>views[0].buf
            rows.header_ends = <const int32_t *>views[7].buf
            take_column(&rows.keys, &views[1], &views[2], &views[3], end)
            take_column(&rows.values, &views[4], &views[5], &views[6], end)
            rows.header_keys.valid = rows.header_values.valid = NULL
            if rows.header_count:
                take_header_keys(&rows, &views[8], &views[9])
                take_column(&rows.header_values, &views[10], &views[11], &last, rows.header_count)
            with nogil:
                sound = measure_rows(&rows, start, end, limit, &packed)
            if not sound:
                raise ValueError("the ends of a column do not ascend within its data")
            data = PyBytes_FromStringAndSize(NULL, packed.size)
            write_into(data, &rows, start, &packed)
        finally:
            PyBuffer_Release(&last)
    finally:
        while held:
            held -= 1
            PyBuffer_Release(&views[held])
    result = new_tuple(EncodedRows, 4)
    put(result, 0, data)
    put(result, 1, packed.end)
    put(result, 2, packed.base_timestamp)
    put(result, 3, packed.largest)
    return result


cdef int take_header_keys(Rows *rows, Py_buffer *ends, Py_buffer *data) except -1:
    """Points at the names of headers, which are never null."""
    rows.header_keys.ends = <const int32_t *>ends.buf
    rows.header_keys.data = <Bytes>data.buf
    rows.header_keys.size = data.len
    if ends.len < 4 * (rows.header_count + 1):
        raise ValueError("a column is shorter than its rows")
    return 0


cdef void write_into(bytes data, const Rows *rows, int64_t start, const Packed *packed):
    cdef uint8_t *out = <uint8_t *>PyBytes_AS_STRING(data)
    with nogil:
        write_rows(rows, start, packed, out)


# --- keys to partitions ---------------------------------------------------------------------------

include "_murmur.pxi"


# --- compaction ----------------------------------------------------------------------------------

include "_key_map.pxi"

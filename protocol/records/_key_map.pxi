# Compaction: which record of each key is kept. `key_map` is the twin, and documents each function.
# Included at the end of `_kernels.pyx`, whose loops over records it uses.
#
# A key is known by 128 bits of a keyed hash (SipHash-2-4), so no client can make two keys collide.
# The table uses open addressing, and grows by half its size. A key takes 24 bytes; 32 by time.

from libc.string cimport memset

import os as _os

from .kernels.key_map import MASK_LENGTH as _MASK_LENGTH
from .kernels.key_map import Filtered

cdef enum:
    FIRST_SLOTS = 1024

cdef inline uint64_t rotated(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_rounds(uint64_t *v, int rounds) noexcept nogil:
    while rounds > 0:
        v[0] += v[1]
        v[1] = rotated(v[1], 13) ^ v[0]
        v[0] = rotated(v[0], 32)
        v[2] += v[3]
        v[3] = rotated(v[3], 16) ^ v[2]
        v[0] += v[3]
        v[3] = rotated(v[3], 21) ^ v[0]
        v[2] += v[1]
        v[1] = rotated(v[1], 17) ^ v[2]
        v[2] = rotated(v[2], 32)
        rounds -= 1


cdef void sip_hash(Bytes p, Py_ssize_t size, uint64_t *key, uint64_t *out) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Py_ssize_t left = size
    v[0] = key[0] ^ <uint64_t>0x736F6D6570736575U
    v[1] = key[1] ^ <uint64_t>0x646F72616E646F6DU ^ 0xEE
    v[2] = key[0] ^ <uint64_t>0x6C7967656E657261U
    v[3] = key[1] ^ <uint64_t>0x7465646279746573U
    while left >= 8:
        memcpy(&word, p, 8)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
        p += 8
        left -= 8
    word = 0
    memcpy(&word, p, left)
    word ^= <uint64_t>size << 56
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef struct Table:
    uint64_t *hashes  # two for a slot
    int64_t *offsets  # twice the offset, plus 1 where nothing earlier may win; -1: free
    int64_t *times  # NULL where times do not count
    Py_ssize_t slots
    Py_ssize_t most_slots
    Py_ssize_t used
    Py_ssize_t most
    uint64_t key[2]


cdef inline Py_ssize_t slot_of(Table *table, uint64_t *hash) noexcept nogil:
    """Returns the slot of a hash, or the free slot for it."""
    cdef Py_ssize_t at = <Py_ssize_t>(hash[0] % <uint64_t>table.slots)
    while table.offsets[at] != -1 and (
        table.hashes[2 * at] != hash[0] or table.hashes[2 * at + 1] != hash[1]
    ):
        at += 1
        if at == table.slots:
            at = 0
    return at


cdef int make_table(Table *table, Py_ssize_t slots, int by_time) noexcept nogil:
    table.hashes = <uint64_t *>malloc(slots * 16)
    table.offsets = <int64_t *>malloc(slots * 8)
    table.times = <int64_t *>malloc(slots * 8) if by_time else NULL
    table.slots = slots
    if table.hashes == NULL or table.offsets == NULL or (by_time and table.times == NULL):
        drop_table(table)
        return NO_MEMORY
    memset(table.offsets, 0xFF, slots * 8)
    return NO_FAULT


cdef void drop_table(Table *table) noexcept nogil:
    free(table.hashes)
    free(table.offsets)
    free(table.times)
    table.hashes = NULL
    table.offsets = table.times = NULL
    table.slots = 0


cdef int grow(Table *table) noexcept nogil:
    """Grows the table when three of four slots are taken; at the largest, nine of ten may be."""
    cdef Table larger
    cdef Py_ssize_t at, to, slots = table.slots
    if table.used < slots - slots // 4 or slots >= table.most_slots:
        return NO_FAULT
    slots = min(slots + slots // 2 + 1, table.most_slots)
    if make_table(&larger, slots, table.times != NULL):
        return NO_MEMORY
    for at in range(table.slots):
        if table.offsets[at] == -1:
            continue
        to = slot_of(&larger, table.hashes + 2 * at)
        larger.hashes[2 * to] = table.hashes[2 * at]
        larger.hashes[2 * to + 1] = table.hashes[2 * at + 1]
        larger.offsets[to] = table.offsets[at]
        if table.times != NULL:
            larger.times[to] = table.times[at]
    free(table.hashes)
    free(table.offsets)
    free(table.times)
    table.hashes, table.offsets, table.times = larger.hashes, larger.offsets, larger.times
    table.slots = slots
    return NO_FAULT


cdef int note_loop(
    Table *table, Source *source, int64_t min_offset, int64_t time_limit, int64_t *full_at
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(source)
    cdef int64_t offset, time
    cdef uint64_t hash[2]
    cdef Py_ssize_t at
    cdef int settled
    full_at[0] = -1
    if fault:
        return fault
    while advance(source, &raw, &fault):
        offset = add(base_offset, raw.offset)
        if raw.key_size < 0 or offset < min_offset:
            continue
        time = stamp if stamped else raw.timestamp
        if time > time_limit:
            time = time_limit
        sip_hash(raw.key, raw.key_size, table.key, hash)
        at = slot_of(table, hash)
        if table.offsets[at] == -1:
            if table.used >= table.most:
                full_at[0] = offset
                return NO_FAULT
            if grow(table):
                return NO_MEMORY
            at = slot_of(table, hash)
            table.used += 1
            table.hashes[2 * at] = hash[0]
            table.hashes[2 * at + 1] = hash[1]
            settled = 0
        else:
            settled = table.offsets[at] & 1
            if table.times != NULL and time != NO_TIMESTAMP and table.times[at] != NO_TIMESTAMP:
                if time < table.times[at]:
                    continue
        table.offsets[at] = 2 * offset + (1 if settled or time == NO_TIMESTAMP else 0)
        if table.times != NULL:
            table.times[at] = time
    return fault


cdef int update_loop(
    Table *table, Source *source, int64_t min_offset, int64_t time_limit
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(source)
    cdef int64_t offset, time
    cdef uint64_t hash[2]
    cdef Py_ssize_t at
    if fault:
        return fault
    while advance(source, &raw, &fault):
        offset = add(base_offset, raw.offset)
        if raw.key_size < 0 or offset < min_offset:
            continue
        time = stamp if stamped else raw.timestamp
        if time > time_limit:
            time = time_limit
        sip_hash(raw.key, raw.key_size, table.key, hash)
        at = slot_of(table, hash)
        if table.offsets[at] == -1 or table.offsets[at] & 1 or time == NO_TIMESTAMP:
            continue
        if time > table.times[at]:
            table.offsets[at] = 2 * offset
            table.times[at] = time
    return fault


cdef struct FilterState:
    uint8_t *mask
    int64_t number
    int64_t kept
    int64_t largest
    int64_t first
    int64_t first_offset
    int64_t last_offset
    int has_time
    int has_missing
    int has_tombstone


cdef int filter_loop(
    Table *table, Source *source, int64_t latest_offset, int keep_tombstones, FilterState *to
) noexcept nogil:
    cdef int64_t base_offset = source.base_offset, stamp = source.stamp
    cdef int stamped = source.stamped
    cdef Raw raw
    cdef int fault = begin(source)
    cdef int64_t offset, time, known
    cdef uint64_t hash[2]
    cdef int stays
    to.number = to.kept = 0
    to.largest = to.first = NO_TIMESTAMP
    to.first_offset = to.last_offset = -1
    to.has_time = to.has_missing = to.has_tombstone = 0
    if fault:
        return fault
    while advance(source, &raw, &fault):
        offset = add(base_offset, raw.offset)
        stays = 1
        if offset <= latest_offset:
            if raw.key_size < 0 or not (keep_tombstones or raw.value_size >= 0):
                stays = 0
            elif table.used:
                sip_hash(raw.key, raw.key_size, table.key, hash)
                known = table.offsets[slot_of(table, hash)]
                if known != -1:
                    known >>= 1
                    stays = offset == known if table.times != NULL else offset >= known
        to.mask[to.number] = <uint8_t>stays
        to.number += 1
        if not stays:
            continue
        if to.kept == 0:
            to.first_offset = offset
        to.kept += 1
        to.last_offset = offset
        if raw.value_size < 0:
            to.has_tombstone = 1
        time = stamp if stamped else raw.timestamp
        if time == NO_TIMESTAMP:
            to.has_missing = 1
        elif not to.has_time:
            to.has_time = 1
            to.first = to.largest = time
        elif time > to.largest:
            to.largest = time
    return fault


cdef class KeyMap:
    """See key_map.KeyMap."""

    cdef Table table
    cdef int by_time

    def __cinit__(self, Py_ssize_t most, bint by_time):
        cdef Py_ssize_t slots
        if most < 0:
            raise ValueError(f"{most} keys are no number of keys")
        seed = _os.urandom(16)
        memcpy(self.table.key, <const char *>seed, 16)
        self.by_time = by_time
        self.table.used = 0
        self.table.most = most
        self.table.most_slots = most + most // 9 + 2
        slots = min(<Py_ssize_t>FIRST_SLOTS, self.table.most_slots)
        if make_table(&self.table, slots, by_time):
            raise MemoryError

    def __dealloc__(self):
        drop_table(&self.table)

    def __len__(self):
        return self.table.used

    def note(self, region, int64_t min_offset, int64_t time_limit=INT64_MAX):
        """See key_map.KeyMap.note."""
        cdef Py_buffer view
        cdef Source source
        cdef int64_t full_at = -1
        cdef int fault
        open_region(&source, &view, region)
        try:
            with nogil:
                fault = note_loop(&self.table, &source, min_offset, time_limit, &full_at)
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise broken(fault)
        return None if full_at < 0 else full_at

    def update_by_time(self, region, int64_t min_offset, int64_t time_limit=INT64_MAX):
        """See key_map.KeyMap.update_by_time."""
        cdef Py_buffer view
        cdef Source source
        cdef int fault
        if not self.by_time:
            raise ValueError("without times nothing earlier wins")
        open_region(&source, &view, region)
        try:
            with nogil:
                fault = update_loop(&self.table, &source, min_offset, time_limit)
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise broken(fault)

    def filter_records(self, region, int64_t latest_offset, bint keep_tombstones):
        """See key_map.KeyMap.filter_records."""
        cdef Py_buffer view
        cdef Source source
        cdef FilterState found
        cdef int fault
        found.mask = NULL
        open_region(&source, &view, region)
        try:
            # Every record has at least one byte, so this is enough.
            found.mask = <uint8_t *>malloc(source.end - source.position + 1)
            if found.mask == NULL:
                raise MemoryError
            with nogil:
                fault = filter_loop(&self.table, &source, latest_offset, keep_tombstones, &found)
            if fault:
                raise broken(fault)
            return Filtered(
                PyBytes_FromStringAndSize(<char *>found.mask, found.number),
                found.kept,
                found.has_tombstone != 0,
                found.largest if found.has_time else None,
                found.first if found.has_time else None,
                found.has_missing != 0,
                found.first_offset,
                found.last_offset,
            )
        finally:
            free(found.mask)
            PyBuffer_Release(&view)


cdef int select_loop(
    Source *source, Bytes mask, Py_ssize_t mask_size, int64_t base_timestamp, Output *out,
    int *mask_differs,
) noexcept nogil:
    cdef Raw raw
    cdef int fault = begin(source)
    cdef Py_ssize_t number = 0, before = source.position, size
    mask_differs[0] = 0
    if fault:
        return fault
    while advance(source, &raw, &fault):
        if number >= mask_size:
            mask_differs[0] = 1
            return NO_FAULT
        if mask[number]:
            if source.magic == 2:
                fault = write_v2(
                    out, &raw, raw.offset, subtract(raw.timestamp, base_timestamp)
                )
            else:
                size = source.position - before
                fault = make_room(out, size)
                if not fault:
                    memcpy(out.data + out.size, source.data + before, size)
                    out.size += size
            if fault:
                return fault
        before = source.position
        number += 1
    if not fault and number != mask_size:
        mask_differs[0] = 1
    return fault


def select(region, bytes mask, int64_t new_base_timestamp):
    """See key_map.select."""
    cdef Py_buffer view
    cdef Source source
    cdef Output out
    cdef int fault, mask_differs = 0
    cdef Py_ssize_t mask_size = len(mask), size
    cdef Bytes wanted = <Bytes><const char *>mask
    out.data = NULL
    open_region(&source, &view, region)
    try:
        size = source.end - source.position
        out.size = 0
        out.limit = 2 * size + 4096 + 20 * mask_size
        out.room = size + 64
        out.data = <uint8_t *>malloc(out.room)
        if out.data == NULL:
            raise MemoryError
        with nogil:
            fault = select_loop(
                &source, wanted, mask_size, new_base_timestamp, &out, &mask_differs
            )
        if fault:
            raise broken(fault)
        if mask_differs:
            raise InvalidRecord(_MASK_LENGTH)
        return PyBytes_FromStringAndSize(<char *>out.data, out.size)
    finally:
        free(out.data)
        PyBuffer_Release(&view)

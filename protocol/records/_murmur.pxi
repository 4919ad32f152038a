# Included by _kernels.pyx: the partition to which the Java clients send a key.


cdef uint32_t murmur2(Bytes p, int32_t size) noexcept nogil:
    cdef uint32_t m = <uint32_t>0x5BD1E995U
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    while size >= 4:
        k = <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24
        k *= m
        k ^= k >> 24
        k *= m
        h *= m
        h ^= k
        p += 4
        size -= 4
    if size > 2:
        h ^= <uint32_t>p[2] << 16
    if size > 1:
        h ^= <uint32_t>p[1] << 8
    if size > 0:
        h ^= <uint32_t>p[0]
        h *= m
    h ^= h >> 13
    h *= m
    return h ^ (h >> 15)


def partitions_of(ends, valid, data, int64_t rows, int32_t count):
    """See kernels_py.partitions_of."""
    cdef Py_buffer ends_view, valid_view, data_view
    cdef Given column
    cdef Bytes content = NULL
    cdef int32_t size = 0
    cdef int64_t row
    cdef int sound = 1
    if rows < 0 or count < 1:
        raise ValueError(f"{rows} keys do not go to {count} partitions")
    out = PyBytes_FromStringAndSize(NULL, 4 * rows)
    cdef int32_t *chosen = <int32_t *>PyBytes_AS_STRING(out)
    PyObject_GetBuffer(ends, &ends_view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(valid, &valid_view, PyBUF_SIMPLE)
        try:
            PyObject_GetBuffer(data, &data_view, PyBUF_SIMPLE)
            try:
                take_column(&column, &ends_view, &valid_view, &data_view, rows)
                with nogil:
                    for row in range(rows):
                        if not given(&column, row, &content, &size):
                            sound = 0
                            break
                        chosen[row] = -1
                        if size >= 0:
                            chosen[row] = <int32_t>((murmur2(content, size) & 0x7FFFFFFF) % <uint32_t>count)
            finally:
                PyBuffer_Release(&data_view)
        finally:
            PyBuffer_Release(&valid_view)
    finally:
        PyBuffer_Release(&ends_view)
    if not sound:
        raise ValueError("the ends of a column do not ascend within its data")
    return out

"""How a life stops: in order, killed, in the middle of a write, without power; and with damaged indexes."""

import struct


def headers(data):
    """Walk over whole batches: (position, size, magic, last offset)."""
    position = 0
    while len(data) - position >= 26:
        offset, size = struct.unpack_from(">qi", data, position)
        magic = data[position + 16]
        if position + 12 + size > len(data):
            return
        last = offset
        if magic == 2:
            last += struct.unpack_from(">i", data, position + 23)[0]
        yield position, 12 + size, magic, last
        position += 12 + size


def stop(life):
    life.store.close()
    life.durable = life.end
    if life.random.random() < 0.4:
        damage(life)
    life.reopen()


def kill(life):
    life.copy()
    if life.random.random() < 0.3:
        damage(life, within_entries=False)
    life.reopen()


def kill_in_write(life):
    """Killed while the last append was being written: a part of it is there."""
    if life.in_flight is None:
        return
    (offset, size), piece = life.in_flight, life.pieces[-1]
    life.copy()
    tear(life, size, piece)
    assert life.end >= offset
    life.let_time_go_on()
    life.reopen()


def lose_power(life):
    """What was not durable may be gone, and nobody knows when the rest was appended.

    The files of closed segments are whole, and say so.
    """
    if life.has_absurd_times:
        return
    life.copy()
    life.boot += 1
    piece, floor = life.pieces[-1], 0
    data, first = life.log_of(piece).read_bytes(), piece.base
    for position, size, _, last in headers(data):
        if first < max(life.durable, life.log_start):  # a trim leaves no half of a batch
            floor = position + size
        first = last + 1
    if life.random.random() < 0.6:
        tear(life, floor, piece)
    for row in life.rows[max(life.durable, piece.base) :]:
        row.append = None
    life.let_time_go_on()
    life.reopen()


def tear(life, floor, piece):
    path = life.log_of(piece)
    data = path.read_bytes()
    cut = life.random.randint(floor, len(data))
    zeros = life.random.choice([0, 0, len(data) - cut])
    torn = data[:cut] + bytes(zeros)
    path.write_bytes(torn)
    while cut < len(torn) and torn[cut] == data[cut]:
        cut += 1  # what was zero before has not been lost
    piece.size, end = 0, piece.base
    for position, size, _, last in headers(data[:cut]):
        piece.size, end = position + size, last + 1
    del life.rows[end:]


def damage(life, *, within_entries=True):
    """Remove, cut or zero some of the files that can be made again.

    Recovery believes the last entry that was durable, for a crash leaves no half of that one; zeros
    at the end of the last segment's index are what a Kafka that was killed leaves, not we.
    """
    last_index = life.log_of(life.pieces[-1]).with_suffix(".index")
    for path in sorted((life.path / "t-0").glob("*index")):
        data = path.read_bytes()
        cut = life.random.randint(0, len(data))
        if not within_entries:
            cut -= cut % (8 if path.suffix == ".index" else 12)
        match life.random.randrange(6):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(data[:cut])
            case 2:
                zeros = 0 if path == last_index and not within_entries else len(data) - cut
                path.write_bytes(data[:cut] + bytes(zeros))

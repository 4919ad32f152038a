"""Small dealings with the operating system: descriptors, whole files, making things durable.

A `Descriptor` is closed when nobody refers to it any more: a reader in another thread keeps
the one it reads from alive, so a number is never closed, and used anew, under its hands.

All that storage reads of its files, writes, names, cuts, removes or makes durable goes through one
`System`. Another may take its place (`use`): one that fails as disks fail, or forgets what was not synced
as a power loss does.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Buffer = bytes | bytearray | memoryview

_MOST_REMOVALS = 10  # a cleaning of a log that was deleted makes fewer files before it notices
_MAX_VECTORS = 512  # Linux takes 1024 buffers at once; beyond this they are joined instead


class System:
    """What storage asks of the operating system; raises OSError."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file, which O_CREAT may make; return its descriptor."""
        return os.open(path, flags | os.O_CLOEXEC, 0o644)

    def read(self, number: int, size: int, position: int) -> bytes:
        """Read from a position; return fewer bytes at the end of the file."""
        return os.pread(number, size, position)

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write buffers at a position; return how many bytes went, which may be fewer."""
        return os.pwritev(number, buffers, position)

    def sync(self, number: int) -> None:
        """Make a file's bytes and size, or a directory's names, durable."""
        os.fsync(number)

    def sync_data(self, number: int) -> None:
        """Make a file's bytes and size durable, and of what describes it only what they need."""
        os.fdatasync(number)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file."""
        os.truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        """Give a file or a directory another name, in place of what has that name."""
        path.rename(target)

    def unlink(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Make a directory that is not there yet."""
        path.mkdir()

    def remove_directory(self, path: Path) -> None:
        """Remove a directory and all it holds, and what is put into it meanwhile."""
        for _ in range(_MOST_REMOVALS - 1):
            try:
                shutil.rmtree(path)
            except OSError as error:
                if error.errno != errno.ENOTEMPTY:
                    raise
            else:
                return
        shutil.rmtree(path)


class SyncError(OSError):
    """What was written may not be on the disk, and asking again would not tell.

    The system may have dropped what it could not write, and says so once.
    """


_system = System()
_read: Callable[[int, int, int], bytes] = os.pread  # without a step between where there is none


def use(system: System) -> System:
    """Let storage deal with another system from now on; return the one before."""
    global _system, _read
    read = os.pread if type(system).read is System.read else system.read
    before, _system, _read = _system, system, read
    return before


class Descriptor:
    """An open file; the last reference that goes closes it."""

    __slots__ = ("number",)

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        """Open `path`; a writable one is made where it does not exist. Raises OSError."""
        self.number = -1
        self.number = _system.open(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def size(self) -> int:
        """Return the size of the file in bytes."""
        return os.fstat(self.number).st_size


class Holder(Protocol):
    """Something that holds descriptors it can open again."""

    def rest(self) -> None:
        """Let go of them."""


class Recent:
    """The holders used last, up to a number: those used least recently are told to rest.

    10,000 partitions have to fit into a plain limit of descriptors. For use by any thread.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._order: OrderedDict[int, weakref.ref[Holder]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def used(self, holder: Holder) -> None:
        """Note that a holder has just been used; it may make another one rest."""
        key = id(holder)
        with self._lock:
            known = self._order.get(key)
            if known is None or known() is not holder:
                self._order[key] = weakref.ref(holder)
            self._order.move_to_end(key)
            if len(self._order) <= self.capacity:
                return
            _, oldest = self._order.popitem(last=False)
        resting = oldest()
        if resting is not None:
            resting.rest()


def write_at(descriptor: Descriptor, buffers: Sequence[Buffer], position: int, size: int) -> None:
    """Write all `size` bytes of the buffers from `position` on; raises OSError when it cannot.

    The usual case is one system call. A short write (a disk about to be full) is carried on until
    the error that caused it shows itself; what was written by then is the caller's to cut off.
    """
    if len(buffers) > _MAX_VECTORS:
        buffers = (b"".join(buffers),)
    written = _system.write(descriptor.number, buffers, position)
    while written < size:
        rest = memoryview(b"".join(buffers))[written:]
        more = _system.write(descriptor.number, (rest,), position + written)
        if more == 0:
            raise OSError(28, "the file takes no more bytes")
        written += more


def read_at(descriptor: Descriptor, size: int, position: int) -> bytes:
    """Read `size` bytes from `position`, fewer only at the end of the file; raises OSError."""
    data = _read(descriptor.number, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]
    have = len(data)
    while have < size:  # one call moves at most 2 GB
        data = _read(descriptor.number, size - have, position + have)
        if not data:
            break
        parts.append(data)
        have += len(data)
    return b"".join(parts)


def sync(path: Path) -> None:
    """Make the bytes of a file, or the names of a directory, durable.

    Opens the file anew: what is to be durable belongs to the file, not to a descriptor, and so no
    descriptor is shared with whoever appends meanwhile. Raises OSError when the file cannot be opened,
    SyncError when the disk fails.
    """
    descriptor = Descriptor(path)
    try:
        _system.sync(descriptor.number)
    except OSError as error:
        raise _sync_error(error) from error


def sync_data(descriptor: Descriptor) -> None:
    """Make the bytes and the size of an open file durable; raises SyncError."""
    try:
        _system.sync_data(descriptor.number)
    except OSError as error:
        raise _sync_error(error) from error


def _sync_error(error: OSError) -> SyncError:
    return SyncError(error.errno, error.strerror, error.filename)


def forget_cached(path: Path) -> None:
    """Let the next read of a file come from the disk as far as the system can do that; raises OSError."""
    descriptor = Descriptor(path)
    os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_DONTNEED)


def replace(path: Path, data: bytes, *, durable: bool = True, losable: bool = False) -> None:
    """Put a whole file in place of another, so that a crash leaves the old or the new one.

    With `durable` the change outlives a power loss once this returns. What can be made anew may be
    `losable`: a power loss may then leave neither. Raises OSError, and SyncError among it.
    """
    temporary = path.with_name(path.name + ".tmp")
    truncate_or_make(temporary)
    file = Descriptor(temporary, writable=True)
    if data:
        write_at(file, (data,), 0, len(data))
    if not losable:  # the name may be on the disk before the bytes are
        sync_data(file)
    rename(temporary, path)
    if durable and not losable:
        sync(path.parent)


def make(path: Path) -> None:
    """Make an empty file, if there is none; raises OSError."""
    Descriptor(path, writable=True)


def truncate_or_make(path: Path) -> None:
    """Leave an empty file there; raises OSError."""
    unlink(path)
    make(path)


def truncate(path: Path, size: int) -> None:
    """Cut a file to a size; raises OSError."""
    _system.truncate(path, size)


def rename(path: Path, target: Path) -> None:
    """Give a file or a directory another name, in place of what has it; raises OSError."""
    _system.rename(path, target)


def unlink(path: Path) -> None:
    """Remove a file, if it is there; raises OSError."""
    _system.unlink(path)


def make_directory(path: Path) -> None:
    """Make a directory that is not there yet; raises OSError."""
    _system.make_directory(path)


def make_directories(path: Path) -> None:
    """Make a directory that may be there, and those above it, durably; raises OSError."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        make_directory(each)
        sync(each.parent)


def remove_directory(path: Path) -> None:
    """Remove a directory and all it holds; raises OSError."""
    _system.remove_directory(path)

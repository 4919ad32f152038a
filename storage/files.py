"""Access to the operating system: descriptors, whole files, and making things durable.

A `Descriptor` is closed when nothing refers to it any more. So a reader in another thread keeps the
one it uses open, and its number cannot be reused meanwhile.

Everything that storage reads, writes, renames, truncates, removes or makes durable goes through one
`System`. Tests replace it (`use`) by one that fails as disks fail, or that loses what was not
synced, as a power loss does.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from tidelog.storage import file_systems, permissions, reserves

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidelog.protocol.wire import Buffer


_MOST_REMOVALS = 10  # a cleaning that has not noticed the deletion writes fewer files than that
_MAX_VECTORS = 512  # Linux takes 1024 buffers at once; beyond this they are joined instead


class System:
    """What storage needs of the operating system; every method raises OSError."""

    def open(self, path: Path, flags: int) -> int:
        """Opens a file, created if the flags hold O_CREAT; returns its descriptor number."""
        return os.open(path, flags | os.O_CLOEXEC, permissions.FILE)

    def read(self, number: int, size: int, position: int) -> bytes:
        """Reads from a position; returns fewer bytes at the end of the file."""
        return os.pread(number, size, position)

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        """Writes buffers at a position; returns the number of bytes written, which may be fewer."""
        return os.pwritev(number, buffers, position)

    def sync(self, number: int) -> None:
        """Makes a file's bytes and size, or a directory's names, durable."""
        os.fsync(number)

    def sync_data(self, number: int) -> None:
        """Makes a file's bytes and size durable, without metadata that reading does not need."""
        os.fdatasync(number)

    def sync_file_system(self, number: int) -> None:
        """Makes all files and names of an open file's file system durable.

        Reports what could not be written since the file was opened, or refuses to try.
        """
        file_systems.sync(number)

    def truncate(self, path: Path, size: int) -> None:
        """Truncates a file to a size."""
        os.truncate(path, size)

    def rename(self, path: Path, target: Path) -> None:
        """Renames a file or a directory, replacing what has the new name."""
        path.rename(target)

    def unlink(self, path: Path) -> None:
        """Removes a file, if it exists."""
        path.unlink(missing_ok=True)

    def make_directory(self, path: Path) -> None:
        """Creates a directory that does not exist yet."""
        path.mkdir(permissions.DIRECTORY)

    def remove_directory(self, path: Path) -> None:
        """Removes a directory with its contents, including files that are added meanwhile."""
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
    """A sync failed: what was written may not be on disk, and another sync would not fail.

    The system may have dropped the pages that it could not write, and reports that only once.
    """


_system = System()
_read: Callable[[int, int, int], bytes] = os.pread  # called directly: the hot path


def use(system: System) -> System:
    """Makes storage use another system from now on; returns the one before."""
    global _system, _read
    read = os.pread if type(system).read is System.read else system.read
    before, _system, _read = _system, system, read
    return before


class Descriptor:
    """An open file, closed when the last reference to it is dropped."""

    __slots__ = ("number",)

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        """Opens `path`, which is created if `writable` and missing. Raises OSError."""
        self.number = -1
        self.number = _system.open(path, os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY)

    def __del__(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def size(self) -> int:
        """Returns the size of the file in bytes."""
        return os.fstat(self.number).st_size

    def is_unlinked(self) -> bool:
        """Returns whether the file has no name any more; raises OSError."""
        return not os.fstat(self.number).st_nlink


class Holder(Protocol):
    """An object that holds descriptors it can open again."""

    def rest(self) -> None:
        """Releases the descriptors."""


class Recent:
    """The most recently used holders, up to a capacity; others are asked to release their descriptors.

    It lets 10,000 partitions work within a usual limit of descriptors. For use by any thread.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lock = threading.Lock()
        self._order: OrderedDict[int, weakref.ref[Holder]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._order)

    def used(self, holder: Holder) -> None:
        """Notes that a holder has just been used.

        The least recently used one may have to release.
        """
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


RECENT = Recent(384)
"""The segments that may hold a descriptor or two; the program that opens logs sets how many."""


def write_at(descriptor: Descriptor, buffers: Sequence[Buffer], position: int, size: int) -> None:
    """Writes all `size` bytes of the buffers from `position` on; raises OSError when it cannot.

    The usual case is one system call. After a short write (the disk is nearly full) it writes on
    until it gets the error; the caller must then truncate what was written.
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
    """Reads `size` bytes from `position`, fewer only at the end of the file; raises OSError."""
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
    """Makes the bytes of a file, or the names in a directory, durable.

    Opens the file by its path, so no descriptor is shared with a thread that appends. Raises
    OSError when the file cannot be opened, SyncError when the disk fails.
    """
    descriptor = Descriptor(path)
    try:
        _system.sync(descriptor.number)
    except OSError as error:
        raise _sync_error(error) from error


def sync_data(descriptor: Descriptor) -> None:
    """Makes the bytes and the size of an open file durable; raises SyncError."""
    try:
        _system.sync_data(descriptor.number)
    except OSError as error:
        raise _sync_error(error) from error


def _sync_error(error: OSError) -> SyncError:
    return SyncError(error.errno, error.strerror, error.filename)


def sync_file_system(number: int) -> None:
    """Makes all that was written to a file system durable, with the names of the files.

    `number` is of a file that was opened before all that. Raises OSError where that is not possible, or
    the disk has failed: then each file has to be made durable alone, which shows which one has failed.
    """
    _system.sync_file_system(number)


def forget_cached(path: Path) -> None:
    """Drops a file from the page cache, as far as the system can; raises OSError."""
    descriptor = Descriptor(path)
    os.posix_fadvise(descriptor.number, 0, 0, os.POSIX_FADV_DONTNEED)


def replace(path: Path, data: bytes, *, durable: bool = True, losable: bool = False) -> None:
    """Replaces a whole file, so that a crash leaves the old one or the new one.

    With `durable` the change survives a power loss once this returns. `losable` is for what can be
    rebuilt: a power loss may then leave neither. On a full disk the reserve is given up for it.
    Raises OSError, including SyncError.
    """
    try:
        _replace(path, data, durable=durable, losable=losable)
    except SyncError:
        raise
    except OSError as error:
        if not reserves.give_up(path, error):
            raise
        _replace(path, data, durable=durable, losable=losable)


def _replace(path: Path, data: bytes, *, durable: bool, losable: bool) -> None:
    temporary = _temporary(path)
    file = _make(temporary, data)
    if not losable:  # otherwise the rename may reach the disk before the bytes
        sync_data(file)
    rename(temporary, path)
    if durable and not losable:
        sync(path.parent)


def stage(path: Path, data: bytes) -> None:
    """Writes what is to replace a whole file beside it, not durably; raises OSError."""
    _make(_temporary(path), data)


def publish(path: Path) -> None:
    """Replaces a file by what was staged, which has to be durable; raises OSError."""
    rename(_temporary(path), path)


def _make(path: Path, data: bytes) -> Descriptor:
    unlink(path)
    file = Descriptor(path, writable=True)
    if data:
        write_at(file, (data,), 0, len(data))
    return file


def _temporary(path: Path) -> Path:
    return path.with_name(path.name + ".tmp")


def make(path: Path) -> None:
    """Creates an empty file if the file does not exist; raises OSError."""
    Descriptor(path, writable=True)


def truncate(path: Path, size: int) -> None:
    """Truncates a file to a size; raises OSError."""
    _system.truncate(path, size)


def rename(path: Path, target: Path) -> None:
    """Renames a file or a directory, replacing what has the new name; raises OSError."""
    _system.rename(path, target)


def unlink(path: Path) -> None:
    """Removes a file, if it exists; raises OSError."""
    _system.unlink(path)


def make_directory(path: Path) -> None:
    """Creates a directory that does not exist yet; raises OSError."""
    _system.make_directory(path)


def make_directories(path: Path) -> None:
    """Creates a directory, unless it exists, and its parents, durably; raises OSError.

    Another process may create the same directories at the same time.
    """
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for each in reversed(missing):
        try:
            make_directory(each)
        except FileExistsError:
            if not each.is_dir():
                raise
        sync(each.parent)


def remove_directory(path: Path) -> None:
    """Removes a directory with its contents; raises OSError."""
    _system.remove_directory(path)

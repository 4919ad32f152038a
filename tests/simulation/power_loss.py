"""A disk that loses power: it forgets, tears and reorders what nobody has made durable.

`Disk` takes the place of `storage.files.System`. It does the real thing in a directory, and notes of
each file and each directory what is durable and what was asked for since. `lose_power` then
makes one of the states a machine may find after the power came back, in another directory:

- of a file: its bytes as of its last sync, and of each later write any sectors, in any order, or none;
  a cut happened or did not; the size may have grown over sectors that hold zeros or old rubbish;
- of a directory: its names as of its last sync, and of the later ones (made, renamed, removed) either
  the first few, as journaling file systems do it, or any of them.

POSIX is taken by its word: to sync a file makes its bytes durable and not its name; that takes a
sync of its directory, whose own name takes one of the directory above it. A rename happens or does not.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from tidelog.storage import files

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tidelog.protocol.wire import Buffer

_BEHIND_OUR_BACK = (".lock",)  # holds nothing


class PowerLoss(BaseException):
    """The machine has stopped. No handler of errors runs in a machine without power."""


class _Cut(NamedTuple):
    """A file was cut to, or grown to, this size."""

    size: int


class _Sector(NamedTuple):
    """A sector as it was after a write; shorter where the file ended in it."""

    position: int
    data: bytes


class File:
    """A file's bytes: the durable ones, what was done since, and how they look to a reader."""

    def __init__(self, data: bytes = b"") -> None:
        self.durable = data
        self.now = bytearray(data)
        self.pending: list[list[_Cut | _Sector]] = []  # a list for each call

    def write(self, data: bytes, position: int, sector: int) -> None:
        if position > len(self.now):
            self.now += bytes(position - len(self.now))
        self.now[position : position + len(data)] = data
        first = position // sector * sector
        self.pending.append(
            [
                _Sector(at, bytes(self.now[at : at + sector]))
                for at in range(first, position + len(data), sector)
            ]
        )

    def truncate(self, size: int) -> None:
        if size < len(self.now):
            del self.now[size:]
        else:
            self.now += bytes(size - len(self.now))
        self.pending.append([_Cut(size)])

    def sync(self) -> None:
        self.durable = bytes(self.now)
        self.pending = []


class Directory:
    """A directory's names: the durable ones, what was done since, and how they look now."""

    def __init__(self) -> None:
        self.durable: dict[str, File | Directory] = {}
        self.now: dict[str, File | Directory] = {}
        self.pending: list[tuple[int, _Change]] = []  # with the number of the call

    def sync(self) -> None:
        self.durable = dict(self.now)
        self.pending = []


class _Change(NamedTuple):
    """A name that went, a name that came, or both at once."""

    gone: str | None
    name: str | None
    node: File | Directory | None

    def apply(self, names: dict[str, File | Directory]) -> None:
        if self.gone is not None:
            names.pop(self.gone, None)
        if self.name is not None:
            assert self.node is not None
            names[self.name] = self.node


class Disk(files.System):
    """The disk under a directory. Whatever is in it at first is durable."""

    def __init__(self, root: Path, *, sector: int = 512) -> None:
        self.root = root
        self.sector = sector
        self.calls = 0
        self.syncs = 0
        self.fails_at: int | None = None  # the call in which the power goes
        self.failing_call_counts = False  # whether that call still reaches the system
        self.is_off = False
        self.skips: Callable[[Path], bool] = lambda path: False  # injected: syncs that do nothing
        self.before_sync: Callable[[], None] = _nothing  # what another thread does meanwhile
        self._files: dict[int, tuple[Path, File | Directory]] = {}
        self._top = _scan(root)
        self._prefix = os.path.join(root, "")

    # --- what storage asks for -------------------------------------------------------------------

    def open(self, path: Path, flags: int) -> int:
        finish = self._begin()
        node = self._find(path)
        number = super().open(path, flags)
        if node is None:
            if not flags & os.O_CREAT:
                assert path.name in _BEHIND_OUR_BACK, f"{path} was made behind the disk's back"
            node = File()
            self._change(path, _Change(None, path.name, node))
        self._files[number] = (path, node)
        finish()
        return number

    def write(self, number: int, buffers: Sequence[Buffer], position: int) -> int:
        finish = self._begin()
        _, node = self._files[number]
        assert isinstance(node, File)
        written = super().write(number, buffers, position)
        node.write(b"".join(buffers)[:written], position, self.sector)
        finish()
        return written

    def sync(self, number: int) -> None:
        self.before_sync()
        finish = self._begin()
        path, node = self._files[number]
        self.syncs += 1
        if not self.skips(path):
            node.sync()
        finish()

    def sync_data(self, number: int) -> None:
        self.sync(number)

    def sync_file_system(self, number: int) -> None:
        finish = self._begin()
        self.syncs += 1
        _sync_below(self._top)
        finish()

    def truncate(self, path: Path, size: int) -> None:
        finish = self._begin()
        super().truncate(path, size)
        node = self._find(path)
        assert isinstance(node, File)
        node.truncate(size)
        finish()

    def rename(self, path: Path, target: Path) -> None:
        finish = self._begin()
        assert path.parent == target.parent, "a rename over directories is not modelled"
        super().rename(path, target)
        node = self._find(path)
        assert node is not None, f"{path} was made behind the disk's back"
        self._change(path, _Change(path.name, target.name, node))
        finish()

    def unlink(self, path: Path) -> None:
        finish = self._begin()
        super().unlink(path)
        if self._find(path) is not None:
            self._change(path, _Change(path.name, None, None))
        finish()

    def make_directory(self, path: Path) -> None:
        finish = self._begin()
        super().make_directory(path)
        self._change(path, _Change(None, path.name, Directory()))
        finish()

    def remove_directory(self, path: Path) -> None:
        """Each file goes by itself, so the power may go in between."""
        for inner in sorted(path.iterdir()):
            if inner.is_dir():
                self.remove_directory(inner)
            else:
                self.unlink(inner)
        finish = self._begin()
        super().remove_directory(path)
        self._change(path, _Change(path.name, None, None))
        finish()

    def _begin(self) -> Callable[[], None]:
        """Count a call; in the one where the power goes it happens, or it does not."""
        if self.is_off:
            raise PowerLoss
        self.calls += 1
        if self.calls != self.fails_at:
            return _nothing
        self.is_off = True
        if self.failing_call_counts:
            return _fail
        raise PowerLoss

    def _change(self, path: Path, change: _Change) -> None:
        parent = self._find(path.parent)
        assert isinstance(parent, Directory), f"{path.parent} was made behind the disk's back"
        change.apply(parent.now)
        parent.pending.append((self.calls, change))

    def has(self, path: Path) -> bool:
        """Return whether a path is the disk's root, or below it."""
        return path == self.root or os.fspath(path).startswith(self._prefix)

    def _find(self, path: Path) -> File | Directory | None:
        node: File | Directory | None = self._top
        if path == self.root:
            return node
        text = os.fspath(path)
        assert text.startswith(self._prefix), f"{path} is not on this disk"
        for name in text[len(self._prefix) :].split(os.sep):
            node = node.now.get(name) if isinstance(node, Directory) else None
        return node

    # --- the end ---------------------------------------------------------------------------------

    def check(self) -> None:
        """Demand that the directory holds what the notes say: nothing went another way."""
        _compare(self._top, self.root)

    def lose_power(self, target: Path, pick: random.Random) -> str:
        """Make in `target` what a machine may find on this disk afterwards; say how it was chosen."""
        self.is_off = True
        chance = pick.choice([0.0, 0.1, 0.5, 0.9, 1.0])
        if pick.random() < 0.5:
            upto = pick.choice([0, pick.randint(0, self.calls), self.calls])

            def happened(call: int) -> bool:
                return call <= upto

            said = f"names up to call {upto} of {self.calls}"
        else:

            def happened(call: int) -> bool:
                return pick.random() < chance

            said = f"any names, {chance}"
        styles = pick.choice([["old"], ["new"], ["first"], ["any", "grown"], _STYLES, _STYLES])
        self._restore(self._top, target, pick, styles, happened)
        return f"{said}; bytes {'/'.join(styles)}"

    def _restore(
        self,
        directory: Directory,
        target: Path,
        pick: random.Random,
        styles: list[str],
        happened: Callable[[int], bool],
    ) -> None:
        target.mkdir()
        names = dict(directory.durable)
        for call, change in directory.pending:
            if happened(call):
                change.apply(names)
        for name, node in sorted(names.items()):
            if isinstance(node, Directory):
                self._restore(node, target / name, pick, styles, happened)
            else:
                (target / name).write_bytes(after_loss(node, pick, pick.choice(styles)))


_STYLES = ["old", "new", "first", "any", "any", "grown"]


def after_loss(file: File, pick: random.Random, style: str) -> bytes:
    """Choose what is left of a file's bytes.

    old: none of the later changes; new: all; first: the first few, the last of them torn;
    any: any sectors and cuts; grown: the same, and the size has grown without the bytes.
    """
    if not file.pending or style == "old":
        return file.durable
    if style == "new":
        return bytes(file.now)
    pieces = [piece for call in file.pending for piece in call]
    if style == "first":
        kept = pieces[: pick.randint(0, len(pieces))]
    else:
        chance = pick.choice([0.2, 0.5, 0.9])
        kept = [piece for piece in pieces if pick.random() < chance]
    data, fill = bytearray(file.durable), pick.choice([_zeros, _zeros, _rubbish, _earlier])
    for piece in kept:
        if isinstance(piece, _Cut):
            if piece.size < len(data):
                del data[piece.size :]
            else:
                data += bytes(piece.size - len(data))
            continue
        if piece.position > len(data):
            data += fill(pick, piece.position - len(data), file)
        data[piece.position : piece.position + len(piece.data)] = piece.data
    if style == "grown" and len(data) < len(file.now):
        size = pick.choice([len(file.now), pick.randint(len(data), len(file.now))])
        data += fill(pick, size - len(data), file)
    return bytes(data)


def _zeros(pick: random.Random, size: int, file: File) -> bytes:
    return bytes(size)


def _rubbish(pick: random.Random, size: int, file: File) -> bytes:
    return pick.randbytes(size)


def _earlier(pick: random.Random, size: int, file: File) -> bytes:
    """What the file itself has elsewhere: whole batches and entries, in the wrong place."""
    data = bytes(file.now) or bytes(1)
    return (data * (size // len(data) + 1))[:size]


def _sync_below(directory: Directory) -> None:
    directory.sync()
    for node in directory.now.values():
        if isinstance(node, Directory):
            _sync_below(node)
        else:
            node.sync()


def _scan(path: Path) -> Directory:
    directory = Directory()
    for inner in path.iterdir():
        directory.now[inner.name] = _scan(inner) if inner.is_dir() else File(inner.read_bytes())
    directory.sync()
    return directory


def _compare(directory: Directory, path: Path) -> None:
    there = {inner.name for inner in path.iterdir() if inner.name not in _BEHIND_OUR_BACK}
    assert there == set(directory.now) - set(_BEHIND_OUR_BACK), path
    for name in there:
        node = directory.now[name]
        if isinstance(node, Directory):
            _compare(node, path / name)
        else:
            assert (path / name).read_bytes() == bytes(node.now), path / name


def _nothing() -> None:
    pass


def _fail() -> None:
    raise PowerLoss

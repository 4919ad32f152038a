"""Serves our packages as `tidelog._house.<room>`, in any process, beside any packages of the user's.

The sources import each other by short names (`from protocol.records import layout`). This finder
loads them under `tidelog._house`, and its loader rewrites those imports: in the syntax tree of our
own modules, before it is compiled. So a user's `config` or `storage` and ours never meet, in
whichever order they are imported. Byte code is cached beside Python's own, under another tag, as
pytest caches its rewritten tests. Where the cache cannot be written, modules are compiled anew.

Imports in the compiled kernels are relative, and need no rewriting.
"""

from __future__ import annotations

import contextlib
import importlib.util
import marshal
import os
import sys
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType

ROOMS = ("config", "protocol", "storage", "client", "broker", "pipeline")
HOUSE = __name__.rpartition(".")[0]
_PREFIX = f"{HOUSE}."
_TAG = f"tidelog1{sys.flags.optimize or ''}"  # the number changes with what `rewritten` does


def rewritten(tree: ast.Module) -> ast.Module:
    """Returns a syntax tree in which absolute imports of our packages name them in full."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and _is_ours(node.module or ""):
            node.module = f"{_PREFIX}{node.module}"
        elif isinstance(node, ast.Import):
            node.names = [new for old in node.names for new in _named_in_full(old)]
    return tree


def _named_in_full(alias: ast.alias) -> list[ast.alias]:
    import ast

    if not _is_ours(alias.name):
        return [alias]
    room = alias.name.partition(".")[0]
    full = ast.alias(name=f"{_PREFIX}{alias.name}", asname=alias.asname or room)
    if alias.asname or alias.name == room:
        return [full]
    # `import protocol.wire` loads a module and binds its package.
    return [full, ast.alias(name=f"{_PREFIX}{room}", asname=room)]


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ROOMS


class _Loader(SourceFileLoader):
    """Loads one of our modules with its imports rewritten."""

    def source_to_code(  # type: ignore[override]
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> CodeType:
        """Compiles a source."""
        import ast

        tree = rewritten(ast.parse(data, path))
        code: CodeType = compile(tree, path, "exec", dont_inherit=True, optimize=_optimize)
        return code

    def get_code(self, fullname: str) -> CodeType | None:
        """Returns the code of a module, from the cache if that is of the same source."""
        path = self.get_filename(fullname)
        cache = Path(importlib.util.cache_from_source(path, optimization=_TAG))
        status = self.path_stats(path)
        head = importlib.util.MAGIC_NUMBER + b"".join(
            (int(number) & 0xFFFFFFFF).to_bytes(4, "little")
            for number in (0, status["mtime"], status["size"])
        )
        with contextlib.suppress(OSError, EOFError, ValueError, TypeError):
            cached = cache.read_bytes()
            if cached.startswith(head):
                code: CodeType = marshal.loads(cached[len(head) :])  # noqa: S302 - as Python's own cache
                return code
        compiled = self.source_to_code(self.get_data(path), path)
        if not sys.dont_write_bytecode:
            _write(cache, head + marshal.dumps(compiled))
        return compiled


def _write(cache: Path, data: bytes) -> None:
    """Writes a cache file whole, or not at all; without the right to write there is none."""
    with contextlib.suppress(OSError):
        cache.parent.mkdir(exist_ok=True)
        new = cache.with_name(f"{cache.name}.{os.getpid()}")
        new.write_bytes(data)
        new.replace(cache)


class HouseFinder:
    """Finds `tidelog._house.<room>` and everything below; no other name."""

    def __init__(self, directory: Path) -> None:
        self._directory = str(directory)
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the spec of one of our modules; None for all others."""
        if not fullname.startswith(_PREFIX) or not _is_ours(fullname.removeprefix(_PREFIX)):
            return None
        is_room = fullname.removeprefix(_PREFIX) in ROOMS
        for place in [self._directory] if is_room else path or ():
            finder = self._finders.get(place)
            if finder is None:
                compiled = (ExtensionFileLoader, EXTENSION_SUFFIXES)
                finder = FileFinder(place, compiled, (_Loader, SOURCE_SUFFIXES))
                self._finders[place] = finder
            spec = finder.find_spec(fullname)
            if spec is not None and spec.loader is not None:
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Forgets what the directories contained."""
        for finder in self._finders.values():
            finder.invalidate_caches()


def install(directory: Path) -> None:
    """Lets our packages be found in a directory, before any other finder; once for each process."""
    if not any(type(finder) is HouseFinder for finder in sys.meta_path):
        sys.meta_path.insert(0, HouseFinder(directory))

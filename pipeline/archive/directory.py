"""An archive as Parquet files and manifests in a directory or object store, as the place of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.pipeline.archive import manifests, writing
from tidelog.pipeline.archive.manifests import Archive
from tidelog.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tidelog.pipeline.archive.manifests import Manifest
    from tidelog.pipeline.archive.store import FileStore
    from tidelog.pipeline.archive.writing import Chunk, Written


class Directory:
    """A store with manifests. See `iceberg.Table` for the other place."""

    def __init__(self, store: FileStore) -> None:
        self._store = store

    @property
    def write(self) -> Callable[[Chunk], Written]:
        """The task that writes."""
        return writing.write

    def locked(self) -> AbstractContextManager[None]:
        """Locks a local archive against other runs. Raises PipelineError if it is locked."""
        return self._store.locked()

    def read(self) -> Archive:
        """Returns what is archived. Raises PipelineError and OSError."""
        return Archive.read(self._store)

    def is_done(self, run: str) -> bool:
        """Returns whether the manifest of this run is there. Raises PipelineError for another job's."""
        done = self.read().of_run(run)
        if done is not None:
            done.refuse_other(manifests.ARCHIVE)
        return done is not None

    def target(self) -> FileStore:
        """Returns where tasks write."""
        return self._store

    def commit(self, made: Manifest, before: Archive, recheck: Callable[[Archive], None]) -> None:
        """Publishes the manifest of a run. Raises PipelineError if it does not adjoin the others."""
        if self._store.is_remote:  # for stores without locks
            now = self.read()
            if len(now.manifests) != len(before.manifests):
                recheck(now)
        problems = Archive([*before.manifests, made]).problems()
        if problems:
            raise PipelineError(f"nothing was archived, for {problems[0]}")
        self._store.publish(made.name, made.encoded())

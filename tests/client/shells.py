"""The asyncio client for tests that are no coroutines."""

from __future__ import annotations

import asyncio

from tidelog.client.async_client import AsyncClient


class Asyncio:
    """An AsyncClient with an event loop of its own, and the methods of `Client` that tests use."""

    def __init__(self, bootstrap, **options):
        self.runner = asyncio.Runner()
        self.client = AsyncClient(bootstrap, **options)

    def perform(self, call):
        return self.runner.run(self.client.perform(call))

    def close(self):
        self.runner.run(self.client.close())
        self.runner.close()

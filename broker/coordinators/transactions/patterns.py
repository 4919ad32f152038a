"""Matches transactional ids with a regular expression of a client, in a process of its own.

Python's regular expressions try again from an earlier place: a short one can run for years on a short id, and
nothing interrupts it. Kafka's cannot run long (RE2). So the match runs where the system ends it after
`CPU_S`. One expression at a time is matched, and no request waits longer than `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from tidelog.broker.network.scheduler import listed
from tidelog.broker.timer import timeout
from tidelog.protocol.errors import InvalidRegularExpression

if TYPE_CHECKING:
    from collections.abc import Iterable

CPU_S: Final = 2
PATIENCE_S: Final = 10.0
_LONGEST: Final = 1_000
"""Characters of an expression."""
# Reads the expression and the ids, one a line, and prints the positions of those that match.
_PROGRAM = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
try:
    matches = re.compile(json.loads(sys.stdin.readline())).fullmatch
except (re.error, OverflowError, RecursionError) as error:
    answer = {{"error": str(error)}}
else:
    answer = {{"matched": [at for at, line in enumerate(sys.stdin) if matches(json.loads(line))]}}
json.dump(answer, sys.stdout)
"""


class Patterns:
    """The regular expressions of one broker's clients."""

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def matching(self, pattern: str, ids: Iterable[str]) -> list[int]:
        """Returns the positions of the ids that match as a whole.

        Raises InvalidRegularExpression, also for one that is long or runs long.
        """
        if len(pattern) > _LONGEST:
            raise InvalidRegularExpression(f"a pattern has up to {_LONGEST} characters")
        lines = await listed(json.dumps(each).encode() + b"\n" for each in (pattern, *ids))
        try:
            async with timeout(PATIENCE_S), self._one:
                answer = await _run(lines)
        except TimeoutError:
            raise InvalidRegularExpression(
                f"pattern {pattern!r} was not matched within {PATIENCE_S:g} s"
            ) from None
        except (OSError, ValueError) as error:
            raise InvalidRegularExpression(
                f"pattern {pattern!r} could not be matched: {error}"
            ) from None
        if "error" in answer:
            raise InvalidRegularExpression(f"pattern {pattern!r}: {answer['error']}")
        matched: list[int] = answer["matched"]
        return matched


async def _run(lines: Iterable[bytes]) -> dict[str, Any]:
    """Returns the output of a process that matches an expression with ids.

    Raises OSError, and ValueError if it ends without a word: its time was over.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-ISc",
        _PROGRAM,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.writelines(lines)
        process.stdin.close()
        output = await process.stdout.read()
        if not output:
            raise ValueError(f"it runs for more than {CPU_S} s")
        answer: dict[str, Any] = json.loads(output)
        return answer
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

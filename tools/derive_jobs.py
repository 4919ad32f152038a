"""Writes tidelog/jobs/__init__.pyi, the types of the jobs' functions, from the options of the jobs.

`python tools/derive_jobs.py` writes the file. With `--check` it writes nothing and exits with status
1 if the file is stale.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import tidelog.jobs
from tidelog.jobs.results import Result
from tools.derived import write_or_check

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = ROOT / "tidelog" / "jobs" / "__init__.pyi"

_HEAD = """\
# This file is derived from the options of the jobs by `make derive`; do not edit it.

import datetime as dt
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

{imports}
SparkSession: TypeAlias = Any
Value: TypeAlias = str | int | float | os.PathLike[str] | dt.datetime | dt.timedelta
Values: TypeAlias = Value | Iterable[Value]

class JobError(Exception): ...
class UsageError(JobError): ...

class Refused(JobError):
    result: Result | None

class SetupError(JobError): ...

"""


def page() -> str:
    """Returns the whole file."""
    public = [(name, getattr(tidelog.jobs, name)) for name in sorted(tidelog.jobs.__all__)]
    results = [name for name, one in public if inspect.isclass(one) and issubclass(one, Result)]
    imports = "".join(f"from tidelog.jobs.results import {one} as {one}\n" for one in results)
    functions = "".join(_function(name, one) for name, one in public if inspect.isfunction(one))
    return _HEAD.format(imports=imports) + functions


def _function(name: str, function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    lines = "".join(f"    {line},\n" for line in _parameters(signature))
    return f"def {name}(\n{lines}) -> {signature.return_annotation.__name__}: ...\n"


def _parameters(signature: inspect.Signature) -> Iterator[str]:
    is_starred = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not is_starred:
            is_starred = True
            yield "*"
        default = "" if one.default is one.empty else f" = {one.default!r}"
        yield f"{one.name}: {one.annotation}{default}"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))

"""Builds the compiled kernels with sanitizers, beside the usual ones, and fuzzes them.

    python tools/fuzz_kernels.py [--build-dir DIR] [--source FILE] [pytest arguments]

The kernels (protocol/records/_kernels.pyx) are C without Python's checks. AddressSanitizer and
UndefinedBehaviorSanitizer end the process with a report at the first read or write outside of a buffer, or
the first operation without a defined result. Python's own allocator would hide such reads from them, so
the system's is used. Exit status: that of pytest, or 3 where the compiler has no sanitizers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "protocol/records/_kernels.pyx"
TESTS = [f"tests/protocol/records/test_{name}.py" for name in ("fuzz", "kernels")]
FLAGS = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
    "-g",
    "-O1",
]
NO_SANITIZERS = 3


def sanitizers(compiler: str) -> list[str]:
    """Returns the libraries that have to be loaded first; none where the compiler has no sanitizers."""
    found = []
    for name in ("libasan.so", "libubsan.so"):
        try:
            said = subprocess.run(
                [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
            ).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return []
        if not Path(said).is_absolute():  # it repeats a name that it does not know
            return []
        found.append(said)
    return found


def build(source: Path, directory: Path, compiler: str) -> Path:
    """Compiles kernels with sanitizers into a directory, unless they are there; returns the module."""
    directory.mkdir(parents=True, exist_ok=True)
    c_file, module = directory / "_kernels.c", directory / "_kernels.so"
    parts = [source, *SOURCE.parent.glob("*.pxi"), Path(__file__)]
    if module.exists() and module.stat().st_mtime > max(part.stat().st_mtime for part in parts):
        return module
    cython = [sys.executable, "-m", "cython", "-3", "-I", str(SOURCE.parent)]
    subprocess.run([*cython, str(source), "-o", str(c_file)], check=True, cwd=ROOT)
    include = sysconfig.get_path("include")
    flags = ["-shared", "-fPIC", f"-I{include}", *FLAGS]
    subprocess.run([compiler, *flags, str(c_file), "-o", str(module)], check=True)
    return module


def fuzz(module: Path, libraries: list[str], arguments: list[str]) -> int:
    """Runs the tests of records with these kernels; returns the exit status."""
    environment = os.environ | {
        "TIDELOG_KERNELS_FILE": str(module),
        "LD_PRELOAD": " ".join(libraries),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python's own leaks would be all that is found
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    plugin = ["-p", "tests.protocol.records.sanitized", "-p", "no:xdist"]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, *(arguments or TESTS)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def main() -> int:
    """Builds and fuzzes; returns the exit status."""
    parser = argparse.ArgumentParser(description="Fuzz the compiled kernels under sanitizers.")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/sanitized")
    parser.add_argument("--source", type=Path, default=SOURCE, help="other kernels than those here")
    options, arguments = parser.parse_known_args()
    compiler = os.environ.get("CC", "gcc")
    libraries = sanitizers(compiler)
    if not libraries:
        print(f"{compiler} has no address and undefined-behaviour sanitizers", file=sys.stderr)
        return NO_SANITIZERS
    module = build(options.source, options.build_dir, compiler)
    return fuzz(module.resolve(), libraries, arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Builds the compiled record kernels; everything else is declared in pyproject.toml.

The extension is optional: without a C compiler the install succeeds and the pure Python twin
(protocol/records/kernels/kernels_py.py) serves, which the broker says loudly at start.
"""

from setuptools import Extension, setup


def kernels() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extension = Extension(
        "tidelog.protocol.records._kernels",
        ["protocol/records/_kernels.pyx"],
        extra_compile_args=["-O3", "-g0"],  # debugging symbols take seconds and megabytes
    )
    built = list(cythonize([extension], language_level=3))
    for each in built:
        each.optional = True  # said here because cythonize forgets it
    return built


setup(ext_modules=kernels())

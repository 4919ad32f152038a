"""Builds the compiled record kernels; everything else is declared in pyproject.toml.

The extension is optional: without a C compiler the install succeeds and the pure Python twin
(protocol/records/kernels_py.py) serves, which the broker says loudly at start.
"""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError


class BuildKernels(build_ext):
    """Builds the extension; a compiler that is not there counts as one that failed: optional."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except OSError as error:
            raise CompileError(f"no compiler: {error}") from error


def kernels() -> list[Extension]:
    try:
        from Cython.Build import cythonize
    except ImportError:
        return []
    extension = Extension(
        "tidelog._house.protocol.records._kernels",
        ["protocol/records/_kernels.pyx"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    return list(cythonize([extension], language_level=3))


setup(ext_modules=kernels(), cmdclass={"build_ext": BuildKernels})

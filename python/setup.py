"""Puts the shared library into the wheel: LIBGRAPEVINE where it names one, otherwise built here by CMake.

The binding is ctypes, so one wheel serves every Python 3 of this kind of machine.
"""
import os
import shutil
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from wheel.bdist_wheel import bdist_wheel

HERE = Path(__file__).resolve().parent
TREE = HERE.parent


def library() -> Path:
    given = os.environ.get("LIBGRAPEVINE")
    if given:
        return Path(given)
    folder = TREE / "build" / "release"
    if not (folder / "CMakeCache.txt").exists():
        subprocess.check_call(["cmake", "-S", str(TREE), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release"])
    subprocess.check_call(["cmake", "--build", str(folder), "--target", "grapevine_shared"])
    return folder / "libgrapevine.so"


class BuildWithLibrary(build_py):
    def run(self) -> None:
        super().run()
        target = Path(self.build_lib) / "grapevine" / "libgrapevine.so"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(library(), target)


class PlatformWheel(bdist_wheel):
    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": PlatformWheel})

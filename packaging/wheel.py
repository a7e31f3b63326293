"""Packs an installation of optc as a wheel: wheel.py PREFIX VERSION OUT.

The wheel holds the installation below optc/_tool, the Python package optc, and the command `optc`. The package `wheel` writes its record
and its name. Its platform tag is that of the C library that the build ran on, which is the oldest it is known to run on.
"""

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

METADATA = """Metadata-Version: 2.1
Name: optc
Version: {version}
Summary: ONNX optimizer and ahead-of-time compiler: models become C++17 and PTX source that needs no framework
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: load
Requires-Dist: numpy; extra == "load"
Provides-Extra: verify
Requires-Dist: onnxruntime; extra == "verify"
Description-Content-Type: text/markdown

"""


def main():
    prefix, version, out = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    here = pathlib.Path(__file__).resolve().parent
    libc, number = platform.libc_ver()
    if libc != "glibc":
        sys.exit("wheel.py: only for glibc")
    tag = f"py3-none-manylinux_{number.replace('.', '_')}_{platform.machine()}"
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder) / f"optc-{version}"
        shutil.copytree(here / "python", root, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(prefix, root / "optc/_tool")
        info = root / f"optc-{version}.dist-info"
        (info / "licenses").mkdir(parents=True)
        docs = prefix / "share/doc/optc"
        shutil.copy(docs / "LICENSE", info / "licenses/LICENSE")
        for licence in sorted((docs / "third-party").iterdir()):
            shutil.copy(licence, info / "licenses" / licence.name)
        (info / "METADATA").write_text(METADATA.format(version=version) + (docs / "README.md").read_text())
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: optc\nRoot-Is-Purelib: false\nTag: {tag}\n")
        (info / "entry_points.txt").write_text("[console_scripts]\noptc = optc.__main__:main\n")
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "315532800"}
        subprocess.run([sys.executable, "-m", "wheel", "pack", root, "-d", out], env=environment, check=True, stdout=subprocess.DEVNULL)


main()

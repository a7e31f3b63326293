"""optc from Python: the compiler, and the models that it made.

    import optc
    optc.compile("model.onnx", "bundle", "--target=cpu,sm_90a")   # the words of `optc MODEL -o DIR`
    model = optc.load("bundle")                                    # builds its library where it must
    outputs = model(x=array)                                       # a dict of arrays

The command `optc` (or `python -m optc`) is the same program. `load` needs NumPy, CMake and a C++17 compiler.
"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

__all__ = ["Error", "compile", "executable", "load", "run"]


class Error(RuntimeError):
    """What optc, CMake or the C++ compiler said; `code` is the exit code."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


def executable():
    """The path of the program."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "_tool", "bin", "optc")


def environment():
    """That of the program: `verify` and `bench` ask ONNX Runtime of this Python, unless OPTC_PYTHON names another."""
    return {"OPTC_PYTHON": sys.executable, **os.environ}


def _call(command):
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    if done.returncode:
        raise Error(done.returncode, done.stderr.strip() or done.stdout.strip())
    return done.stdout


def run(*words):
    """Runs optc with these words; returns what it prints. Raises Error where it fails."""
    return _call([executable(), *(os.fspath(word) for word in words)])


def compile(model, folder, *options):
    """Compiles a model into a bundle."""
    return run("compile", model, "-o", folder, *options)


def load(bundle, **options):
    """The model of a bundle. Its library is built in the bundle's folder `build` where it is missing or older than the sources. `options`:
    those of the bundle's class Model (threads, device, weights_path ...)."""
    bundle = pathlib.Path(bundle).resolve()
    name = json.loads((bundle / "manifest.json").read_text())["name"]
    if "library" not in options:
        build = bundle / "build"
        _call(["cmake", "-S", bundle, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DBUILD_SHARED_LIBS=ON"])
        _call(["cmake", "--build", build, "--target", name, "--parallel", str(len(os.sched_getaffinity(0)))])
        options["library"] = str(build / f"lib{name}.so")
    spec = importlib.util.spec_from_file_location(name, bundle / "python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model(**options)

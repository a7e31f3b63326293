"""optc doctor: what is there and what is not, in surroundings made for it."""

import json
import pathlib
import subprocess
import sys

import cases
import pytest


def doctor(optc, code=0, **environment):
    done = subprocess.run([optc, "doctor", "--format=json"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, (done.stdout, done.stderr)
    said = json.loads(done.stdout)
    assert said["ready"] == (code == 0)
    return {f["name"]: f for f in said["findings"]}, done.stderr


@pytest.fixture
def around(tmp_path):
    return {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "OPTC_PYTHON": sys.executable, "OPTC_LIBCUDA": "/nonexistent/libcuda.so"}


def test_all_that_builds_bundles_is_there(optc, around, tmp_path):
    found, _ = doctor(optc, **around)
    for name in ("optc's files", "C++ compiler", "CMake", "cache", "ONNX Runtime"):
        assert found[name]["there"] and not found[name]["help"], found[name]
    assert "C++17" in found["C++ compiler"]["what"] and str(tmp_path) in found["cache"]["what"]
    assert not found["GPU driver"]["there"] and "CPU" in found["GPU driver"]["help"]
    text = subprocess.run([optc, "doctor"], env=around, capture_output=True, text=True, timeout=120)
    assert text.returncode == 0 and "ok       CMake" in text.stdout and "-        GPU driver" in text.stdout and not text.stderr


def test_what_is_missing_is_said_with_what_to_install(optc, around, tmp_path):
    found, said = doctor(optc, 1, **{**around, "PATH": "/nonexistent", "OPTC_PYTHON": "/nonexistent/python", "OPTC_CACHE": "/proc/none"})
    for name in ("C++ compiler", "CMake", "cache"):
        assert found[name]["needed"] and not found[name]["there"] and found[name]["help"], found[name]
    assert not found["ONNX Runtime"]["there"] and "pip install" in found["ONNX Runtime"]["help"]
    assert "C++ compiler, CMake, cache" in said


def test_a_compiler_that_builds_nothing_is_found(optc, around, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo old 1.0 && exit 0\nexit 1\n")
    broken.chmod(0o755)
    found, _ = doctor(optc, 1, **{**around, "CXX": str(broken)})
    assert "does not build" in found["C++ compiler"]["what"]
    found, _ = doctor(optc, 0, **{**around, "CXX": "clang++"} if pathlib.Path("/usr/bin/clang++").exists() else around)
    assert found["C++ compiler"]["there"]


def test_a_library_that_is_no_driver(optc, around):
    libm = next((p for p in pathlib.Path("/lib/x86_64-linux-gnu").glob("libm.so.6")), None)
    if libm is None:
        pytest.skip("no libm.so.6 where Debian has it")
    found, _ = doctor(optc, **{**around, "OPTC_LIBCUDA": str(libm)})
    assert "no CUDA driver" in found["GPU driver"]["what"]


def test_the_emulated_card(optc, around):
    driver = cases.emulated_driver(optc.parent)
    if driver is None:
        pytest.skip("the emulated driver is not built")
    found, _ = doctor(optc, **{**around, "OPTC_LIBCUDA": str(driver)})
    assert found["GPU driver"]["there"] and "sm_" in found["GPU 0"]["what"]

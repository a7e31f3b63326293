"""A newcomer's day: the wheel and the .deb in an emptied environment, from the package to programs that use a bundle."""

import os
import pathlib
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest

pytestmark = pytest.mark.tier2
ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "docs/guide/digits.onnxtxt"


def call(*command, path="/usr/bin:/bin", cwd=None, home=None, **more):
    """A command with nothing of this environment but the folders of programs."""
    environment = {"PATH": path, "HOME": str(home or cwd or "/nonexistent"), **more}
    done = subprocess.run(list(map(str, command)), env=environment, cwd=cwd, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout


@pytest.fixture(scope="module")
def packages(optc, tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run([ROOT / "packaging/package.sh", optc.parent.parent, out, "deb", "wheel"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return {path.suffix: path for path in out.iterdir()}


@pytest.fixture(scope="module")
def venv(packages, tmp_path_factory):
    """A Python environment with the wheel and, for arrays, NumPy as the tests have it."""
    folder = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pins = (ROOT / "tests/requirements.txt").read_text().replace("\\\n", " ")
    (folder / "numpy.txt").write_text(next(line for line in pins.splitlines() if line.startswith("numpy==")))
    call(folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "--only-binary=:all:", "--require-hashes", "-r", folder / "numpy.txt", home=folder)
    call(folder / "bin/pip", "install", "-q", "--disable-pip-version-check", "--no-index", packages[".whl"], home=folder)
    return folder


def use_bundle(bundle, work):
    """Builds and installs a bundle, and a program that uses it by find_package and by pkg-config."""
    prefix = work / "prefix"
    call("cmake", "-S", bundle, "-B", work / "build", "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_INSTALL_PREFIX={prefix}", cwd=work)
    call("cmake", "--build", work / "build", cwd=work)
    call("cmake", "--install", work / "build", cwd=work)
    app = work / "app"
    app.mkdir()
    (app / "main.cpp").write_text((bundle / "examples/main.cpp").read_text())
    (app / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.16)\nproject(app CXX)\nfind_package(digits REQUIRED)\nadd_executable(app main.cpp)\ntarget_link_libraries(app PRIVATE digits::digits)\n")
    call("cmake", "-S", app, "-B", app / "build", f"-DCMAKE_PREFIX_PATH={prefix}", cwd=work)
    call("cmake", "--build", app / "build", cwd=work)
    assert "scores" in call(app / "build/app", cwd=work)
    config = next(prefix.rglob("pkgconfig/*.pc")).parent
    flags = call("pkg-config", "--cflags", "--libs", "--static", "digits", cwd=work, PKG_CONFIG_PATH=str(config)).split()
    call("c++", "-std=c++17", app / "main.cpp", "-o", work / "by_pkg_config", *flags, cwd=work)
    assert "scores" in call(work / "by_pkg_config", cwd=work)


def test_the_wheel_in_an_emptied_environment(venv, tmp_path):
    path = f"{venv / 'bin'}:/usr/bin:/bin"
    assert re.fullmatch(r"\d+\.\d+\.\d+\n?", call("optc", "--version", path=path, cwd=tmp_path))
    call("optc", MODEL, "-o", "digits", "--name=digits", "--target=cpu,sm_90a", path=path, cwd=tmp_path)  # PTX included
    assert list((tmp_path / "digits").rglob("*ptx*"))
    use_bundle(tmp_path / "digits", tmp_path)
    (tmp_path / "use.py").write_text(
        "import numpy as np, optc\n"
        f"optc.compile({str(MODEL)!r}, 'again', '--name=digits')\n"
        "model = optc.load('again')\n"
        "x = np.arange(128, dtype=np.float32).reshape(2, 1, 8, 8) / 128\n"
        "np.save('x.npy', x)\n"
        "np.save('y.npy', model(image=x)['scores'])\n"
        "try:\n    optc.run('inspect', 'nothing.onnx')\nexcept optc.Error as error:\n    assert error.code == 2 and 'nothing.onnx' in str(error)\n"
        "else:\n    raise SystemExit('no error')\n")
    call("python", "use.py", path=path, cwd=tmp_path)
    (tmp_path / "in").mkdir()
    os.rename(tmp_path / "x.npy", tmp_path / "in/input_0.npy")
    call("python", "-m", "optc", "run", MODEL, "--engine=evaluate", "--inputs=in", "--outputs=out", path=path, cwd=tmp_path)
    want = np.load(tmp_path / "out/output_0.npy") if (tmp_path / "out/output_0.npy").exists() else None
    if want is None:
        onnx = pytest.importorskip("onnx")
        want = onnx.numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes()))
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), want, rtol=1e-5, atol=1e-6)


def test_the_deb_unpacked(packages, tmp_path):
    root = tmp_path / "root"
    call("dpkg-deb", "-x", packages[".deb"], root, cwd=tmp_path)
    control = call("dpkg-deb", "-f", packages[".deb"], cwd=tmp_path)
    for package in ("libc6", "libfmt", "libstdc++6"):
        assert re.search(rf"^Depends:.*{re.escape(package)}", control, re.M), control
    assert not list(root.rglob("libfmt*"))  # that of the distribution
    program = root / "usr/bin/optc"
    call(program, MODEL, "-o", "digits", "--name=digits", "--target=cpu,sm_90a", cwd=tmp_path)
    use_bundle(tmp_path / "digits", tmp_path)
    assert "convert" in (root / "usr/share/man/man1/optc.1").read_text()
    call("bash", "-n", root / "usr/share/bash-completion/completions/optc", cwd=tmp_path)


def test_licences_of_what_is_linked_are_in_both(packages, tmp_path):
    call("dpkg-deb", "-x", packages[".deb"], tmp_path, cwd=tmp_path)
    there = {path.stem: path.read_text(errors="replace") for path in (tmp_path / "usr/share/doc/optc/third-party").iterdir()}
    with zipfile.ZipFile(packages[".whl"]) as wheel:
        held = {pathlib.Path(name).stem for name in wheel.namelist() if "/licenses/" in name}
    for name in ("onnx", "protobuf", "fmt", "cli11", "nlohmann-json", "xxhash", "llvm"):
        assert len(there[name]) > 500 and name in held
    assert "LICENSE" in held


def test_packages_hold_no_time(packages, optc, tmp_path):
    done = subprocess.run([ROOT / "packaging/package.sh", optc.parent.parent, tmp_path, "wheel"], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert next(tmp_path.glob("*.whl")).read_bytes() == packages[".whl"].read_bytes()

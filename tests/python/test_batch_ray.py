"""examples/batch_ray: a data set of files through a bundle in two worker processes of Ray; answers are those of magika's own program."""

import csv
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from example_programs import EXAMPLES, from_wheel

pytestmark = pytest.mark.tier2
HERE = EXAMPLES / "batch_ray"


@pytest.fixture(scope="module")
def ray_python():
    """A Python with Ray, in the cache of downloads; made at first use."""
    requirements = HERE / "requirements.txt"
    cache = pathlib.Path(os.environ.get("OPTC_CACHE", pathlib.Path.home() / ".cache/optc"))
    folder = cache / f"ray-{hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        done = subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", requirements], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(folder)
            pytest.skip(f"Ray cannot be fetched: {done.stderr.strip().splitlines()[-1:]}")
        (folder / "ready").touch()
    return folder / "bin/python"


def test_types_of_a_folder_of_files(optc, ray_python, tmp_path):
    requirement = EXAMPLES / "filetype/magika-wheel.txt"
    model = from_wheel(requirement, "magika/models/standard_v3_3/model.onnx")
    for member in ("magika/models/standard_v3_3/config.min.json", "magika/config/content_types_kb.min.json"):
        from_wheel(requirement, member)
    subprocess.run([optc, model, "-o", tmp_path / "filetypes", "--name", "filetypes", "-q"], check=True)
    for command in (["cmake", "-G", "Ninja", "-S", tmp_path / "filetypes", "-B", tmp_path / "filetypes/build", "-DBUILD_SHARED_LIBS=ON"], ["ninja", "-C", tmp_path / "filetypes/build", "filetypes"]):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    answers = {}
    for line in (EXAMPLES / "filetype/expected.tsv").read_text().splitlines():
        if not line.startswith("#"):
            name, kind, score = line.split("\t")
            answers[name] = (kind, float(score))
    files = tmp_path / "files"
    for copy in range(10):
        shutil.copytree(EXAMPLES / "filetype/samples", files / str(copy))
    for name, content, kind in (("empty", b"", "empty"), ("short", b"hi\n", "txt"), ("bytes", b"\xff\xfe", "unknown"), ("blank", b" " * 5000, "txt")):
        (files / name).write_bytes(content)
        answers[name] = (kind, 1.0)
    command = [ray_python, HERE / "classify.py", files, tmp_path / "types.csv", "--bundle", tmp_path / "filetypes", "--magika", model.parent, "--workers", "2", "--batch", "32"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == f"{10 * 18 + 4} files, 2 workers"
    with open(tmp_path / "types.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == sorted(str(path.resolve()) for path in files.rglob("*") if path.is_file())
    for row in rows:
        kind, score = answers[pathlib.Path(row["path"]).name]
        assert row["type"] == kind and abs(float(row["score"]) - score) < 1e-3, row
    assert not (tmp_path / "types.csv.part").exists()

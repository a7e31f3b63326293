"""What the command line writes: the same bytes each time, nothing of others lost, nothing left behind half written, and the cache."""

import json
import os
import subprocess

import onnx
import pytest
from command_line import model, run  # noqa: F401: fixtures
from onnx import TensorProto, helper


def test_compile_writes_the_same_bytes_twice(optc, model, tmp_path):
    for name in ("a", "b"):
        run(optc, model, "-o", tmp_path / name)
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert any(str(f) == "report.html" for f in files) and any(str(f) == "manifest.json" for f in files)
    assert files == sorted(p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*") if p.is_file())
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file


def test_compile_replaces_bundles_only(optc, model, tmp_path):
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    run(optc, model, "-o", tmp_path / "bundle", "-q")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/letter.txt").write_text("keep me")
    run(optc, model, "-o", tmp_path / "mine", code=2)
    assert (tmp_path / "mine/letter.txt").read_text() == "keep me"


def test_compile_keeps_what_others_put_into_a_bundle(optc, model, tmp_path):
    bundle = tmp_path / "bundle"
    run(optc, model, "-o", bundle, "-q")
    (bundle / "build").mkdir()
    (bundle / "build/CMakeCache.txt").write_text("cache")
    run(optc, model, "-o", bundle, "-q", "-O0")
    assert (bundle / "build/CMakeCache.txt").read_text() == "cache"
    (bundle / "examples/main.cpp").write_text("// mine")
    error = run(optc, model, "-o", bundle, code=2).stderr
    assert "examples/main.cpp" in error and "--force" in error
    assert (bundle / "examples/main.cpp").read_text() == "// mine"
    run(optc, model, "-o", bundle, "-q", "--force")
    assert (bundle / "examples/main.cpp").read_text() != "// mine"
    (tmp_path / "link").symlink_to("bundle")
    run(optc, model, "-o", tmp_path / "link", "-q", "--name=other")
    assert (tmp_path / "link").is_symlink() and (bundle / "include/other.h").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bundle", "link"]


def test_why_a_file_is_not_written(optc, model, tmp_path):
    error = run(optc, "opt", model, "-q", "-o", tmp_path / "no/such/small.onnx", code=2).stderr
    assert "No such file or directory" in error
    assert "No space left on device" in run(optc, "opt", model, "-q", "-o", "/dev/full", code=2).stderr


def test_an_interrupted_compile_leaves_nothing(optc, tmp_path):
    import signal
    import time

    # Many nodes, so that there is time.
    nodes = [helper.make_node("Sin" if i % 2 else "Cos", [f"v{i}"], [f"v{i + 1}"]) for i in range(6000)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["N", 64])],
                              [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, ["N", 64])
                               for i in range(1, 6001, 7)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "long.onnx")
    for attempt in range(12):
        process = subprocess.Popen([optc, tmp_path / "long.onnx", "-o", tmp_path / "out"], stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # a job in the background ignores it
        while process.poll() is None and not list(tmp_path.glob("out.optc.tmp*")):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        if process.wait() == -signal.SIGINT:
            assert [p.name for p in tmp_path.iterdir()] == ["long.onnx"]
            return
        import shutil
        shutil.rmtree(tmp_path / "out")
    pytest.fail("the compile was never interrupted while it wrote")


def test_folders_of_others_are_left_alone(optc, model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years")
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    run(optc, model, "-o", tmp_path, code=2)
    assert (tmp_path / "thesis.tex").read_text() == "years"


def test_what_a_killed_process_left_is_removed(optc, model, tmp_path):
    gone = subprocess.Popen(["true"])
    gone.wait()
    owners = {"left": str(gone.pid), "running": str(os.getpid()), "unmarked": None}
    for name, owner in owners.items():
        folder = tmp_path / f"out.optc.tmp{gone.pid if name == 'left' else 1000000 + len(name)}"
        folder.mkdir()
        (folder / "model.cpp").write_text("half")
        if owner:
            (folder / ".optc-staging").write_text(owner)
        owners[name] = folder
    half = tmp_path / f"small.onnx.optc.tmp{gone.pid}"
    half.write_text("half")
    assert subprocess.run([optc, model, "-o", tmp_path / "out", "-q"], check=False).returncode == 0
    assert subprocess.run([optc, "opt", model, "-o", tmp_path / "small.onnx", "-q"], check=False).returncode == 0
    assert not owners["left"].exists() and not half.exists()
    assert owners["running"].exists() and owners["unmarked"].exists()
    assert not list((tmp_path / "out").glob(".optc*"))


def test_a_full_disk_is_an_error(optc, model):
    for words in (["inspect", model], ["ops"], ["diff", model, model, "--format=json"]):
        with open("/dev/full", "wb") as full:
            done = subprocess.run([optc, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and "error[io]" in done.stderr and "No space left on device" in done.stderr


def test_the_cache_is_shown_and_pruned(optc, model, tmp_path):
    env = {**os.environ, "OPTC_CACHE": str(tmp_path / "cache")}

    def facts(*words):
        return json.loads(run(optc, "cache", *words, "--format=json", env=env).stdout)

    assert facts()["bundles"] == [] and facts()["limit"] == 2 << 30
    made = tmp_path / "cache/bundles"
    for name, hours, size in (("old-1", 50, 300_000), ("new-2", 2, 200_000), ("half-3", 3, 100_000)):
        (made / name / "bundle").mkdir(parents=True)
        (made / name / "build/lib").mkdir(parents=True)
        (made / name / "weights").write_bytes(os.urandom(size))
        if name != "half-3":
            (made / name / "bundle/manifest.json").write_text("{}")
        then = made.stat().st_mtime - 3600 * hours
        os.utime(made / name, (then, then))
    shown = facts()["bundles"]
    assert [(b["name"], b["complete"]) for b in shown] == [("new-2", True), ("half-3", False), ("old-1", True)]
    assert all(b["bytes"] >= 100_000 for b in shown) and 2 * 3600 <= shown[0]["idle_seconds"] < 2 * 3600 + 600
    text = run(optc, "cache", env=env).stdout
    assert "3 bundles" in text and "old-1" in text and "(not finished)" in text
    # The longest unused goes first.
    told = facts("prune", "--max-size=400kB")
    assert told["removed"] == 1 and sorted(p.name for p in made.iterdir() if p.is_dir()) == ["half-3", "new-2"]
    # A new bundle makes room by itself, but leaves what was used within the hour.
    env["OPTC_CACHE_SIZE"] = "0"
    os.utime(made / "new-2")
    run(optc, "run", model, "-q", "--outputs", tmp_path / "out", env=env)
    left = sorted(p.name for p in made.iterdir() if p.is_dir())
    assert "half-3" not in left and "new-2" in left and len(left) == 2
    # A bundle that another process is making stays.
    import fcntl

    with open(made / "new-2.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert facts("prune")["removed"] == 1 and (made / "new-2").is_dir()
    assert facts("prune")["removed"] == 1 and facts()["bundles"] == []
    assert "expected bytes" in run(optc, "cache", "prune", "--max-size=much", env=env, code=2).stderr
    assert "prune" in run(optc, "cache", "--max-size=1GB", env=env, code=2).stderr


@pytest.mark.parametrize("options", [[], ["--embed-weights"], ["--dim", "N=1..8"], ["--variant", "N=1"]])
def test_a_dry_run_writes_nothing_and_knows_the_size(optc, model, tmp_path, options):
    folder = tmp_path / "bundle"
    said = json.loads(run(optc, model, "-n", "-o", folder, "--name", "small", "--format=json", *options).stdout)
    assert said["written"] is False and not folder.exists() and list(tmp_path.iterdir()) == []
    facts = json.loads(run(optc, model, "-o", folder, "--name", "small", "--format=json", *options).stdout)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert facts["written"] and (len(files), sum(path.stat().st_size for path in files)) == (said["files"], said["bytes"])
    assert {k: v for k, v in facts.items() if k not in ("written", "bundle")} == {k: v for k, v in said.items() if k not in ("written", "bundle")}
    assert sum(path.stat().st_size for path in (folder / "src").rglob("*") if path.suffix in (".cpp", ".h", ".inc")) == said["code_bytes"]
    # The folder that is there stays as it is; no folder need be named.
    before = {path: path.read_bytes() for path in files}
    text = run(optc, "compile", model, "--dry-run", "-o", folder, "-q", *options).stdout
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert all(word in text for word in ("bundle ", "memory ", "build ", "nothing was written"))
    assert "nothing was written" in run(optc, model, "-n", *options).stdout


def test_a_folder_to_write_is_needed(optc, model):
    assert "-o DIR is required" in run(optc, model, code=2).stderr

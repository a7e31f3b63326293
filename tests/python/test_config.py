"""Options as a file, what a command leaves behind (--config, --save-config, --report, --trace), and how steps are shown."""

import json
import subprocess

import pytest
import terminal
from command_line import model  # noqa: F401: a fixture


def run(optc, *arguments, code=0, cwd=None):
    done = subprocess.run([optc, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_what_was_given_is_saved_and_comes_back(optc, model, tmp_path):
    file = tmp_path / "options"
    words = ["--dim", "N=2", "-O1", "--disable-pass=cse.node", "--disable-pass", "fold", "--no-embed-weights", "-v", "--name", "net"]
    first = run(optc, model, "-o", tmp_path / "a", *words, "--save-config", file, "--format=json")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("# options of optc ") and lines[1] == "[compile]"
    assert {"dim = N=2", "O = 1", "name = net", "embed-weights = false", "verbose = true", f"output = {tmp_path / 'a'}"} <= set(lines)
    assert not any("config" in line or str(model) in line for line in lines[1:])
    again = run(optc, model, "--config", file, "-o", tmp_path / "b")
    one, two = json.loads(first.stdout), json.loads(again.stdout)
    assert {**one, "bundle": ""} == {**two, "bundle": ""} and two["bundle"] == str(tmp_path / "b")
    for path in sorted(p for p in (tmp_path / "a").rglob("*") if p.is_file()):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path
    # What is saved of a command with a file is all of it.
    run(optc, model, "--config", file, "-o", tmp_path / "b", "--save-config", tmp_path / "second")
    assert (tmp_path / "second").read_text().replace("/b\n", "/a\n") == file.read_text()


def test_a_file_for_several_verbs(optc, model, tmp_path):
    file = tmp_path / "options"
    file.write_text("# of our model\n  dim =  N=3  \n\n[run]\nengine = evaluate\nseed = 7\n[opt]\nopt-report = true\n")
    told = run(optc, "run", model, "--config", file).stdout
    assert told == run(optc, "run", model, "--dim=N=3", "--engine=evaluate", "--seed=7").stdout
    other = run(optc, "run", model, f"--config={file}", "--seed", "8").stdout
    assert other != told and other == run(optc, "run", model, "--dim=N=3", "--engine=evaluate", "--seed=8").stdout
    assert "applied" in run(optc, "opt", model, "--config", file).stdout
    assert json.loads(run(optc, "inspect", model, "--config", file, "--format=json").stdout)["inputs"] == [{"name": "x", "type": "f32[3,4]"}]
    odd = tmp_path / "odd name"
    run(optc, "run", model, "--engine=evaluate", "--outputs", odd, "--custom-op", " ", "--save-config", file, code=2)
    assert 'custom-op = " "' in file.read_text() and f"outputs = {odd}" in file.read_text()


@pytest.mark.parametrize("text, said, help", [
    ("dim = N=2\nsede = 3\n", ":2: optc run has no option 'sede'", "did you mean seed?"),
    ("[rnu]\n", ":1: [rnu] names no verb of optc", "did you mean [run]?"),
    ("seed\n", ":1: 'seed' is no option", "`name = value`"),
    ("config = other\n", ":1: a file of options cannot have config", ""),
    ('name = "a\n', ":1: \"a is no text between quotes", ""),
    ("seed = many\n", "seed", ""),
    ("[run\nseed = 1\n", ":1: [run names no verb of optc", ""),
])
def test_wrong_files_are_usage_errors(optc, model, tmp_path, text, said, help):
    file = tmp_path / "options"
    file.write_text(text)
    done = run(optc, "run", model, "--engine=evaluate", "--config", file, code=2)
    assert "error[usage]" in done.stderr and said in done.stderr and help in done.stderr and not done.stdout
    error, = [json.loads(line) for line in run(optc, "run", model, "--config", file, "--format=json", code=2).stderr.splitlines() if line.startswith("{")]
    assert error["kind"] == "usage" and said in error["message"]
    assert "absent" in run(optc, "run", model, "--config", tmp_path / "absent", code=2).stderr


def test_a_report_tells_what_was_done(optc, model, tmp_path):
    file = tmp_path / "report.json"
    run(optc, model, "-o", tmp_path / "a", "--dim=N=2", "--report", file, "-q")
    report = json.loads(file.read_text())
    assert report["schema_version"] == 1 and report["verb"] == "compile" and report["exit_code"] == 0 and report["diagnostics"] == []
    assert report["options"]["dim"] == "N=2" and report["options"]["quiet"] == "true"
    steps = [s["step"] for s in report["steps"]]
    assert steps[0] == model.name and steps[1:4] == ["optimize", "lower", "emit"]
    assert all(0 <= s["start"] and 0 <= s["seconds"] and s["start"] + s["seconds"] <= report["seconds"] + 1e-6 for s in report["steps"])
    # A command that fails tells why, and which step did not end.
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    done = run(optc, "run", tmp_path / "broken.onnx", "--report", file, code=3)
    report = json.loads(file.read_text())
    assert report["exit_code"] == 3 and [d["kind"] for d in report["diagnostics"]] == ["invalid"] and report["steps"][-1]["seconds"] is None
    assert report["diagnostics"][0]["message"] in done.stderr
    assert "error[io]" in run(optc, "inspect", model, "--report", tmp_path / "no/such/folder", code=2).stderr


def test_a_trace_holds_steps_and_passes(optc, model, tmp_path):
    file = tmp_path / "trace.json"
    run(optc, "opt", model, "--trace", file, "--time-passes", "-q")
    events = [e for e in json.loads(file.read_text())["traceEvents"] if e["ph"] == "X"]
    optimize = next(e for e in events if e["name"] == "optimize")
    passes = [e for e in events if e["cat"] == "pass"]
    assert {"fold", "identity", "attention"} <= {e["name"] for e in passes} and "nodes" in optimize["args"]["facts"]
    for e in passes:
        assert optimize["ts"] - 1 <= e["ts"] and e["ts"] + e["dur"] <= optimize["ts"] + optimize["dur"] + 1


def test_how_steps_are_shown(optc, model, tmp_path):
    """auto draws on a terminal, lines does not, off says nothing of steps; results and errors are said all the same."""
    def drawn(how):
        return terminal.run([optc, "run", model, "--engine=evaluate", f"--progress={how}"])

    (a, auto), (b, lines), (c, off) = map(drawn, ("auto", "lines", "off"))
    assert a == b == c and a.startswith("y  ")
    assert "\x1b[K" in auto and "optimize" in auto and "\x1b" not in lines and "optimize" in lines and off == ""
    assert "error[io]" in run(optc, "run", tmp_path / "absent.onnx", "--progress=off", code=2).stderr

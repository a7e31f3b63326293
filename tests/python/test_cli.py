"""The command line's contract: exit codes, what is said and where, and what is refused."""

import json
import os
import subprocess

import numpy as np
import onnx
import pytest
import terminal
from command_line import model, run  # noqa: F401: fixtures
from onnx import TensorProto, helper


def test_no_arguments_is_a_usage_error_that_names_help(optc):
    assert "--help" in run(optc, code=2).stderr


def test_help_lists_the_verbs(optc):
    text = run(optc, "--help").stdout
    for verb in ("compile", "opt", "run", "verify", "inspect", "bench", "diff", "explain", "ops", "cache", "completion", "man"):
        assert verb in text


def test_help_fits_a_terminal(optc):
    """No line beyond 79 columns, no word of the library that reads the command line."""
    import re

    verbs = re.findall(r"^  (\w+)  ", run(optc, "--help").stdout.split("Verbs:")[1], re.M)
    for words in ([], *([verb] for verb in verbs)):
        text = run(optc, *words, "--help").stdout
        assert max(map(len, text.splitlines())) < 80, words
        for foreign in ("Print this help message", "REQUIRED", "Positionals", "Subcommand", "{false}", ":{", " in ["):
            assert foreign not in text, (words, foreign)


def test_completions_and_the_manual_know_every_option(optc, tmp_path):
    """All three are written of the grammar: what the help of a verb lists they have."""
    import re
    import shutil

    texts = {shell: run(optc, "completion", shell).stdout for shell in ("bash", "zsh", "fish")}
    manual = run(optc, "man").stdout.replace("\\-", "-")
    verbs = re.findall(r"^  (\w+)  ", run(optc, "--help").stdout.split("Verbs:")[1], re.M)
    assert len(verbs) >= 12
    for verb in verbs:
        for option in re.findall(r"^  (?:-\w,)?--([a-z][\w-]*)", run(optc, verb, "--help").stdout, re.M):
            assert f"--{option}" in manual and f"--{option}" in texts["bash"] and f"--{option}" in texts["zsh"], (verb, option)
            assert f" -l {option}" in texts["fish"], (verb, option)
    if shutil.which("bash"):
        (tmp_path / "complete").write_text(texts["bash"])
        words = "source complete; COMP_WORDS=(optc verify model.onnx --engine ''); COMP_CWORD=4; _optc; echo ${COMPREPLY[@]}; " \
                "COMP_WORDS=(optc diff --ig); COMP_CWORD=2; _optc; echo ${COMPREPLY[@]}; COMP_WORDS=(optc ben); COMP_CWORD=1; _optc; echo ${COMPREPLY[@]}"
        said = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
        assert said.split("\n")[:3] == ["bundle evaluate", "--ignore", "bench"]
    if shutil.which("zsh"):
        (tmp_path / "_optc").write_text(texts["zsh"])
        subprocess.run(["zsh", "-n", str(tmp_path / "_optc")], check=True)
    if shutil.which("man"):
        done = subprocess.run(["man", "--warnings", "-l", "-"], input=run(optc, "man").stdout, capture_output=True, text=True, check=True)
        assert not done.stderr and "--fail-if-slower" in done.stdout


def test_the_list_of_operators_in_docs_is_the_tools(optc, root):
    """`optc ops --format=markdown > docs/operators.md` writes it anew."""
    assert run(optc, "ops", "--format=markdown").stdout == (root / "docs/operators.md").read_text()
    listed = json.loads(run(optc, "ops", "--format=json").stdout)["operators"]
    assert {o["domain"] for o in listed} >= {"ai.onnx", "ai.onnx.ml", "com.microsoft"} and len(listed) > 250


def test_usage_io_and_invalid_have_their_exit_codes(optc, model, tmp_path):
    assert "error[usage]" in run(optc, "inspect", model, "--no-such-flag", code=2).stderr
    assert "error[io]" in run(optc, "inspect", tmp_path / "absent.onnx", code=2).stderr
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    assert "error[invalid]" in run(optc, "inspect", tmp_path / "broken.onnx", code=3).stderr
    (tmp_path / "pointer.onnx").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    assert "git lfs pull" in run(optc, "inspect", tmp_path / "pointer.onnx", code=3).stderr


def test_unsupported_operators_are_all_listed(optc, tmp_path):
    nodes = [helper.make_node(op, ["x"], [op], name=f"post/{op}", domain="com.acme") for op in ("Decode", "Hash")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
                              [helper.make_tensor_value_info("Hash", TensorProto.FLOAT, [2])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)])
    onnx.save(proto, tmp_path / "acme.onnx")
    text = run(optc, "inspect", tmp_path / "acme.onnx", code=4).stderr
    assert "error[unsupported]" in text and "Decode" in text and "Hash" in text


def test_names_that_a_bundle_cannot_have(optc, model, tmp_path):
    for name in ("", "class", "time", "a b"):
        error = run(optc, model, "-o", tmp_path / "bundle", "--name", name, code=2).stderr
        assert "error[usage]" in error and f"'{name}'" in error
    assert not (tmp_path / "bundle").exists()


def test_too_much_memory_is_not_a_failed_check(optc, tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Expand", ["x", "s"], ["y"], name="grow"), helper.make_node("Relu", ["y"], ["z"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"]),
         helper.make_tensor_value_info("s", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["a", "b", "c"])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "grow.onnx")
    np.save(tmp_path / "x.npy", np.ones(1, np.float32))
    for sizes, text in (([1 << 20, 1 << 20, 1 << 10], "4.0 PiB"), ([1 << 30, 1 << 30, 1 << 10], "EiB")):
        np.save(tmp_path / "s.npy", np.array(sizes, np.int64))
        error = run(optc, "run", tmp_path / "grow.onnx", "--engine=evaluate", "-q", f"--input=x=@{tmp_path}/x.npy",
                    f"--input=s=@{tmp_path}/s.npy", code=2).stderr
        assert "error[io]" in error and "'grow'" in error and text in error and "--dim" in error
    error = run(optc, "run", tmp_path / "grow.onnx", "--engine=evaluate", "-q", "--dim=N=1000000000000", code=2).stderr
    assert "3.6 TiB" in error and "--dim" in error


def test_what_a_folder_of_answers_must_hold(optc, model, tmp_path):
    error = run(optc, "verify", model, "--engine=evaluate", "--against", tmp_path, code=2).stderr
    assert "output_0.pb" in error and str(tmp_path) in error
    assert "no such file" in run(optc, "verify", model, "--against=absent.onnx", code=2).stderr


def test_more_is_said_when_asked(optc, model, tmp_path):
    text = run(optc, model, "-o", tmp_path / "bundle", "-v").stderr
    assert "matmul.bias" in text.split("lower")[0].split("nodes", 2)[2]
    facts = json.loads(run(optc, model, "-o", tmp_path / "bundle", "--format=json").stdout)
    assert facts["arena_bytes"] is None or facts["arena_bytes"] >= 0


def test_what_was_meant_is_suggested(optc, model):
    assert "did you mean `optc verify`" in run(optc, "verfy", model, code=2).stderr
    assert "did you mean --disable-pass" in run(optc, "opt", model, "--disable-pas=x", code=2).stderr
    assert "did you mean conv.bn" in run(optc, "explain", "conv.bnn", code=2).stderr
    assert "-o DIR is required" in run(optc, model, code=2).stderr
    error = run(optc, "inspect", "no-such-folder/absent.onnx", code=2).stderr
    assert error.count("absent.onnx") == 1


def test_gpu_targets_that_are_not_known_are_refused(optc, model, tmp_path):
    error = run(optc, model, "-o", tmp_path / "bundle", "--target=sm_99", code=4).stderr
    assert "sm_99" in error and "sm_90a" in error and not (tmp_path / "bundle").exists()


def test_names_that_are_no_text_do_not_break_json(optc, model, tmp_path):
    path = tmp_path / "names.onnx"
    path.write_bytes(model.read_bytes().replace(b"small", b"sma\xffl").replace(b"\x0a\x01x", b"\x0a\x01\xff"))
    inputs = json.loads(run(optc, "inspect", path, "--format=json").stdout)["inputs"]
    assert inputs == [{"name": "\ufffd", "type": "f32[N,4]"}]
    for verb in ("run", "verify"):
        json.loads(run(optc, verb, path, "--engine=evaluate", "--format=json", "-q",
                       *(["--against=evaluate"] if verb == "verify" else [])).stdout)


def test_a_terminal_shows_the_running_step(optc, model):
    """On a terminal the steps are drawn in place; what stays is one line a step, none twice."""
    _, drawn = terminal.run([optc, "verify", model, "--engine=evaluate", "--against=evaluate"])
    assert "\r\x1b[K" in drawn and "━" in drawn
    stays = [line.split("\x1b[K")[-1] for line in drawn.split("\n")]
    lines = [" ".join(line.split()[:3]) for line in stays if line.strip()]
    assert len(lines) == len(set(lines)) and any(line.startswith("evaluate") for line in lines)


def test_options_that_would_do_nothing_are_refused(optc, model, tmp_path):
    assert "nosuch" in run(optc, "opt", model, "-o", tmp_path / "o.onnx", "--disable-pass", "nosuch", code=2).stderr
    for tolerance in ("-1", "nan", "x"):
        run(optc, "verify", model, "--rtol", tolerance, code=2)
    run(optc, "opt", model, "-o", tmp_path / "o.onnx", "--disable-pass", "cse.node", "--disable-pass", "fold")


@pytest.mark.parametrize("verb, options, words", [
    ("opt", ["-o", ""], "--output: '' is no value"),
    ("compile", ["-o", "b", "--calibrate", "samples"], "--precision and --quantize-weights"),
    ("compile", ["-o", "b", "--dim", "N=1", "--dim", "N=2"], "--dim N=2: N is given twice"),
    ("compile", ["-o", "b", "--shape", "x=1x8", "--shape", "x=2x8"], "--shape x=2x8: x is given twice"),
    ("run", ["--input", "x=@a.npy", "--input", "x=@b.npy"], "--input x=@b.npy: x is given twice"),
    ("compile", ["-o", "b", "--variant", ""], "--variant: '' is no value"),
    ("opt", ["-o", "b.onnx", "--opset", "0"], "--opset"),
    ("convert", ["-o", "b.onnx", "--opset", "-1"], "--opset"),
])
def test_values_that_say_nothing_or_two_things_are_refused(optc, model, tmp_path, verb, options, words):
    done = subprocess.run([optc, verb, model, *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and words in done.stderr and not list(tmp_path.iterdir()), done.stderr
    if "--dim" in options:  # the same again says nothing else
        run(optc, "inspect", model, "--dim", "N=1", "--dim", "N=1")


def test_errors_are_json_where_results_are(optc, model, tmp_path):
    """With --format=json each error and warning is one object on a line of stderr."""
    def errors(*words, code):
        return [json.loads(line) for line in run(optc, *words, "--format=json", code=code).stderr.splitlines() if line.startswith("{")]

    absent, = errors("inspect", tmp_path / "absent.onnx", code=2)
    assert (absent["severity"], absent["kind"], absent["exit_code"], absent["schema_version"]) == ("error", "io", 2, 1)
    assert absent["file"] == str(tmp_path / "absent.onnx") and "No such file" in absent["message"]
    (tmp_path / "broken.onnx").write_bytes(b"\x08\x07not a model\xff\xff")
    assert [(e["kind"], e["exit_code"]) for e in errors("inspect", tmp_path / "broken.onnx", code=3)] == [("invalid", 3)]
    wrong, = errors("inspect", model, "--disable-pas", code=2)
    assert wrong["kind"] == "usage" and "--disable-pas" in wrong["message"]
    assert [e["kind"] for e in errors("explode", code=2)] == ["usage"]


def test_a_step_takes_one_row_of_a_narrow_terminal(optc, model, tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    for columns in (40, 79):
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.Popen([optc, model, "-o", tmp_path / f"bundle{columns}"], stdout=subprocess.PIPE, stderr=follower)
        os.close(follower)
        done.communicate()
        drawn = b""
        while True:
            try:
                data = os.read(leader, 4096)
            except OSError:  # the other end is closed
                break
            drawn += data
        os.close(leader)
        assert done.returncode == 0
        rows = [row for line in drawn.decode().split("\n") for row in line.replace("\r", "").split("\x1b[K") if row]
        assert any(row.startswith("optimize") for row in rows) and max(map(len, rows)) < columns


def test_passes_are_listed(optc):
    text = run(optc, "opt", "--list-passes").stdout
    assert text == run(optc, "explain").stdout
    assert {"fold.constant", "cse.node", "fuse.epilogue"} <= {line.split()[0] for line in text.splitlines()}


@pytest.mark.parametrize("options,dims", [
    (["--shape", "x=1..8x4"], "N: 1 to 8"), (["--shape", "x=Bx4", "--dim", "B=2..3"], "B: 2 to 3"), (["--shape", "x=3..3x4"], None), (["--shape", "x=Bx4", "--dim", "B=5"], None),
    (["--shape", "x=1..8x4", "--dim", "N=2..9"], "N: 2 to 8"), (["--shape", "x=1..8x2..9"], "N: 1 to 8"),
])
def test_shapes_take_ranges_and_names_that_dim_bounds(optc, model, tmp_path, options, dims):
    run(optc, model, "-o", tmp_path / "b", *options, "-q")
    text = (tmp_path / "b/README.md").read_text()
    assert f"- dim {dims}" in text if dims else "- dim" not in text
    run(optc, "verify", model, "--engine=evaluate", *options, env={**os.environ, "OPTC_PYTHON": os.sys.executable})


@pytest.mark.parametrize("options,words", [
    (["--shape", "x=8..1x4"], "'8..1' is not a dimension"), (["--shape", "x=1..x4"], "'1..' is not a dimension"), (["--shape", "x=-1..2x4"], "'-1..2' is not"),
    (["--shape", "x=1x5..8"], "the size 5..8, the model declares"), (["--shape", "x=1xQ"], "the size Q, the model declares"), (["--shape", "x=1..9999999999999999x4"], "is not a dimension"), (["--shape", "x=Bx4", "--dim", "C=1..2"], "no dimension named 'C'"),
])
def test_shapes_that_are_none(optc, model, tmp_path, options, words):
    assert words in run(optc, model, "-o", tmp_path / "b", *options, code=2).stderr
    assert not (tmp_path / "b").exists()

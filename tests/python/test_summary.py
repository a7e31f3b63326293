"""The last line of ./dev test is true: failures, skips and crashes are counted."""

import json
import subprocess
import sys

GTEST = """<testsuites><testsuite name="A">
<testcase name="ok" status="run" classname="A" /><testcase name="off" status="notrun" classname="A" />
{extra}</testsuite></testsuites>"""
CTEST = '<testsuite><testcase name="a" status="{a}"/><testcase name="b" status="{b}"/></testsuite>'


def run(root, folder):
    done = subprocess.run([sys.executable, root / "tests/summary.py", folder], capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines()[-1]


def write(folder, extra="", a="run", b="run"):
    (folder / "a.xml").write_text(GTEST.format(extra=extra))
    (folder / "ctest.junit").write_text(CTEST.format(a=a, b=b))


def test_counts_programs_without_a_file_of_their_own(root, tmp_path):
    write(tmp_path)
    assert run(root, tmp_path) == (0, "2 passed, 0 failed")


def test_a_failed_case_is_counted_once(root, tmp_path):
    write(tmp_path, extra='<testcase name="bad" status="run" classname="A"><failure message="x"/></testcase>', a="fail")
    assert run(root, tmp_path) == (1, "2 passed, 1 failed")


def test_a_crash_is_a_failure(root, tmp_path):
    write(tmp_path, b="fail")
    assert run(root, tmp_path) == (1, "1 passed, 1 failed")


def test_nothing_run_is_a_failure(root, tmp_path):
    assert run(root, tmp_path) == (1, "0 passed, 0 failed")


def test_the_summary_file_counts_suites_and_seconds(root, tmp_path):
    write(tmp_path, extra='<testcase name="bad" status="run" classname="A"><failure message="x"/></testcase>', a="fail")
    (tmp_path / "unit.stage").write_text("7\n")
    run(root, tmp_path)
    facts = json.loads((tmp_path / "summary.json").read_text())
    assert (facts["passed"], facts["failed"], facts["skipped"]) == (2, 1, 1)
    assert facts["stages"] == {"unit": 7} and facts["seconds"] == 7
    assert facts["suites"] == {"a": {"passed": 1, "failed": 1, "skipped": 1}, "b": {"passed": 1, "failed": 0, "skipped": 0}}

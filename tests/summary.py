"""Counts what ctest and pytest wrote, and prints `N passed, N failed` as the last line; exit 1 if anything failed.

Usage: summary.py RESULTS_DIR [--tier N]. GoogleTest programs and pytest write one XML file each; ctest's own report finds the
programs that crashed or ran out of time before they could write theirs. summary.json in the folder then has the counts of each
suite, the seconds of each part of the run (NAME.stage) and the commit."""

import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ET


def cases(path):
    """Yields (name, state) of each test case of a JUnit-style file; state is passed, failed or skipped."""
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f'{case.get("classname")}.{case.get("name")}'
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed"
        elif case.find("skipped") is not None or case.get("status") in ("notrun", "disabled"):
            yield name, "skipped"
        else:
            yield name, "passed"


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
    return done.stdout.strip() if done.returncode == 0 else ""


def write_json(folder, tier, suites):
    stages = {p.stem: int(p.read_text()) for p in sorted(folder.glob("*.stage"))}
    total = {state: sum(s[state] for s in suites.values()) for state in ("passed", "failed", "skipped")}
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), "commit": git("rev-parse", "HEAD"),
             "changed_files": len(git("status", "--porcelain").splitlines()), "tier": tier, **total,
             "seconds": sum(stages.values()), "stages": stages, "suites": suites}
    text = re.sub(r"\{\s+(\"passed\"[^}]*?)\s+\}", lambda m: "{" + " ".join(m[1].split()) + "}", json.dumps(facts, indent=1))
    (folder / "summary.json").write_text(text + "\n")  # a line a suite


def main(folder, tier):
    suites = {}
    failed = []
    for path in sorted(folder.glob("*.xml")):
        count = suites[path.stem] = {"passed": 0, "failed": 0, "skipped": 0}
        for name, state in cases(path):
            count[state] += 1
            if state == "failed":
                failed.append(name)
    for path in folder.glob("*.junit"):
        for case in ET.parse(path).getroot().iter("testcase"):
            program = case.get("name")
            count = suites.setdefault(program, {"passed": 0, "failed": 0, "skipped": 0})
            if case.get("status") == "fail" and not count["failed"]:
                count["failed"] += 1
                failed.append(f"{program} (crashed, timed out or could not start)")
            elif case.get("status") == "run" and not sum(count.values()):
                count["passed"] += 1  # a test of ctest that is not a GoogleTest program
    write_json(folder, tier, suites)
    passed, bad, skipped = (sum(s[state] for s in suites.values()) for state in ("passed", "failed", "skipped"))
    for name in failed:
        print(f"FAILED {name}")
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {bad} failed")
    return 1 if bad or not passed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tier", type=int, default=1)
    arguments = parser.parse_args()
    sys.exit(main(arguments.folder, arguments.tier))

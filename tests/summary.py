"""Counts what ctest and pytest wrote, and prints `N passed, N failed` as the last line; exit 1 if anything failed.

Usage: summary.py RESULTS_DIR. GoogleTest programs and pytest write one XML file each; ctest's own report finds the
programs that crashed or ran out of time before they could write theirs."""

import pathlib
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


def main(folder):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    failed = []
    programs_with_failures = set()
    for path in sorted(folder.glob("*.xml")):
        for name, state in cases(path):
            count[state] += 1
            if state == "failed":
                failed.append(name)
                programs_with_failures.add(path.stem)
    for path in folder.glob("*.junit"):
        for case in ET.parse(path).getroot().iter("testcase"):
            program = case.get("name")
            if case.get("status") == "fail" and program not in programs_with_failures:
                count["failed"] += 1
                failed.append(f"{program} (crashed, timed out or could not start)")
            elif case.get("status") == "run" and not (folder / f"{program}.xml").exists():
                count["passed"] += 1  # a test of ctest that is not a GoogleTest program
    for name in failed:
        print(f"FAILED {name}")
    if count["skipped"]:
        print(f'{count["skipped"]} skipped')
    print(f'{count["passed"]} passed, {count["failed"]} failed')
    return 1 if count["failed"] or not count["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))

"""Planted faults (tests/mutations): that each still fits the sources, and, in tier 2, that what found and named each before still does."""

import json
import re
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def rows(root):
    return json.loads((root / "tests/mutations/mutations.json").read_text())


@pytest.fixture(scope="module")
def last_run(root):
    return {r["name"]: r for r in json.loads((root / "docs/results/mutations.json").read_text())}


def test_each_mutation_fits_the_sources(root, rows, last_run):
    names = [row["name"] for row in rows]
    assert len(rows) >= 30 and len(set(names)) == len(names)
    for row in rows:
        text = (root / row["file"]).read_text()
        assert text.count(row["old"]) == 1, f"{row['name']}: its text stands {text.count(row['old'])} times in {row['file']}"
        assert row["new"] != row["old"] and row["what"], row["name"]
        re.compile(row["names"])
    assert set(last_run) <= set(names)


@pytest.mark.tier2
def test_planted_faults_are_found_and_named(root, optc, last_run):
    out = optc.parents[1] / "mutations"  # kept: the scratch copy is built once
    table = out / "table.json"
    out.mkdir(exist_ok=True)
    command = [sys.executable, root / "tests/mutations/check.py", out, "--table", table]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    now = {r["name"]: r for r in json.loads(table.read_text())}
    worse = [f"{name} is not found any more ({last_run[name]['by']})" for name, r in now.items() if name in last_run and last_run[name]["by"] and not r["by"]]
    worse += [f"{name}: {r['blamed'] or 'nothing'} is to blame ({last_run[name]['blamed']})"
              for name, r in now.items() if name in last_run and last_run[name]["named"] and not r["named"]]  # fmt: skip
    worse += [f"{name} is new, and nothing finds it" for name, r in now.items() if name not in last_run and not r["by"]]
    assert not worse, "\n".join(worse) + "\n" + done.stdout[-4000:] + done.stderr[-2000:]

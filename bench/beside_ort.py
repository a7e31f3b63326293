"""A model beside ONNX Runtime, by `optc bench`: what the programs of this folder share."""
import json
import os
import subprocess
import sys


def bench(optc, model, *options):
    """(facts, rival, ""): what `optc bench --format=json` says, and its part on ONNX Runtime (median_ms, min_ms); or (None, None, the reason)."""
    done = subprocess.run([str(a) for a in (optc, "bench", model, "--against", "ort", "--format=json", *options)], capture_output=True, text=True,
                          env={**os.environ, "OPTC_PYTHON": os.environ.get("OPTC_PYTHON", sys.executable)})
    if done.returncode:
        return None, None, (done.stderr.strip().splitlines() or ["no answer"])[-1]
    facts = json.loads(done.stdout)
    return facts, facts["against"]["onnxruntime"], ""

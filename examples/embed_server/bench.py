"""How many requests a second the server answers with the bundle and with ONNX Runtime: the same program but for encoder_*.cpp.

Usage: bench.py BUILD MODEL.onnx VOCABULARY.txt [--seconds 60] [--slice 5] [--connections 32] [--threads 2] [--texts texts.txt]

BUILD: the build folder, configured with -DONNXRUNTIME_LIBRARY=... . The two take turns, a slice each, so that what else the
machine does meets both. Prints the rate, latencies (of the slice in the middle) and processor time a request."""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


class Server:
    def __init__(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        found = re.search(r":(\d+), (.*), \d+ threads", said)
        if not found:
            raise SystemExit(f"bench: {command[0]} did not start")
        self.port, self.engine, self.slices, self.seconds = found[1], found[2], [], 0.0

    def processor_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def measure(self, load, seconds, connections, texts):
        before = self.processor_seconds()
        done = subprocess.run([load, self.port, str(seconds), str(connections), texts], stdout=subprocess.PIPE, text=True, check=True)
        self.seconds += self.processor_seconds() - before
        self.slices.append(json.loads(done.stdout))

    def result(self):
        requests = sum(s["requests"] for s in self.slices)
        middle = {key: statistics.median(s[key] for s in self.slices) for key in ("p50", "p99")}
        return {"engine": self.engine, "rate": requests / sum(s["seconds"] for s in self.slices), **middle, "processor": 1e6 * self.seconds / requests}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("model")
    parser.add_argument("vocabulary")
    for name, value in (("seconds", 60), ("slice", 5), ("connections", 32), ("threads", 2)):
        parser.add_argument(f"--{name}", type=float if name in ("seconds", "slice") else int, default=value)
    parser.add_argument("--texts", default=HERE / "texts.txt")
    options = parser.parse_args()
    common = ["--vocabulary", options.vocabulary, "--port", "0", "--threads", str(options.threads)]
    servers = [Server([options.build / "embed_server", *common]), Server([options.build / "embed_server_onnxruntime", "--model", options.model, *common])]
    try:
        for server in servers:  # what is loaded or allocated once
            server.measure(options.build / "load", 1, options.connections, options.texts)
            server.slices, server.seconds = [], 0.0
        for _ in range(max(1, round(options.seconds / options.slice))):
            for server in servers:
                server.measure(options.build / "load", options.slice, options.connections, options.texts)
    finally:
        for server in servers:
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(10)
    results = [server.result() for server in servers]
    print(f"{'':24}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'processor us/request':>22}")
    for r in results:
        print(f"{r['engine']:24}{r['rate']:12.0f}{r['p50']:10.2f}{r['p99']:10.2f}{r['processor']:22.0f}")
    ours, theirs = results
    print(f"{'ratio':24}{ours['rate'] / theirs['rate']:12.2f}{theirs['p50'] / ours['p50']:10.2f}{theirs['p99'] / ours['p99']:10.2f}{theirs['processor'] / ours['processor']:22.2f}")


if __name__ == "__main__":
    main()

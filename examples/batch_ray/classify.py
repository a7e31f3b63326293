"""Names the type of every file under a folder, in several processes, with a bundle as the worker of a Ray Data pipeline.

Usage: classify.py FOLDER OUTPUT.csv --bundle BUNDLE --magika MAGIKA [--workers 2] [--batch 64]

BUNDLE: the magika model compiled by optc and built as a shared library; MAGIKA: a folder with config.min.json and
content_types_kb.min.json out of magika's wheel. OUTPUT has a row for each file, sorted by path: path, type, score."""

import argparse
import csv
import importlib.util
import json
import os
import pathlib
import sys

import numpy as np
import ray

WHITE_SPACE = b" \t\n\v\f\r"


class Classifier:
    """What a worker process keeps: the bundle, with one thread, since the processes share the machine. Its weights are mapped from their
    file, so that all workers of a machine have them in memory once."""

    def __init__(self, bundle, magika):
        bundle = pathlib.Path(bundle)
        module_file = next((bundle / "python").glob("*.py"))
        spec = importlib.util.spec_from_file_location(module_file.stem, module_file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.model = module.Model(threads=1, device="cpu")
        self.config = json.loads(pathlib.Path(magika, "config.min.json").read_text())
        self.types = json.loads(pathlib.Path(magika, "content_types_kb.min.json").read_text())
        assert self.config["mid_size"] == 0 and not self.config["use_inputs_at_offsets"], "another form of input than this program makes"

    def read(self, path):
        """A file's first and last block."""
        block = self.config["block_size"]
        with open(path, "rb") as file:
            begin = file.read(block)
            file.seek(max(0, os.fstat(file.fileno()).st_size - block))
            return begin, file.read(block)

    def tokens(self, begin, end):
        """What the model sees of a file: its first bytes without leading white space, its last ones without trailing white space. None
        of a file that is too short for it."""
        c = self.config
        row = np.full(c["beg_size"] + c["end_size"], c["padding_token"], np.int32)
        begin, end = begin.lstrip(WHITE_SPACE), end.rstrip(WHITE_SPACE)
        if len(begin) < c["min_file_size_for_dl"]:
            return None
        begin, end = begin[: c["beg_size"]], end[-c["end_size"] :]
        row[: len(begin)] = np.frombuffer(begin, np.uint8)
        row[len(row) - len(end) :] = np.frombuffer(end, np.uint8)
        return row

    def name(self, scores):
        c, best = self.config, int(scores.argmax())
        label = c["target_labels_space"][best]
        sure = scores[best] >= c["thresholds"].get(label, c["medium_confidence_threshold"])
        name = c["overwrite_map"].get(label, label)
        return name if sure else "txt" if self.types[name]["is_text"] else "unknown", float(scores[best])

    def __call__(self, batch):
        blocks = [self.read(path) for path in batch["path"]]
        rows = [self.tokens(*block) for block in blocks]
        seen = [row for row in rows if row is not None]
        scores = iter(self.model(bytes=np.stack(seen))["target_label"] if seen else ())
        named = [(short_type(begin), 1.0) if row is None else self.name(next(scores)) for row, (begin, _) in zip(rows, blocks)]
        types, chances = zip(*named)
        return {"path": batch["path"], "type": np.array(types, object), "score": np.array(chances, np.float32)}


def short_type(content):
    """Of a file of a few bytes."""
    if not content:
        return "empty"
    try:
        content.decode("utf-8")
        return "txt"
    except UnicodeDecodeError:
        return "unknown"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--bundle", type=pathlib.Path, required=True)
    parser.add_argument("--magika", type=pathlib.Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    files = sorted(path for path in options.folder.rglob("*") if path.is_file())
    if not files:
        sys.exit(f"classify: no files under {options.folder}")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(num_cpus=options.workers + 1, include_dashboard=False, log_to_driver=False)  # on a cluster: ray.init(address="auto")
    ray.data.DataContext.get_current().enable_progress_bars = False
    # Paths alone travel: the workers read the two ends of each file where they are. (ray.data.read_binary_files would read all of it,
    # and unpack what is compressed.)
    blocks = max(1, min(len(files) // options.batch, 16 * options.workers))
    data = ray.data.from_items([{"path": str(path.resolve())} for path in files], override_num_blocks=blocks)
    data = data.map_batches(Classifier, fn_constructor_args=(str(options.bundle.resolve()), str(options.magika.resolve())), batch_size=options.batch,
                            concurrency=options.workers, num_cpus=1)
    rows = sorted((row["path"], row["type"], f"{row['score']:.4f}") for row in data.iter_rows())
    ray.shutdown()
    part = options.output.with_name(options.output.name + ".part")
    with open(part, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "type", "score"), *rows])
    part.replace(options.output)
    print(f"{len(rows)} files, {options.workers} workers")


if __name__ == "__main__":
    main()

"""Writes config.h for filetype.cpp from the configuration that lies beside magika's model.

Usage: make_config.py CONFIG.json CONTENT_TYPES.json OUTPUT.h"""

import json
import sys

config_path, types_path, output_path = sys.argv[1:]
with open(config_path, encoding="utf-8") as file:
    config = json.load(file)
with open(types_path, encoding="utf-8") as file:
    types = json.load(file)
assert config["mid_size"] == 0 and not config["use_inputs_at_offsets"], "another form of input than filetype.cpp makes"

lines = [
    "// Made by make_config.py from magika's configuration.",
    "#pragma once",
    "",
    *(f"constexpr int k{name} = {config[key]};" for name, key in (
        ("BeginSize", "beg_size"), ("EndSize", "end_size"), ("BlockSize", "block_size"),
        ("PaddingToken", "padding_token"), ("MinFileSize", "min_file_size_for_dl"))),
    "",
    "// A type that the model knows: its name, the least score at which it is believed, what is said when it is not,",
    "// and what it is.",
    "struct FileType {",
    "  const char *name;",
    "  float threshold;",
    "  const char *fallback;",
    "  const char *description;",
    "};",
    "constexpr FileType kTypes[] = {",
]
for label in config["target_labels_space"]:
    threshold = config["thresholds"].get(label, config["medium_confidence_threshold"])
    name = config["overwrite_map"].get(label, label)
    info = types[name]
    fallback = "txt" if info["is_text"] else "unknown"
    lines.append(f'    {{{json.dumps(name)}, {float(threshold)}f, "{fallback}", {json.dumps(info["description"], ensure_ascii=False)}}},')
lines += ["};", ""]
with open(output_path, "w", encoding="utf-8") as file:
    file.write("\n".join(lines))

"""Writes the vocabulary of a tokenizer.json (the form of Hugging Face's tokenizers, of kind WordPiece) as a file of one piece a line.

Usage: vocabulary.py TOKENIZER.json VOCABULARY.txt"""

import json
import sys

tokenizer_path, output_path = sys.argv[1:]
with open(tokenizer_path, encoding="utf-8") as file:
    tokenizer = json.load(file)
model, normalizer = tokenizer["model"], tokenizer["normalizer"]
assert model["type"] == "WordPiece" and model["continuing_subword_prefix"] == "##", "another tokenizer than wordpiece.h"
assert normalizer["type"] == "BertNormalizer" and normalizer["lowercase"], "another normalization than wordpiece.h"
pieces = sorted(model["vocab"], key=model["vocab"].get)
assert [model["vocab"][piece] for piece in pieces] == list(range(len(pieces))), "ids with holes"
with open(output_path, "w", encoding="utf-8", newline="\n") as file:
    file.writelines(piece + "\n" for piece in pieces)

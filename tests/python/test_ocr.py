"""examples/ocr: three trained models in one program, on a rendered page. Each line is what stands on the page, and what ONNX Runtime gives
for the same part of the picture."""

import struct
import subprocess
import zlib

import numpy as np
import onnx
import onnxruntime
import pytest

from example_programs import EXAMPLES, build, from_wheel, needs

pytestmark = pytest.mark.tier2
HERE = EXAMPLES / "ocr"
# From top to bottom, as the page has it; the recognizer sees no blanks between bold capitals.
PAGE = ["HARBOUR NOTICE", "Ferry 27 departs at 18:45", "Platform B, all days but Monday", "Ticket no. 4081-XK", "12.50 EUR", "Mind the gap"]
NETWORKS = {"text_detector": ("ch_PP-OCRv4_det_infer", ["--shape", "x=1x3xHxW", "--dim", "H=32..1536", "--dim", "W=32..1536"]),
            "text_direction": ("ch_ppocr_mobile_v2.0_cls_infer", ["--shape", "x=1x3x48x192"]),
            "text_recognizer": ("ch_PP-OCRv4_rec_infer", ["--shape", "x=1x3x48x320..3200"])}


def read_png(path):
    """8 bits, RGB or RGBA, not interlaced: [height, width, 3]."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, bits, color, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert bits == 8 and color in (2, 6) and not interlaced
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    channels = 3 if color == 2 else 4
    raw, rows, before = zlib.decompress(packed), [], np.zeros(width * channels, np.int64)
    for y in range(height):
        line = np.frombuffer(raw[y * (width * channels + 1) :][: width * channels + 1], np.uint8).astype(np.int64)
        kind, row = line[0], line[1:].copy()
        for i in range(len(row)):
            left, corner = (row[i - channels], before[i - channels]) if i >= channels else (0, 0)
            if kind == 4:
                p = left + before[i] - corner
                distances = [abs(p - left), abs(p - before[i]), abs(p - corner)]
                guess = (left, before[i], corner)[distances.index(min(distances))]
            else:
                guess = (0, left, before[i], (left + before[i]) // 2)[kind]
            row[i] = (row[i] + guess) & 255
        rows.append(row)
        before = row
    return np.array(rows, np.uint8).reshape(height, width, channels)[:, :, :3]


def write_png(path, pixels):
    height, width = pixels.shape[:2]
    raw = b"".join(b"\0" + row.tobytes() for row in pixels)
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b""))


@pytest.fixture(scope="module")
def models():
    return {name: from_wheel(HERE / "rapidocr-wheel.txt", f"rapidocr_onnxruntime/models/{file}.onnx") for name, (file, _) in NETWORKS.items()}


@pytest.fixture(scope="module")
def ocr(optc, models, tmp_path_factory):
    needs(["png.h", "nlohmann/json.hpp"], "libpng-dev nlohmann-json3-dev")
    work = tmp_path_factory.mktemp("ocr")
    for name, (_, options) in NETWORKS.items():
        subprocess.run([optc, models[name], "-o", work / name, "--name", name, *options, "-q"], check=True)
    return build("ocr", work / "build", f"-DBUNDLES={work}")


def read(ocr, *pictures):
    done = subprocess.run([ocr, *pictures], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    return [(tuple(map(int, line[:4])), float(line[4]), line[5]) for line in lines]


def squeezed(text):
    return text.replace(" ", "")


def recognized(model, pixels, place, turned=False):
    """A line's text and score by ONNX Runtime."""
    left, top, width, height = place
    part = pixels[top : top + height, left : left + width, ::-1].astype(np.float64)
    wide = int(np.ceil(48 * width / height))
    u = np.clip((np.arange(wide) + 0.5) * width / wide - 0.5, 0, width - 1)
    v = np.clip((np.arange(48) + 0.5) * height / 48 - 0.5, 0, height - 1)
    x0, y0 = u.astype(int), v.astype(int)
    x1, y1 = np.minimum(x0 + 1, width - 1), np.minimum(y0 + 1, height - 1)
    a, b = (u - x0)[None, :, None], (v - y0)[:, None, None]
    mixed = (part[y0][:, x0] * (1 - a) + part[y0][:, x1] * a) * (1 - b) + (part[y1][:, x0] * (1 - a) + part[y1][:, x1] * a) * b
    mixed = mixed[::-1, ::-1] if turned else mixed
    x = np.zeros((1, 3, 48, max(320, wide)), np.float32)
    x[0, :, :, :wide] = (mixed / 127.5 - 1).transpose(2, 0, 1)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    chances = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0][0]
    metadata = {p.key: p.value for p in onnx.load(model, load_external_data=False).metadata_props}
    names = ["", *metadata["character"].split("\n"), " "]
    best = chances.argmax(axis=1)
    kept = [i for i, c in enumerate(best) if c != 0 and (i == 0 or c != best[i - 1])]
    return "".join(names[best[i]] for i in kept), float(np.mean([chances[i, best[i]] for i in kept]))


def test_a_page_is_read(ocr, models):
    lines = read(ocr, HERE / "notice.png")
    assert [squeezed(text) for _, _, text in lines] == [squeezed(text) for text in PAGE]
    assert sum(text == want for (_, _, text), want in zip(lines, PAGE)) >= 4  # blanks too
    pixels = read_png(HERE / "notice.png")
    for place, score, text in lines:
        want, chance = recognized(models["text_recognizer"], pixels, place)
        assert text == want and abs(score - chance) < 2e-3


def test_a_page_on_its_head_is_read_line_by_line(ocr, models, tmp_path):
    pixels = read_png(HERE / "notice.png")[::-1, ::-1].copy()
    write_png(tmp_path / "turned.png", pixels)
    lines = read(ocr, tmp_path / "turned.png")
    # The detector may find the words of a line one by one.
    assert sorted("".join(squeezed(text) for _, _, text in lines)) == sorted("".join(map(squeezed, PAGE)))
    assert all(any(squeezed(text) in squeezed(line) for line in PAGE) for _, _, text in lines) and len(lines) <= len(PAGE) + 2
    for place, _, text in lines:
        assert text == recognized(models["text_recognizer"], pixels, place, turned=True)[0]


@pytest.mark.parametrize("height,width", [(1, 1), (3, 400), (400, 3), (64, 64)])
def test_pictures_without_text(ocr, tmp_path, height, width):
    write_png(tmp_path / "white.png", np.full((height, width, 3), 255, np.uint8))
    assert read(ocr, tmp_path / "white.png") == []


@pytest.mark.parametrize("damage,words", [(lambda d: b"", "bad.png"), (lambda d: b"GIF89a" + d[6:], "bad.png"), (lambda d: d[:2000], "bad.png"),
                                          (lambda d: d[:16] + struct.pack(">II", 1 << 20, 1 << 20) + d[24:], "bad.png")])
def test_what_is_no_picture_is_refused(ocr, tmp_path, damage, words):
    (tmp_path / "bad.png").write_bytes(damage((HERE / "notice.png").read_bytes()))
    done = subprocess.run([ocr, tmp_path / "bad.png"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and words in done.stderr and done.stdout == ""

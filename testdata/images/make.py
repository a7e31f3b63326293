"""Writes the images of this folder and expected.txt: what Pillow decodes them to (pip install pillow numpy): a line an
image, with its name, height, width and the bytes of its pixels in RGB.

Made with Pillow 13.0. Where Pillow clips 16-bit samples instead of scaling them, the samples here are multiples of 257.
"""

import io
import pathlib

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
HIGH, WIDE = 9, 13


def picture(channels, seed):
    """Smooth, so that lossy formats stay close, with a corner of noise."""
    y, x = np.mgrid[0:HIGH, 0:WIDE]
    planes = [(x * (17 + 3 * c) + y * (11 - 2 * c) + 40 * c) % 256 for c in range(channels)]
    image = np.stack(planes, -1).astype(np.uint8)
    image[:4, :4] = np.random.default_rng(seed).integers(0, 256, (4, 4, channels))
    return image if channels > 1 else image[:, :, 0]


def bmp(bits, width, height, pixels, packing=0, palette=b"", masks=b"", core=False):
    header = (
        (12).to_bytes(4, "little") + width.to_bytes(2, "little") + height.to_bytes(2, "little") + b"\1\0" + bits.to_bytes(2, "little")
        if core
        else (40).to_bytes(4, "little") + width.to_bytes(4, "little", signed=True) + height.to_bytes(4, "little", signed=True)
        + b"\1\0" + bits.to_bytes(2, "little") + packing.to_bytes(4, "little") + bytes(4 * 5)
    )
    at = 14 + len(header) + len(masks) + len(palette)
    return b"BM" + (at + len(pixels)).to_bytes(4, "little") + bytes(4) + at.to_bytes(4, "little") + header + masks + palette + pixels


def files():
    rgb, grey = Image.fromarray(picture(3, 1)), Image.fromarray(picture(1, 2))
    rgba, la = Image.fromarray(picture(4, 3)), Image.fromarray(picture(2, 4), "LA")
    palette, bits = rgb.quantize(13), grey.convert("1")
    sixteen = Image.fromarray(picture(1, 5).astype(np.uint16) * 257)

    def saved(image, form, **options):
        out = io.BytesIO()
        image.save(out, form, **options)
        return out.getvalue()

    for name, image in {"rgb": rgb, "grey": grey, "rgba": rgba, "la": la, "palette": palette, "bits": bits, "sixteen": sixteen}.items():
        yield f"{name}.png", saved(image, "PNG")
    yield "transparent.png", saved(palette, "PNG", transparency=2)
    for name, image in {"rgb": rgb, "grey": grey, "palette": palette, "bits": bits}.items():
        yield f"{name}.bmp", saved(image, "BMP")
    yield "down.bmp", bmp(24, 3, -2, bytes(range(9)) + bytes(3) + bytes(range(100, 109)) + bytes(3))
    yield "core.bmp", bmp(24, 3, 2, bytes(range(9)) + bytes(3) + bytes(range(100, 109)) + bytes(3), core=True)
    yield "555.bmp", bmp(16, 2, 1, bytes([0x1F, 0x7C, 0x83, 0x45]))
    yield "565.bmp", bmp(16, 2, 1, bytes([0x1F, 0xF8, 0x83, 0x45]), packing=3, masks=bytes([0, 0xF8, 0, 0, 0xE0, 7, 0, 0, 0x1F, 0, 0, 0]))
    colours = b"".join(bytes([10 * k, 255 - 9 * k, 3 * k, 0]) for k in range(16)) + bytes(4 * 240)
    runs = bytes([3, 5, 0, 3, 1, 2, 3, 0, 0, 0, 2, 7, 0, 2, 2, 0, 2, 9, 0, 1])
    yield "rle8.bmp", bmp(8, 6, 2, runs, packing=1, palette=colours)
    yield "rle4.bmp", bmp(4, 6, 2, bytes([3, 0x51, 0, 3, 0x12, 0x30, 0, 0, 6, 0x7A, 0, 1]), packing=2, palette=colours[:64])
    for name, image in {"rgb": rgb, "grey": grey, "cmyk": rgb.convert("CMYK")}.items():
        yield f"{name}.jpg", saved(image, "JPEG", quality=90)
    yield "progressive.jpg", saved(rgb, "JPEG", progressive=True, subsampling=0)
    yield "422.jpg", saved(rgb, "JPEG", subsampling=1)
    for name, image in {"rgb": rgb, "grey": grey, "rgba": rgba, "palette": palette, "bits": bits}.items():
        yield f"{name}.tiff", saved(image, "TIFF")
    for packing in ("tiff_lzw", "tiff_adobe_deflate", "packbits"):
        yield f"{packing}.tiff", saved(rgb, "TIFF", compression=packing)
    yield "lossless.webp", saved(rgb, "WEBP", lossless=True)
    yield "lossless_rgba.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    yield "lossy.webp", saved(rgb, "WEBP", quality=80)
    yield "rgb.jp2", saved(rgb, "JPEG2000")
    yield "rgba.jp2", saved(rgba, "JPEG2000")
    yield "lossy.jp2", saved(rgb, "JPEG2000", irreversible=True, quality_layers=[4])
    yield "grey.j2k", saved(grey, "JPEG2000", no_jp2=True)
    yield "rgb.ppm", saved(rgb, "PPM")
    yield "grey.pgm", saved(grey, "PPM")
    yield "bits.pbm", saved(bits, "PPM")
    yield "text.ppm", b"P3 # a comment\n2 2\n100\n0 50 100 1 2 3\n99 98 97 # another\n10 20 30\n"
    yield "text.pgm", b"P2\n3 1\n15\n0 7 15\n"
    yield "text.pbm", b"P1\n5 2\n10110 0 1 0 0 1\n"
    yield "sixteen.pgm", b"P5\n2 1\n65535\n" + bytes([0x12, 0x12, 0xFE, 0xFE])


def main():
    expected = ""
    for name, data in files():
        (HERE / name).write_bytes(data)
        image = Image.open(io.BytesIO(data))
        if image.mode.startswith("I"):
            decoded = np.repeat((np.array(image).astype(np.int64) // 257).astype(np.uint8)[:, :, None], 3, 2)
        else:
            decoded = np.array(image.convert("RGB"))
        expected += f"{name} {decoded.shape[0]} {decoded.shape[1]} {decoded.tobytes().hex()}\n"
    (HERE / "expected.txt").write_text(expected)


main()

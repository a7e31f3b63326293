"""ImageDecoder: the files of testdata/images on the evaluator and by bundles, and the libraries that such a bundle needs."""

import importlib.util
import pathlib
import subprocess
import sysconfig

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

IMAGES = pathlib.Path(__file__).resolve().parents[2] / "testdata/images"
EXPECTED = {}
for line in (IMAGES / "expected.txt").read_text().splitlines():
    name, high, wide, pixels = line.split()
    EXPECTED[name] = np.frombuffer(bytes.fromhex(pixels), np.uint8).reshape(int(high), int(wide), 3)


def converted(rgb, pixel_format):
    if pixel_format == "Grayscale":
        weighed = rgb.astype(np.int64) @ [19595, 38470, 7471]
        return ((weighed + 32768) >> 16).astype(np.uint8)[:, :, None]
    return rgb[:, :, ::-1] if pixel_format == "BGR" else rgb


def close(name, got, want):
    lossy = ".jpg" in name or name.startswith("lossy")
    assert got.shape == want.shape and got.dtype == np.uint8, name
    assert np.abs(got.astype(int) - want).max() <= (2 if lossy else 0), name


def write_model(path, pixel_format):
    node = helper.make_node("ImageDecoder", ["data"], ["image"], pixel_format=pixel_format)
    channels = 1 if pixel_format == "Grayscale" else 3
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("data", TensorProto.UINT8, ["bytes"])],
                              [helper.make_tensor_value_info("image", TensorProto.UINT8, ["h", "w", channels])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def load(bundle, build):
    spec = importlib.util.spec_from_file_location(bundle.name, bundle / "python" / f"{bundle.name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Model(library=str(next(build.glob("**/lib*.so"))))


def cmake(bundle, build, *options):
    done = subprocess.run(["cmake", "-S", bundle, "-B", build, "-DBUILD_SHARED_LIBS=ON", *options], capture_output=True, text=True)
    if done.returncode == 0:
        built = subprocess.run(["cmake", "--build", build, "--parallel", "2", "--target", bundle.name], capture_output=True, text=True)
        assert built.returncode == 0, built.stdout + built.stderr
    return done


@pytest.mark.parametrize("pixel_format", ["RGB", "BGR", "Grayscale"])
def test_bundles_decode_what_pillow_decodes(optc, tmp_path, pixel_format):
    bundle = tmp_path / "decode"
    subprocess.run([optc, write_model(tmp_path / "m.onnx", pixel_format), "-o", bundle, "--name", "decode", "-q"], check=True)
    assert cmake(bundle, tmp_path / "build").returncode == 0
    model = load(bundle, tmp_path / "build")
    for name, rgb in EXPECTED.items():
        close(name, model(data=np.frombuffer((IMAGES / name).read_bytes(), np.uint8))["image"], converted(rgb, pixel_format))
    nothing = model(data=np.frombuffer(b"no image at all", np.uint8))["image"]
    assert nothing.shape == (0, 0, 1 if pixel_format == "Grayscale" else 3)


def test_the_evaluator_decodes_too(optc, tmp_path):
    model = write_model(tmp_path / "m.onnx", "BGR")
    (tmp_path / "in").mkdir()
    for name in ("rgb.png", "rgb.jpg", "rgb.tiff", "lossless.webp", "rgb.jp2", "palette.bmp", "rgb.ppm"):
        data = np.frombuffer((IMAGES / name).read_bytes(), np.uint8)
        (tmp_path / "in/input_0.pb").write_bytes(numpy_helper.from_array(data).SerializeToString())
        subprocess.run([optc, "run", model, "--engine=evaluate", "--inputs", tmp_path / "in", "--outputs", tmp_path / "out", "-q"], check=True)
        got = numpy_helper.to_array(onnx.TensorProto.FromString((tmp_path / "out/output_0.pb").read_bytes()))
        close(name, got, converted(EXPECTED[name], "BGR"))


def test_libraries_are_named_and_may_be_left_out(optc, tmp_path):
    bundle = tmp_path / "decode"
    subprocess.run([optc, write_model(tmp_path / "m.onnx", "RGB"), "-o", bundle, "--name", "decode", "-q"], check=True)
    readme = (bundle / "README.md").read_text()
    for library in ("libjpeg", "libpng", "libtiff", "libwebp", "libopenjp2"):
        assert library in readme
    hidden = f"-DCMAKE_IGNORE_PATH=/usr/include/{sysconfig.get_config_var('MULTIARCH')}"
    missing = cmake(bundle, tmp_path / "missing", hidden)
    assert missing.returncode != 0
    said = " ".join(missing.stderr.split())
    assert "needs libtiff for TIFF, which is not found: install it (Debian: libtiff-dev)" in said
    assert cmake(bundle, tmp_path / "build", "-DOPTC_SYSTEM_LIBRARIES=PNG").returncode == 0
    model = load(bundle, tmp_path / "build")
    close("rgb.png", model(data=np.frombuffer((IMAGES / "rgb.png").read_bytes(), np.uint8))["image"], EXPECTED["rgb.png"])
    with pytest.raises(Exception, match="this library was built without TIFF images"):
        model(data=np.frombuffer((IMAGES / "rgb.tiff").read_bytes(), np.uint8))
    linked = subprocess.run(["ldd", next((tmp_path / "build").glob("lib*.so"))], capture_output=True, text=True).stdout
    assert "libpng" in linked and "libtiff" not in linked


def test_other_bundles_link_none(optc, tmp_path):
    node = helper.make_node("Relu", ["x"], ["y"])
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", info[:1], info[1:])), tmp_path / "m.onnx")
    subprocess.run([optc, tmp_path / "m.onnx", "-o", tmp_path / "relu", "-q"], check=True)
    assert "OPTC_SYSTEM_LIBRARIES" not in (tmp_path / "relu/CMakeLists.txt").read_text()
    assert "Needs a C++17 compiler and nothing else." in " ".join((tmp_path / "relu/README.md").read_text().split())


def test_other_pixel_formats_are_refused(optc, tmp_path):
    done = subprocess.run([optc, write_model(tmp_path / "m.onnx", "HSV"), "-o", tmp_path / "b"], capture_output=True, text=True)
    assert done.returncode == 3 and "pixel_format 'HSV' is not known" in done.stderr

"""The Python module of a bundle: tensors of other libraries (DLPack), and a device. torch and cupy are not asked for, `Lent` does as they do. The
emulated card's memory is the host's."""

import pathlib

import numpy as np
import pytest
from abi import CUDA, Lent, build, make, value
from onnx import TensorProto, helper

@pytest.fixture(scope="module")
def affine(optc, tmp_path_factory):
    """y [N, 3] = x + b, which is bf16 or f32, by NumPy's names; counts the positive ones too."""
    nodes = [helper.make_node("Cast", ["b"], ["wide"], to=1), helper.make_node("Add", ["x", "wide"], ["y"]),
             helper.make_node("Cast", ["y"], ["low"], to=TensorProto.BFLOAT16)]
    model = make(nodes, [value("x", ["N", 3]), value("b", [3], TensorProto.BFLOAT16)],
                 [value("y", ["N", 3]), value("low", ["N", 3], TensorProto.BFLOAT16)])
    driver = pathlib.Path(optc).parent.parent / "tests/libemulated_cuda.so"
    gpu = driver.exists() and (pathlib.Path(optc).parent.parent / "lib/optc/optc-ptx.so").exists()
    module, library = build(optc, tmp_path_factory.mktemp("affine"), "affine", model, *(["--target=cpu,sm_80"] if gpu else []))
    with pytest.MonkeyPatch.context() as patch:  # a library looks for the driver once
        if gpu:
            patch.setenv("OPTC_LIBCUDA", str(driver))
        yield module, library, driver if gpu else None


def bits(array):
    """f32 as bf16, by truncation of numbers that it holds."""
    return (np.asarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)


X, B = np.arange(6, dtype=np.float32).reshape(2, 3), np.float32([0.5, -2, 1])


def test_tensors_of_other_libraries_are_taken_where_they_lie(affine):
    module, library, _ = affine
    model = module.Model(library, device="cpu")
    got = model(x=Lent(X), b=Lent(bits(B), code=4))
    np.testing.assert_array_equal(got["y"], X + B)
    np.testing.assert_array_equal(got["low"], bits(X + B).view(np.uint8).ravel())
    behind = np.concatenate([np.zeros(4, np.float32), X.ravel()])[4:].reshape(2, 3)  # DLPack's byte_offset
    np.testing.assert_array_equal(model(Lent(behind, offset=16), Lent(bits(B), code=4))["y"], X + B)
    turned = Lent(np.asfortranarray(X))
    with pytest.raises(ValueError, match="input 'x' is not contiguous"):
        model(x=turned, b=Lent(bits(B), code=4))
    np.testing.assert_array_equal(model(x=Lent(X[:1].T.copy().T), b=Lent(bits(B), code=4))["y"], X[:1] + B)  # one row, by any strides
    with pytest.raises(TypeError, match="input 'x' has dtype float64, expected float32"):
        model(x=Lent(X.astype(np.float64)), b=Lent(bits(B), code=4))
    with pytest.raises(TypeError, match="input 'b' has dtype float16, expected bfloat16"):
        model(x=X, b=Lent(B.astype(np.float16)))
    with pytest.raises(TypeError, match="input 'x' has dtype that no bundle knows"):
        model(x=Lent(X, code=15), b=Lent(bits(B), code=4))


def test_results_are_written_into_the_callers_tensors(affine):
    module, library, _ = affine
    model = module.Model(library)
    y, low = np.full((2, 3), np.nan, np.float32), np.zeros((2, 3), np.uint16)
    lent = Lent(low, code=4)
    got = model(x=X, b=Lent(bits(B), code=4), out={"y": y, "low": lent})
    assert got["y"] is y and got["low"] is lent
    np.testing.assert_array_equal(y, X + B)
    np.testing.assert_array_equal(low, bits(X + B))
    for out, said in (({"z": y}, "no output 'z'; the outputs are"), ({"y": y.astype(np.float64)}, "out 'y': expected a contiguous"),
                      ({"y": np.asfortranarray(y)}, "out 'y': expected a contiguous"), ({"low": low}, "DLPack tensor of bfloat16"),
                      ({"y": Lent(y.astype(np.float64))}, "out 'y' has dtype float64, expected float32")):
        with pytest.raises(TypeError, match=said):
            model(x=X, b=Lent(bits(B), code=4), out=out)
    with pytest.raises(module.Error) as small:
        model(x=X, b=Lent(bits(B), code=4), out={"y": y[:1].copy()})
    assert small.value.status == 2
    with pytest.raises(ValueError, match=r"out 'y' has shape \(3, 3\), the result \(2, 3\)"):
        model(x=X, b=Lent(bits(B), code=4), out={"y": np.zeros((3, 3), np.float32)})


def test_a_device_is_chosen_by_its_name(affine):
    module, library, _ = affine
    for name in ("gpu", "cuda:x", "cuda:-1", "cpu:0", "cuda:1:2"):
        with pytest.raises(ValueError, match="expected 'cpu', 'cuda' or 'cuda:N'"):
            module.Model(library, device=name)
    with pytest.raises(module.Error) as none:
        module.Model(library, device="cuda:7")
    assert none.value.status == 6


def test_tensors_on_a_card_stay_there(affine):
    module, library, driver = affine
    if not driver:
        pytest.skip("this build has no GPU targets")
    model = module.Model(library, device="cuda:0")
    x, b = Lent(X, CUDA), Lent(bits(B), CUDA, code=4)
    np.testing.assert_array_equal(model(x=x, b=b)["y"], X + B)  # results in new arrays of the host
    assert x.streams == b.streams == [1]  # what is still to be written is in order with CUDA's default stream
    y, low = Lent(np.zeros((2, 3), np.float32), CUDA), Lent(np.zeros((2, 3), np.uint16), CUDA, code=4)
    assert model(x=X, b=b, out={"y": y})["y"] is y
    np.testing.assert_array_equal(y.array, X + B)
    y.array[:] = 0
    out = {"y": y, "low": low}
    assert model.run_async(x=x, b=b, out=out) is out
    np.testing.assert_array_equal(y.array, X + B)
    np.testing.assert_array_equal(low.array, bits(X + B))
    with pytest.raises(TypeError, match="run_async: no tensor for the output 'low' in out"):
        model.run_async(x=x, b=b, out={"y": y})
    with pytest.raises(module.Error, match="does not lie on the GPU"):
        model.run_async(x=X, b=b, out=out)
    with pytest.raises(module.Error, match="x"):  # a context of the CPU
        module.Model(library, device="cpu")(x=x, b=b)

"""What the tests of this folder share: the built tool, the folder for their work, and the skip of what is not there."""

import os
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pytest_configure(config):
    config.addinivalue_line("markers", "tier2: not in `./dev test`, only in `./dev test --all`")
    config.addinivalue_line("markers", "tier1: a part of what `./dev test --all` has whole, and not in that")


@pytest.fixture(scope="session")
def root():
    return ROOT


@pytest.fixture(scope="session")
def optc():
    """The path of the built optc ($OPTC, else build/bin/optc)."""
    path = pathlib.Path(os.environ.get("OPTC", ROOT / "build/bin/optc"))
    if not path.exists():
        pytest.fail(f"{path} is not there: run ./dev build")
    return path


@pytest.fixture(scope="session")
def evaluator(optc):
    """The program that evaluates models of the ONNX test layout; it lies beside optc."""
    path = optc.parent / "optc_conformance"
    if not path.exists():
        pytest.fail(f"{path} is not there: run ./dev build")
    return path


@pytest.fixture(scope="session")
def shared():
    """The folder of models and cases beside the checkout; the test is skipped where it is absent."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"{path} is not there")
    return path

"""Triton's kernels on a machine without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("fused_on_cpu.py")


def test_our_kernels_equal_plain_torch_in_the_interpreter_of_triton() -> None:
    pytest.importorskip("triton")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FILE)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout[-3000:]
    assert "passed" in run.stdout

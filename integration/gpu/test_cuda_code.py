"""The machine code of CUDA kernels: the checks that make runs only if it finds a disassembler."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_kernels_have_the_instructions_they_are_for(tmp_path):
    objects = ROOT / "build/obj/model-server/backend/cuda/kernels"
    if not (objects / "linear_stream.cu.o").exists():
        pytest.skip("no CUDA kernels are built here")
    tools = list(Path(pytest.__file__).parents[1].glob("nvidia/*/bin/cuobjdump"))
    assert tools, "nvidia-cuda-cuobjdump is one of the requirements"
    built = (ROOT / "build/gen/cuda_archs").read_text().strip()  # of other architectures nothing is compiled here
    made = subprocess.run(
        ["make", "-s", "-C", ROOT, "cuda-gates", f"CUOBJDUMP={tools[0]}", f"CUDA_ARCHS={built}"],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "not checked" not in made.stdout

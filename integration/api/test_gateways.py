"""Routes for gateways and load balancers: rendered prompts, served models, load."""

import re

import pytest
import requests
from serving import DEMO, ROOT, SLOW, Service, wait_for

ONCE = "Once upon a time"
CHAT = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Größe?"}]


@pytest.fixture(scope="module")
def s():
    with Service(DEMO, num_shard=2, args=["--max-total-tokens", "512", "--max-concurrent-requests", "4", "--speculate", "3"]) as service:
        yield service


def get(s, path, **kw):
    return requests.get(s.url + path, timeout=60 * SLOW, **kw)


def test_rendered_ids_are_those_of_a_generation(s):
    """What the render says is what the generation's prompt is, and it counts as nothing."""
    before = s.metric("tgi_request_count") or 0
    chat = {"messages": CHAT, "max_tokens": 3}
    rendered = s.post("/v1/chat/completions/render", chat).json()
    assert rendered["prompt"] == s.post("/apply-template", chat).json()["prompt"]
    texts = s.post("/v1/completions/render", {"prompt": [ONCE, "The cat"]}).json()
    assert [t["prompt"] for t in texts] == [ONCE, "The cat"]
    ids = s.post("/v1/completions/render", {"prompt": [7, 8, 9]}).json()
    assert [i["token_ids"] for i in ids] == [[7, 8, 9]]
    assert (s.metric("tgi_request_count") or 0) == before
    for path, body, got in (
        ("/v1/chat/completions", chat, rendered),
        ("/v1/completions", {"prompt": ONCE, "max_tokens": 3}, texts[0]),
    ):
        answer = s.post(path, {**body, "return_token_ids": True}).json()
        told = answer.get("prompt_token_ids") or answer["choices"][0].get("prompt_token_ids")
        assert got["token_ids"] == told and len(told) == answer["usage"]["prompt_tokens"]


def test_what_cannot_be_generated_is_not_rendered(s):
    for path, body in (
        ("/v1/completions/render", {"prompt": [1] * 600}),
        ("/v1/completions/render", {"prompt": [2**31]}),
        ("/v1/completions/render", {}),
        ("/v1/chat/completions/render", {"messages": "x"}),
        ("/v1/chat/completions/render", {"messages": CHAT, "temperature": -1}),
    ):
        r = s.post(path, body)
        assert r.status_code == 400 and r.json()["error"]["type"] == "invalid_request_error", (path, r.text)


def test_paths_without_v1_are_the_same(s):
    for path, body in (
        ("/chat/completions", {"messages": CHAT, "max_tokens": 6, "temperature": 0}),
        ("/completions", {"prompt": ONCE, "max_tokens": 6, "temperature": 0}),
    ):
        assert s.post(path, body).json()["choices"] == s.post("/v1" + path, body).json()["choices"]
        assert list(s.events(path, {**body, "stream": True}))[-1] == "[DONE]"
        assert s.post(path, {}).json() == s.post("/v1" + path, {}).json()  # errors in OpenAI's shape


def test_a_model_that_generates_has_no_embeddings_and_says_so(s):
    for path in ("/v1/embeddings", "/embeddings"):
        r = s.post(path, {"model": "m", "input": "x"})
        assert r.status_code == 400 and "served for `generate`" in r.json()["error"]["message"]
    assert "/v1/embeddings" not in get(s, "/api-doc/openapi.json").json()["paths"]


def test_what_is_served(s):
    model = get(s, "/v1/models").json()["data"][0]
    assert model["max_model_len"] == 512 and model["root"] == model["id"] and model["parent"] is None
    assert get(s, "/v1/models/" + model["id"]).json() == model
    for path in ("/server_info", "/model_info", "/get_server_info", "/get_model_info"):
        info = get(s, path).json()
        assert info["model_path"] == info["served_model_name"] == model["id"]
        assert (info["tp_size"], info["dp_size"], info["context_length"]) == (2, 1, 512)
        assert info["is_generation"] is True and info["device"] == "cpu"
    version = (ROOT / "VERSION").read_text().strip()
    assert get(s, "/version").json() == {"version": version} and info["version"] == version


def test_load_is_what_runs_and_waits(s):
    assert get(s, "/load").json() == {"server_load": 0, "running": 0, "waiting": 0}
    body = {"prompt": ONCE, "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 4}
    seen = []
    with s.post("/v1/completions", body, stream=True) as r:
        assert r.status_code == 200
        lines = r.iter_lines()
        next(lines)
        seen.append(get(s, "/load").json())
        seen += get(s, "/get_load").json()
        # All permits are held: a probe finds the server at work, and does not call it ill.
        probe = get(s, "/health_generate")
        refused = s.post("/v1/completions", {"prompt": "x", "max_tokens": 1})
    assert seen[0]["server_load"] == seen[0]["running"] + seen[0]["waiting"] <= 4
    assert seen[1]["dp_rank"] == 0 and seen[1]["num_reqs"] >= seen[1]["num_waiting_reqs"]
    assert probe.status_code == 200 and refused.status_code in (200, 503)
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)


def test_health_generate_generates(s):
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)
    before = s.metric("tgi_request_count") or 0
    r = get(s, "/health_generate")
    assert r.status_code == 200 and r.text == ""
    wait_for(lambda: s.metric("tgi_request_count") == before + 1)


def test_options_name_the_methods_of_the_path(s):
    named = ("/v1/responses/input_tokens", "POST, OPTIONS")  # the pattern /v1/responses/* does not mean it
    for path, allow in (("/v1/completions", "POST, OPTIONS"), ("/load", "GET, HEAD, OPTIONS"), ("/", "GET, HEAD, POST, OPTIONS"), named):
        r = requests.options(s.url + path, timeout=60 * SLOW)
        assert r.status_code == 200 and r.headers["allow"] == r.headers["access-control-allow-methods"] == allow
    assert requests.options(s.url + "/nothing", timeout=60 * SLOW).status_code == 404


# What each of them reads of /metrics: (name, type). docs/results/operations.md says which versions.
READ = {
    "llm-d, gateway API inference extension": [
        ("vllm:num_requests_waiting", "gauge"), ("vllm:num_requests_running", "gauge"),
        ("vllm:kv_cache_usage_perc", "gauge"), ("vllm:cache_config_info", "gauge"),
    ],
    "production-stack": [
        ("vllm:num_requests_waiting", "gauge"), ("vllm:num_requests_running", "gauge"), ("vllm:gpu_cache_usage_perc", "gauge"),
        ("vllm:gpu_prefix_cache_hits_total", "counter"), ("vllm:gpu_prefix_cache_queries_total", "counter"),
    ],
    "AIBrix": [
        ("vllm:num_requests_waiting", "gauge"), ("vllm:num_requests_running", "gauge"), ("vllm:kv_cache_usage_perc", "gauge"),
        ("vllm:prompt_tokens_total", "counter"), ("vllm:generation_tokens_total", "counter"),
        ("vllm:time_to_first_token_seconds", "histogram"), ("vllm:e2e_request_latency_seconds", "histogram"),
    ],
}  # fmt: skip


def labels(line):
    return dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', line))


@pytest.mark.parametrize("reader", READ)
def test_metrics_that_others_read(s, reader):
    text = get(s, "/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    model = get(s, "/v1/models").json()["data"][0]["id"]
    for name, kind in READ[reader]:
        assert kinds[name] == kind
        series = [line for line in text.splitlines() if re.match(rf"{name}(_bucket|_sum|_count)?{{", line)]
        assert series and all(labels(line)["model_name"] == model and labels(line)["engine"] == "0" for line in series)


# The series of vLLM's dashboards for Grafana (examples/observability/dashboards of vLLM) with the labels that they ask for, but for
# those of its own connectors and options.
DASHBOARDS = {
    "vllm:request_success_total": {"finished_reason": {"stop", "length", "abort", "error"}},
    "vllm:prompt_tokens_total": {}, "vllm:generation_tokens_total": {}, "vllm:prompt_tokens_cached_total": {},
    "vllm:prompt_tokens_by_source_total": {"source": {"local_compute", "local_cache_hit", "external_kv_transfer"}},
    "vllm:num_requests_running": {}, "vllm:num_requests_waiting": {},
    "vllm:num_requests_waiting_by_reason": {"reason": {"capacity", "deferred"}},
    "vllm:time_to_first_token_seconds": {}, "vllm:inter_token_latency_seconds": {}, "vllm:e2e_request_latency_seconds": {},
    "vllm:request_queue_time_seconds": {}, "vllm:request_prefill_time_seconds": {}, "vllm:request_decode_time_seconds": {},
    "vllm:request_prompt_tokens": {}, "vllm:request_generation_tokens": {}, "vllm:iteration_tokens_total": {},
    "vllm:kv_cache_usage_perc": {}, "vllm:num_preemptions_total": {}, "vllm:prefix_cache_hits_total": {}, "vllm:prefix_cache_queries_total": {},
    "vllm:spec_decode_num_drafts_total": {}, "vllm:spec_decode_num_draft_tokens_total": {},
    "vllm:spec_decode_num_accepted_tokens_total": {},
    "vllm:engine_sleep_state": {"sleep_state": {"awake", "weights_offloaded", "discard_all"}},
    "http_requests_total": {"handler": {"/v1/completions"}, "method": {"POST"}, "status": {"2xx", "4xx"}},
    "http_request_duration_seconds": {"handler": {"/v1/completions"}, "method": {"POST"}},
    "process_resident_memory_bytes": {}, "process_cpu_seconds_total": {}, "process_open_fds": {}, "process_start_time_seconds": {},
}  # fmt: skip


def test_series_of_vllms_dashboards(s):
    assert s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 3}).status_code == 200
    assert s.post("/v1/completions", {"prompt": 7}).status_code // 100 == 4
    text = get(s, "/metrics").text
    for name, wanted in DASHBOARDS.items():
        found = [labels(line) for line in text.splitlines() if re.match(rf"{name}(_bucket|_sum|_count)?[{{ ]", line)]
        assert found, name
        for label, values in wanted.items():
            assert values <= {row[label] for row in found}, (name, label)


def total(text, name, **wanted):
    lines = [line for line in text.splitlines() if re.match(rf"{name}[{{ ]", line) and wanted.items() <= labels(line).items()]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def test_tokens_are_counted_as_they_come(s):
    """A rate over a long answer is not a peak at its end."""
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)
    before = get(s, "/metrics").text
    body = {"prompt": ONCE, "max_tokens": 300, "ignore_eos": True, "stream": True, "logprobs": 0}
    with s.post("/v1/completions", body, stream=True) as r:
        lines = (line for line in r.iter_lines() if line.startswith(b"data: {"))
        for _ in range(20):
            next(lines)
        while_it_runs = get(s, "/metrics").text
        for _ in lines:
            pass
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)
    after = get(s, "/metrics").text

    def more(name, text, **wanted):
        return total(text, name, **wanted) - total(before, name, **wanted)

    assert 19 <= more("vllm:generation_tokens_total", while_it_runs) <= 300 == more("vllm:generation_tokens_total", after)
    assert more("vllm:prompt_tokens_total", while_it_runs) == more("vllm:prompt_tokens_total", after) > 0
    assert more("vllm:prompt_tokens_by_source_total", after) == more("vllm:prompt_tokens_total", after)
    assert more("vllm:request_success_total", after, finished_reason="length") == more("vllm:request_success_total", after) == 1
    steps = more("vllm:inter_token_latency_seconds_count", after) + 1
    accepted = more("vllm:spec_decode_num_accepted_tokens_total", after)
    assert steps + accepted == 300 and accepted == more("tgi_request_skipped_tokens_sum", after)
    drafts, proposed = (more(f"vllm:spec_decode_num_{what}_total", after) for what in ("drafts", "draft_tokens"))
    assert accepted <= proposed and drafts <= min(proposed, steps)
    positions = more("vllm:spec_decode_num_accepted_tokens_per_pos_total", after)
    assert positions == accepted and more("vllm:spec_decode_num_accepted_tokens_per_pos_total", after, position="0") <= drafts
    assert more("vllm:iteration_tokens_total_sum", after) >= 300


def test_an_abandoned_stream_is_counted_as_aborted(s):
    before = total(get(s, "/metrics").text, "vllm:request_success_total", finished_reason="abort")
    with s.post("/v1/completions", {"prompt": ONCE, "max_tokens": 480, "ignore_eos": True, "stream": True}, stream=True) as r:
        next(r.iter_lines())
    wait_for(lambda: total(get(s, "/metrics").text, "vllm:request_success_total", finished_reason="abort") == before + 1)


def value(text, name):
    (line,) = [line for line in text.splitlines() if line.startswith(name + "{")]
    return float(line.rsplit(" ", 1)[1])


def test_fractions_and_sizes_are_those_of_the_cache(s):
    text = get(s, "/metrics").text
    (info,) = [labels(line) for line in text.splitlines() if line.startswith("vllm:cache_config_info{")]
    blocks = {labels(line)["state"]: float(line.split()[-1]) for line in text.splitlines() if line.startswith("kv_blocks{")}
    assert int(info["num_gpu_blocks"]) == sum(blocks.values()) and int(info["block_size"]) > 0
    body = {"prompt": ONCE, "max_tokens": 480, "ignore_eos": True, "stream": True, "n": 4}
    with s.post("/v1/completions", body, stream=True) as r:
        lines = r.iter_lines()
        next(lines)
        busy = get(s, "/metrics").text
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)
    usage = value(busy, "vllm:kv_cache_usage_perc")
    assert 0 < usage <= 1 and usage == value(busy, "vllm:gpu_cache_usage_perc")
    assert value(busy, "vllm:num_requests_running") + value(busy, "vllm:num_requests_waiting") > 0
    assert value(get(s, "/metrics").text, "vllm:kv_cache_usage_perc") == 0, "what is cached and free is not in use"


def test_prefix_hits_never_exceed_queries(s):
    wait_for(lambda: get(s, "/load").json()["server_load"] == 0)
    prompt = {"prompt": "It was a cold and rainy day, and the little fox had no friends at all. " * 6, "max_tokens": 2}
    seen = []
    for _ in range(3):
        used = s.post("/v1/completions", prompt).json()["usage"]["prompt_tokens"]
        text = get(s, "/metrics").text
        seen.append([value(text, f"vllm:prefix_cache_{what}_total") for what in ("queries", "hits")])
    first, second, third = seen
    assert second[0] - first[0] == third[0] - second[0] == used
    assert used * 0.8 < second[1] - first[1] == third[1] - second[1] <= used


def test_counters_are_there_before_their_first_event():
    with Service(DEMO) as fresh:
        text = requests.get(fresh.url + "/metrics", timeout=60 * SLOW).text
        for name in set(re.findall(r"^# TYPE (\S+) counter$", text, re.M)) - {"http_requests_total"}:  # of routes that were called
            assert re.search(rf"^{name}[ {{]", text, re.M), f"{name} has no series"
        for cause in ("validation", "overloaded", "generation", "incomplete", "template", "unhealthy", "dropped"):
            assert fresh.metric("tgi_request_failure", err=cause) == 0
        fresh.post("/generate", {"inputs": "x", "parameters": {"max_new_tokens": -1}})
        wait_for(lambda: fresh.metric("tgi_request_failure", err="validation") == 1)


def test_a_seed_of_an_instance_is_read(s):
    instance = {"messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 12, "temperature": 1.5, "seed": 7}
    bodies = [{"instances": [instance]}, {"instances": [{**instance, "seed": 2**53 - 1}]}]
    assert s.post("/vertex", bodies[0]).json() == s.post("/vertex", bodies[0]).json()
    assert "predictions" in s.post("/vertex", bodies[1]).json()
    # its digits are lost in a list: refused, not rounded
    assert s.post("/vertex", {"instances": [{**instance, "seed": 2**64 - 1}]}).status_code == 422


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has no `text`"),
        ("/v1/messages", {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]}]}, "has no `id`"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "x"}], "system": {"text": "y"}}, "system"),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "has no text"),
        ("/v1/responses", {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "call_id"),
        ("/v1/responses", {"input": "x", "text": ["format"]}, "text"),
        *((path, {"messages": []}, "at least one message is required") for path in ("/v1/chat/completions", "/v1/chat/completions/render", "/v1/messages")),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f", "parameters": ["a"]}}]}, "parameters"),
        ("/completion", {"prompt": [2.5, "x"]}, "token id"),
        ("/api/chat", {"messages": [{"role": "user", "content": {"text": "x"}}]}, "content"),
        ("/api/generate", {"prompt": "x", "think": [], "raw": True}, "think"),
        ("/api/show", ["demo"], "a JSON object"),
    ],
)
def test_nothing_is_dropped_silently(s, path, body, said):
    r = s.post(path, {"max_tokens": 4, **body} if isinstance(body, dict) else body)
    assert r.status_code == 400 and said in r.text, r.text

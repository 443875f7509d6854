"""Scripts for machines with a GPU that are lent for minutes: whatever they run ends in time."""

import os
import pathlib
import re
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs/results/gpu.md"
COMMAND_SECONDS = 600  # a command may take
FIRST_SECONDS = 570  # gpu_first, which has to leave room for the start of the machine


@pytest.fixture
def kit(tmp_path):
    """A folder that looks like a kit, whose programs end after $NAP seconds."""
    for name in ("test_cuda_products", "test_cuda_codes", "model-server"):
        (tmp_path / name).write_text('#!/bin/sh\necho "{}"\nsleep "${NAP:-0}"\n')
        (tmp_path / name).chmod(0o755)
    return tmp_path


def run(command, kit, **env):
    command = command.replace("build/gpu-kit.tar.xz", str(kit))
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "OUT": str(kit / "out"), **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def most_seconds(command, kit):
    done = run(command, kit, DRY="1")
    assert done.returncode == 0, done.stderr
    return [int(x) for x in re.findall(r": at most (\d+) s$", done.stdout, re.M)]


def test_the_commands_of_the_page_end_within_ten_minutes(kit):
    commands = re.findall(r"^    (STEPS=.* tests/gpu_(?:check|bench).*)$", PAGE.read_text(), re.M)
    assert len(commands) > 10
    for command in commands:
        assert sum(most_seconds(command, kit)) <= COMMAND_SECONDS, command


def test_the_first_command_leaves_time_for_the_start(kit):
    seconds = most_seconds("tests/gpu_first build/gpu-kit.tar.xz", kit)
    assert len(seconds) > 10 and sum(seconds) <= FIRST_SECONDS


def test_a_step_that_has_ended_is_in_the_table_and_no_step_outlasts_the_time(kit):
    began = time.monotonic()
    until = str(int(time.time()) + 6)
    done = run(f"tests/gpu_check {kit}", kit, STEPS="^(packed|wgmma)$", UNTIL=until, NAP="30")
    table = (kit / "out/gpu-check.md").read_text()
    assert done.returncode == 1 and time.monotonic() - began < 15
    assert re.search(r"\| packed +\| FAILED \(124\) \|", table) and "wgmma" not in table
    assert "wgmma: left out, no time is left" in done.stdout


def test_what_a_bench_had_measured_stays(kit):
    until = str(int(time.time()) + 6)
    done = run(f"tests/gpu_bench {kit}", kit, STEPS="^cache-int4$", UNTIL=until, NAP="30")
    assert "cache-int4 failed (124)" in done.stdout
    assert (kit / "out/cache-int4.ours.json").read_text() == "{}\n"


PTX = """
.version 9.0
.visible .entry kernel(.param .u64 a)
{
	shr.u32 	%r2, %r1, 5;
	and.b32  	%r3, %r2, 3;
	add.s32 	%r4, %r2, 4;
	shl.b32 	%r5, %r4, 9;
	and.b32  	%r6, %r5, -2048;
	add.s32 	%r7, %r6, %r3;
}
"""


def test_an_address_that_lost_a_rounding_is_found(tmp_path):
    """x + 4 divided by 4, times 2048: with and without its rounding."""
    file = tmp_path / "kernel.ptx"
    file.write_text(PTX)
    assert subprocess.run([ROOT / "tests/cuda_ptx", file]).returncode == 0
    file.write_text(PTX.replace("and.b32  	%r6, %r5, -2048", "add.s32 	%r6, %r5, 0"))
    done = subprocess.run([ROOT / "tests/cuda_ptx", file], capture_output=True, text=True)
    assert done.returncode == 1 and "(%r2 + 4) << 9" in done.stdout

#!/usr/bin/env python3
"""Compares our engine with llama.cpp, OpenVINO GenAI, CTranslate2 and vLLM on the same random weights, row by row.

    make bench-peers PEERS=/some/where          once: installs the peers and makes their files
    integration/bench/compare.py --peers /some/where --rounds 5 --json result.json

In each round every engine is measured once, in an order that rotates, and so are the limits of the machine: what else
the host does hits all of them, and ratios are taken within a round. --prefix CMD runs every single measurement behind
CMD. A peer that is not installed leaves a word in its column.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shlex
import sys

import cases
import engines
import table


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--peers", default="build/peers", help="folder of make bench-peers (%(default)s)")
    p.add_argument("--build", default="build", help="our build folder (%(default)s)")
    p.add_argument("--checkpoint", help="default: PEERS/data/llama-3.2-1b")
    p.add_argument("--rows", default="*", help="comma-separated names or patterns; list: only print them")
    p.add_argument("--engines", default="*", help="comma-separated: " + ", ".join(e.name for e in engines.ENGINES))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=32, help="decode steps that are timed (%(default)s)")
    p.add_argument("--new", type=int, default=64, help="tokens per request of the served rows (%(default)s)")
    p.add_argument("--kv-tokens", type=int, default=16 * 256, help="cache of the served rows (%(default)s tokens)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--quick", action="store_true", help="one round, 8 steps, 16 new tokens")
    p.add_argument("--prefix", default=os.environ.get("BENCH_PREFIX", ""), help="command before each measurement")
    p.add_argument("--json", help="write all rounds there; what it holds of other rows is kept")
    p.add_argument(
        "--append", action="store_true", help="what it holds of these rows is kept too: more rounds of one run"
    )
    o = p.parse_args()
    if o.quick:
        o.rounds, o.steps, o.new = 1, 8, 16
    o.prefix = shlex.split(o.prefix)
    o.bin, o.limits = f"{o.build}/bin", f"{o.build}/tests/bench/limits"
    o.checkpoint = o.checkpoint or f"{o.peers}/data/llama-3.2-1b"
    o.has_checkpoint = os.path.exists(f"{o.checkpoint}/model.safetensors")
    return o


def available(o):
    """Engines that are there, and for the others the reason."""
    there, missing = [], {}
    wanted = o.engines.split(",")
    for engine in engines.ENGINES:
        if o.engines != "*" and engine.name not in wanted:
            missing[engine.name] = "not asked for"
            continue
        try:
            there.append(engine(o))
        except engines.Absent as e:
            missing[engine.name] = str(e)
    return there, missing


def measure_row(o, case, there, missing):
    row = {k: getattr(case, k) for k in ("name", "title", "kind", "limit")}
    row |= {"rounds": [], "absent": dict(missing) | case.skip}
    running = [e for e in there if e.name not in row["absent"]]
    for n in range(o.rounds):
        measured = {"limits": engines.limits(o)}
        at = n % max(len(running), 1)
        for engine in running[at:] + running[:at]:
            if engine.name in row["absent"]:
                continue
            try:
                measured[engine.name] = engine.measure(case, n + 1)
            except engines.Absent as e:
                row["absent"][engine.name] = str(e)
        row["rounds"].append(measured)
        note(
            f"{case.name} round {n + 1}: " + ", ".join(f"{k} {brief(v)}" for k, v in measured.items() if k != "limits")
        )
    return row


def brief(v):
    return f"{v['tokens_per_s']:.1f}" if "tokens_per_s" in v else f"ready {v['ready_s']:.1f} s"


def note(text):
    print(text, file=sys.stderr, flush=True)


def machine():
    info = dict(
        line.split(":", 1)
        for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        if ":" in line
    )
    info = {k.strip(): v.strip() for k, v in info.items()}
    wanted = ("avx2", "fma", "f16c", "avx512", "avx_vnni", "amx")
    flags = sorted(f for f in info.get("flags", "").split() if f.startswith(wanted))
    return {
        "cpu": info.get("model name", platform.processor()),
        "family": "/".join(info.get(k, "?") for k in ("vendor_id", "cpu family", "model")),
        "flags": flags,
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
    }


def kept_rows(path):
    """Rows that an earlier run left in the file, by name."""
    if not path or not os.path.exists(path):
        return {}
    return {row["name"]: row for row in json.loads(pathlib.Path(path).read_text())["rows"]}


def main():
    o = options()
    if o.rows == "list":
        print("\n".join(f"{c.name:20} {c.title}" for c in cases.CASES))
        return 0
    rows = cases.select(o.rows)
    there, missing = available(o)
    if any("make bench-peers" in reason for reason in missing.values()):
        note(f"peers are missing in {o.peers}: `make bench-peers PEERS=DIR`, then PEERS=DIR here (docs/benchmarks.md)")
    report = {
        "schema": 1,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": engines.quote(sys.argv),
        "threads": o.threads,
        "machine": machine(),
        "versions": {e.name: e.version() for e in there},
        "engines": [(e.name, e.title) for e in engines.ENGINES],
        "rows": [],
    }
    kept = kept_rows(o.json)
    for case in rows:
        row = measure_row(o, case, there, missing)
        if o.append and case.name in kept:
            row["rounds"] = kept[case.name]["rounds"] + row["rounds"]
            row["absent"] = kept[case.name]["absent"] | row["absent"]
        kept[case.name] = row
        report["rows"] = [kept[c.name] for c in cases.CASES if c.name in kept]
        if o.json:
            pathlib.Path(o.json).write_text(json.dumps(report, indent=1) + "\n")
    m = report["machine"]
    print(f"{m['cpu']} ({m['family']}), {o.threads} threads, {m['memory_bytes'] / 2**30:.0f} GiB, {report['date']}")
    print(" ".join(m["flags"]))
    for name, version in report["versions"].items():
        print(f"{name}: {version}")
    print("\n" + table.render(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())

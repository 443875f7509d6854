"""Ours beside PyTorch beside the limits, from the files that tests/gpu_bench left in a folder."""

import json
import pathlib
import sys

SPEC = {"H200": 4.8e12, "H100": 3.35e12}  # bytes/s of the data sheets


def lines(path):
    if not path.exists():
        return []
    return [json.loads(x) for x in path.read_text().splitlines() if x.startswith("{")]


def peer_rate(rows, case):
    for r in rows:
        if case["test"] == "prefill" == r["what"] and r["tokens"] == case["tokens"]:
            return r["tokens_per_s"]
        if case["test"] == "decode" == r["what"] and r["batch"] == case["batch"]:
            return r["tokens_per_s"]
    return None


def share(part, whole):
    return f"{part / whole:.2f}" if part and whole else "-"


def main():
    out = pathlib.Path(sys.argv[1])
    limits = (lines(out / "limits.json") or [{}])[0]
    spec = next((v for k, v in SPEC.items() if k in limits.get("device", "")), None)
    copy, flop = limits.get("copy_bytes_per_s"), limits.get("bf16_flop_per_s")
    print(
        f"{limits.get('device')}: copy {copy / 1e9:.0f} GB/s, bf16 {flop / 1e12:.0f} TFLOP/s\n"
    )
    print(
        "| shape | case | tokens/s | torch | ours / torch | GB/s | of copy | of spec | of bf16 |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sorted(out.glob("*.ours.json")):
        shape = path.name.removesuffix(".ours.json")
        peer = lines(out / f"{shape}.torch.json")
        for report in lines(path):
            for case in report["results"]:
                rate, theirs = case["tokens_per_s"], peer_rate(peer, case)
                gb, ops = case.get("read_bytes_per_s"), case.get("flop_per_s")
                name = (
                    f"prefill {case['tokens']}"
                    if case["test"] == "prefill"
                    else f"decode, batch {case['batch']}, depth {case['depth']}"
                )
                print(
                    f"| {shape} | {name} | {rate:.1f} | {theirs or 0:.1f} | {share(rate, theirs)} "
                    f"| {(gb or 0) / 1e9:.0f} | {share(gb, copy)} | {share(gb, spec)} "
                    f"| {share(ops, flop)} |"
                )


if __name__ == "__main__":
    main()

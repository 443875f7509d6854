"""Our figures, PyTorch's and the limits, from the files that tests/gpu_bench wrote to a folder."""

import json
import pathlib
import sys

SPEC = {"H200": 4.8e12, "H100": 3.35e12}  # bytes/s of the data sheets


def lines(path):
    if not path.exists():
        return []
    text = path.read_text().splitlines()  # the last line may be cut off
    return [json.loads(x) for x in text if x.startswith("{") and x.endswith("}")]


def peer_rate(rows, case):
    for r in rows:
        if case["test"] == "prefill" == r["what"] and r["tokens"] == case["tokens"]:
            return r["tokens_per_s"]
        if case["test"] == "decode" == r["what"] and r["batch"] == case["batch"]:
            return r["tokens_per_s"]
    return None


def share(part, whole):
    return f"{part / whole:.2f}" if part and whole else "-"


def products(out, flop):
    """Products alone: TFLOP/s by either instruction, and the library's."""
    sides = [lines(out / f"products.{x}.json") for x in ("15", "63", "torch")]
    if not any(sides):
        return
    print(
        "\n| product | n x k | rows | mma.sync | wgmma | torch | ours / torch | of bf16 |"
    )
    print("|---|---|---|---|---|---|---|---|")
    cases = sorted({(r["n"], r["k"], r["shape"], r["rows"]) for s in sides for r in s})
    for n, k, shape, rows in cases:
        rate = [
            next(
                (
                    r["flop_per_s"]
                    for r in s
                    if (r["n"], r["k"], r["rows"]) == (n, k, rows)
                ),
                0,
            )
            for s in sides
        ]
        print(
            f"| {shape} | {n} x {k} | {rows} | "
            + " | ".join(f"{x / 1e12:.0f}" for x in rate)
            + f" | {share(rate[1], rate[2])} | {share(rate[1], flop)} |"
        )
    for r in sides[1][:1]:
        print(f"\nwgmma as the start-up check sees it: {r['device']}")


def weights_read(title, rows, copy):
    """Bytes of weights a second, beside a copy of memory; TFLOP/s of many rows."""
    if rows:
        print(f"\n| {title} | format | rows | GB/s of weights | of copy | TFLOP/s |")
        print("|---|---|---|---|---|---|")
    for r in rows:
        print(
            f"| {r['shape']} | {r['format']} | {r['rows']} | {r['weight_bytes_per_s'] / 1e9:.0f} "
            f"| {share(r['weight_bytes_per_s'], copy)} | {r['flop_per_s'] / 1e12:.0f} |"
        )


def packed(out, copy):
    """Products of weights that stay packed."""
    weights_read("product", sum((lines(out / f"products.{x}.json") for x in ("fp8", "codes", "packed")), []), copy)


def experts(out, copy):
    """A layer's experts: of the weights those that are read."""
    weights_read("experts", lines(out / "experts.fp8.json") + lines(out / "experts.json"), copy)


def main():
    out = pathlib.Path(sys.argv[1])
    limits = (lines(out / "limits.json") or [{}])[0]
    spec = next((v for k, v in SPEC.items() if k in limits.get("device", "")), None)
    copy, flop = limits.get("copy_bytes_per_s"), limits.get("bf16_flop_per_s")
    if limits:
        print(f"{limits['device']}: copy {copy / 1e9:.0f} GB/s, bf16 {flop / 1e12:.0f} TFLOP/s\n")
    else:
        print("the machine's limits and the peer were not measured\n")
    print(
        "| shape | case | tokens/s | torch | ours / torch | GB/s | of copy | of spec | of bf16 | host us/step |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
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
                    f"| {share(ops, flop)} | {case.get('host_us_per_step') or '-'} |"
                )
    products(out, flop)
    packed(out, copy)
    experts(out, copy)
    sampler = out / "sampler.txt"
    if sampler.exists():
        print("\n" + sampler.read_text(), end="")


if __name__ == "__main__":
    main()

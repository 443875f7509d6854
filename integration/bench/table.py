"""The comparison as markdown: medians with their spread, the ratio to the best peer, the share of the machine's limit."""

import statistics

WORDS = {"read": "read", "f32": "fp32", "half": "16-bit", "int8": "int8"}


def values(rounds, engine, key):
    return [r[engine][key] for r in rounds if key in r.get(engine, {})]


def figure(v, digits=1):
    if not v:
        return "–"
    text = f"{statistics.median(v):.{digits}f}"
    return text if len(v) == 1 else f"{text} ({min(v):.{digits}f}–{max(v):.{digits}f})"


def digits_of(v):
    return 0 if v and statistics.median(v) >= 100 else 1


def ratio(rounds, peer, key, better):
    """Median over the rounds of ours against the peer in the same round; above 1: ours is better. Where no round has
    both, the ratio of their medians."""
    pairs = [(r["ours"][key], r[peer][key]) for r in rounds if key in r.get("ours", {}) and key in r.get(peer, {})]
    alone = [values(rounds, "ours", key), values(rounds, peer, key)]
    if not pairs and all(alone):
        pairs = [tuple(map(statistics.median, alone))]
    return statistics.median(a / b if better == "more" else b / a for a, b in pairs) if pairs else None


def best_ratio(row, peers, key, better):
    found = [(ratio(row["rounds"], p, key, better), p) for p in peers]
    found = [f for f in found if f[0] is not None]
    return f"{min(found)[0]:.2f}" if found else "–"


def cell(row, engine, key, scale=1.0):
    v = [x * scale for x in values(row["rounds"], engine, key)]
    if v:
        return figure(v, digits_of(v))
    return row["absent"].get(engine, "–")


def share(row):
    """Ours against what the machine can do; each round against the limit found in that round."""
    fractions = []
    for r in row["rounds"]:
        ours, limit = r.get("ours", {}), r.get("limits", {})
        if row["limit"] == "read" and "read_bytes_per_s" in ours:
            fractions.append(ours["read_bytes_per_s"] / 1e9 / limit["read_gb_per_s"])
        elif row["limit"] and "flop_per_s" in ours:
            fractions.append(ours["flop_per_s"] / 1e9 / rate(limit, row["limit"]))
    return f"{statistics.median(fractions):.2f} of {WORDS[row['limit']]}" if fractions else "–"


def rate(limit, kind):
    if kind == "half":
        return max(limit["f16_gflop_per_s"], limit["bf16_gflop_per_s"], limit["f32_gflop_per_s"])
    if kind == "int8":
        return limit["int8_gop_per_s"] or limit["f32_gflop_per_s"]
    return limit["f32_gflop_per_s"]


def line(cells):
    return "| " + " | ".join(cells) + " |"


def head(cells):
    return line(cells) + "\n" + line(["---"] * len(cells))


def speed(rows, engines):
    names = [e[0] for e in engines]
    yield head(["tokens/s", *(e[1] for e in engines), "ours / best peer", "ours of the limit"])
    for row in rows:
        cells = [cell(row, e, "tokens_per_s") for e in names]
        yield line([row["title"], *cells, best_ratio(row, names[1:], "tokens_per_s", "more"), share(row)])


SERVED = [
    ("tokens/s, all clients", "tokens_per_s", 1, "more"),
    ("time to first token p50, s", "first_p50_s", 1, "less"),
    ("time to first token p95, s", "first_p95_s", 1, "less"),
    ("between tokens p50, ms", "gap_p50_s", 1e3, "less"),
    ("between tokens p95, ms", "gap_p95_s", 1e3, "less"),
    ("exec to ready, s", "ready_s", 1, "less"),
    ("peak resident, MB", "peak_rss_bytes", 1e-6, "less"),
    ("load generator, share of one core", "overhead", 1, None),
]


def serving(rows, engines):
    names = [e[0] for e in engines if e[0] in ("ours", "llama.cpp", "vllm")]
    yield head(["served", *(e[1] for e in engines if e[0] in names), "ours / best peer"])
    for row in rows:
        for title, key, scale, better in SERVED:
            v = [[x * scale for x in values(row["rounds"], n, key)] for n in names]
            if not any(v) and key != ("ready_s" if row["kind"] == "ready" else "tokens_per_s"):
                continue
            cells = [
                figure(x, 3 if key == "overhead" else 1) if x else row["absent"].get(n, "–") for x, n in zip(v, names)
            ]
            r = best_ratio(row, names[1:], key, better) if better else "–"
            yield line([f"{row['title']}: {title}", *cells, r])


def memory(rows, engines):
    yield head(["MB above weights and K/V", *(e[1] for e in engines)])
    for row in rows:
        if row["name"] in ("decode-bf16", "decode-int8", "prefill-int8-long"):
            yield line([row["title"], *(cell(row, e[0], "extra_bytes", 1e-6) for e in engines)])


def limits(rows):
    found = [r["limits"] for row in rows for r in row["rounds"] if "limits" in r]
    if not found:
        return
    yield head(["limit of the machine, every round of the run", "median (least–most)"])
    for key, unit in [("read_gb_per_s", "GB/s"), *((k, "Gop/s") for k in found[0] if k != "read_gb_per_s")]:
        name, v = key.split("_")[0], [f[key] for f in found]
        yield line([f"{name}, {unit}", figure(v) if any(v) else "no such instruction"])


def render(report):
    """All tables of a report, as lines."""
    rows, engines = report["rows"], report["engines"]
    forward = [r for r in rows if r["kind"] in ("prefill", "decode")]
    served = [r for r in rows if r["kind"] in ("serve", "ready")]
    parts = []
    if forward:
        parts += [speed(forward, engines), memory(forward, engines)]
    if served:
        parts.append(serving(served, engines))
    parts.append(limits(rows))
    return "\n\n".join(text for text in ("\n".join(p) for p in parts) if text)

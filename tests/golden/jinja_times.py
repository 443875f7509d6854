#!/usr/bin/env python3
"""Render times of the real templates of TEST_DATA/expected/chat: common/template against jinja2.

    python tests/golden/jinja_times.py [TEST_DATA] [--table]

Both render the same parsed variables with a compiled template, in turns, in one process; the C side is
called through ctypes, whose call (about 2 us) is part of its time. Per template: the median over the
conversations that render, of the best of five.
"""
import ctypes
import glob
import json
import os
import statistics
import sys
import time

import jinja_oracle as oracle


def best(fn, n=5):
    times = []
    for _ in range(n):
        t = time.perf_counter()
        fn()
        times.append(time.perf_counter() - t)
    return min(times) * 1e6


def main():
    args = [a for a in sys.argv[1:] if not a.startswith("-")]
    data = (args or [os.environ.get("TEST_DATA", "../shared/data")])[0] + "/expected/chat"
    conversations = json.load(open(f"{data}/conversations.json"))
    python, rows = oracle.Theirs({}), []
    lib = oracle.build()
    for path in sorted(glob.glob(f"{data}/templates/*.jinja")):
        name = os.path.basename(path)[:-6]
        header = json.loads(open(f"{data}/{name}.jsonl").readline())
        src = open(path, newline="").read()
        err = oracle.Err()
        t0 = time.perf_counter()
        ours = lib.template_compile(src.encode(), ctypes.c_size_t(len(src.encode())), ctypes.byref(err))
        t1 = time.perf_counter()
        theirs = python.env.from_string(src)
        t2 = time.perf_counter()
        theirs.globals["strftime_now"] = lambda f: "date"
        mine, their = [], []
        for c in conversations.values():
            v = {"tools": None, "documents": None, **{k: c[k] for k in ("messages", "tools", "documents") if k in c},
                 "add_generation_prompt": True, "bos_token": header["bos_token"], "eos_token": header["eos_token"],
                 **header["extra_variables"], **c.get("kwargs", {})}
            try:
                theirs.render(**v)
            except Exception:
                continue
            text = json.dumps(v).encode()
            e, out, limits = oracle.Err(), oracle.Buf(), oracle.Limits(0, 0, 0, 1736944496, True)
            j = ctypes.c_void_p(lib.json_parse(text, ctypes.c_size_t(len(text)), ctypes.byref(e)))
            call = (ctypes.c_void_p(ours), j, ctypes.byref(limits), ctypes.byref(out), ctypes.byref(e))

            def render():
                out.len = 0
                assert lib.template_render(*call) == 0, e.msg

            mine.append(best(render))
            their.append(best(lambda: theirs.render(**v)))
            lib.buf_free(ctypes.byref(out))
            lib.cJSON_Delete(j)
        rows.append((name, len(src), statistics.median(mine), statistics.median(their), (t1 - t0) * 1e6, (t2 - t1) * 1e6))
        lib.template_free(ctypes.c_void_p(ours))
    if "--table" in sys.argv:
        print("| template | bytes | render, us | jinja2, us | compile, us | jinja2, us |\n|---|---|---|---|---|---|")
        for r in rows:
            print("| {} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} |".format(*r))
    med = [statistics.median(r[i] for r in rows) for i in range(2, 6)]
    ratio = sorted(r[3] / r[2] for r in rows)
    print("median of {} templates: render {:.1f} us, jinja2 {:.1f} us; compile {:.0f} us, jinja2 {:.0f} us; "
          "times faster at rendering: least {:.1f}, median {:.1f}, most {:.1f}".format(
              len(rows), *med, ratio[0], statistics.median(ratio), ratio[-1]))


if __name__ == "__main__":
    main()

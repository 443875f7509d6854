#!/usr/bin/env python3
"""Compares our tokenizer with Hugging Face `tokenizers` on the same texts, in processor time of one thread.

    python integration/bench/tokenizer_peer.py --data ../shared/data/tokenizers \
        --bench build/tests/bench/tokenizer [name ...]

Texts: English (pydoc's topics), code (Python's standard library), Chinese-like (common words in the order
of a fixed seed), about 1.5 MB each. Both sides encode a text in one call, best of several runs; `offsets` is the
full result (tokenizers' encode()), `ids` leaves offsets out (encode_batch_fast()). The token counts must agree.
"""
import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import argparse
import pathlib
import pydoc_data.topics
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
import time

import tokenizers

SIZE = 1_500_000
NAMES = ["llama3", "gpt2", "qwen2_5", "synthetic_o200k", "deepseek_llm", "llama2", "mistral_v3", "t5"]
CHINESE = (
    "的 一 是 在 不 了 有 和 人 这 中 大 为 上 个 国 我 以 要 他 时 来 用 们 生 到 作 地 于 出 就 分 对 成 会 可 主 发 年 动 同 工 也 能 下 过 子 说 产 种 面 而 方 后 多 定 行 学 法 所 民 得 经 "
    "我们 他们 自己 没有 可以 这个 什么 知道 问题 时候 工作 发展 社会 进行 因为 如果 已经 通过 经济 国家 政府 公司 市场 企业 管理 技术 系统 数据 模型 语言 学习 研究 方法 结果 使用 需要 重要 "
    "中国 北京 上海 世界 历史 文化 教育 科学 环境 能源 医院 大学 学生 老师 朋友 家庭 孩子 生活 城市 农村 人工智能 计算机 互联网 机器学习 自然语言 处理 生成 推理 服务器 内存 带宽"
).split()


def texts():
    english = "\n\n".join(pydoc_data.topics.topics.values())
    code = ""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        code += path.read_text(errors="ignore")
        if len(code) > SIZE:
            break
    rng = random.Random(7)
    chinese, size = [], 0
    while size < SIZE:
        words = [CHINESE[min(int(rng.paretovariate(0.7)) - 1, len(CHINESE) - 1)] if rng.random() < 0.5 else rng.choice(CHINESE)
                 for _ in range(rng.randint(4, 14))]
        chinese.append("".join(words) + rng.choice("，，，。。\n"))
        size += len(chinese[-1].encode())
    return {"english": english, "code": code, "chinese": "".join(chinese)}


def best(call, seconds=0.5):
    fastest, begin, result = 1e9, time.monotonic(), None
    runs = 0
    while runs < 2 or time.monotonic() - begin < seconds:
        start = time.process_time()
        result = call()
        fastest = min(fastest, time.process_time() - start)
        runs += 1
    return fastest, result


def ours(bench, directory, files):
    out = subprocess.run([bench, directory, *map(str, files)], capture_output=True, text=True, check=True).stdout
    load = float(re.search(r"loaded in (\d+) ms", out).group(1))
    row = r"^\s*(\S+)\.txt\s+(\d+) bytes\s+(\d+) tokens\s+encode\s+([\d.]+) MB/s\s+with offsets\s+([\d.]+)"
    return load, {m[1]: (int(m[3]), float(m[4]), float(m[5])) for m in re.finditer(row, out, re.M)}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--data", default=os.environ.get("TEST_DATA", "../shared/data") + "/tokenizers")
    args.add_argument("--bench", default="build/tests/bench/tokenizer")
    args.add_argument("names", nargs="*", default=NAMES)
    a = args.parse_args()
    bad = 0
    print(f"tokenizers {tokenizers.__version__}; MB/s of processor time, one thread\n")
    print("| tokenizer | text | tokens | ids: ours | peer | ratio | offsets: ours | peer | ratio |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    loads = []
    with tempfile.TemporaryDirectory() as tmp:
        files = []
        for name, text in texts().items():
            files.append(pathlib.Path(tmp) / f"{name}.txt")
            files[-1].write_text(text)
        for name in a.names or NAMES:
            directory = f"{a.data}/{name}"
            load, mine = ours(a.bench, directory, files)
            start = time.process_time()
            peer = tokenizers.Tokenizer.from_file(f"{directory}/tokenizer.json")
            loads.append((name, load, (time.process_time() - start) * 1e3))
            for file in files:
                text = file.read_text()
                size = len(text.encode()) / 1e6
                fast, encoded = best(lambda: peer.encode_batch_fast([text], add_special_tokens=False)[0])
                full, _ = best(lambda: peer.encode(text, add_special_tokens=False))
                tokens, ids, offsets = mine[file.stem]
                bad += tokens != len(encoded.ids)
                note = "" if tokens == len(encoded.ids) else f" (peer {len(encoded.ids)})"
                print(f"| {name} | {file.stem} | {tokens}{note} | {ids:.1f} | {size / fast:.1f} | {ids * fast / size:.1f} "
                      f"| {offsets:.1f} | {size / full:.1f} | {offsets * full / size:.1f} |", flush=True)
    print("\n| tokenizer | load: ours, ms | peer, ms | ratio |\n| --- | ---: | ---: | ---: |")
    for name, load, other in loads:
        print(f"| {name} | {load:.0f} | {other:.0f} | {other / load:.1f} |")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())

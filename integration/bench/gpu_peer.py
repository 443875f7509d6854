"""PyTorch on the same GPU: a Llama of random weights, prefilled by transformers and decoded by a
hand-written step (static cache, fused projections, SDPA) under a CUDA graph, the strongest form that
needs no compiler. Prints one JSON object a line. Also measures the limits of the machine.

    python3 integration/bench/gpu_peer.py --what llama-3.2-1b --batch 1 8 --depth 512
    python3 integration/bench/gpu_peer.py --what limits
    python3 integration/bench/gpu_peer.py --what products
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F

SHAPES = {
    "tiny": dict(h=256, f=512, layers=2, heads=4, kv=2, dim=64, vocab=1000, tied=True),
    "llama-3.2-1b": dict(
        h=2048, f=8192, layers=16, heads=32, kv=8, dim=64, vocab=128256, tied=True
    ),
    "llama-3.1-8b": dict(
        h=4096, f=14336, layers=32, heads=32, kv=8, dim=128, vocab=128256, tied=False
    ),
}


def say(**fields):
    print(json.dumps(fields), flush=True)


def median_ms(fn, rounds=7, inner=1):
    """Median time of fn() on the device, after warming up."""
    times = []
    for i in range(rounds + 2):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        for _ in range(inner):
            fn()
        b.record()
        torch.cuda.synchronize()
        if i >= 2:
            times.append(a.elapsed_time(b) / inner)
    return sorted(times)[len(times) // 2]


def limits():
    """A large copy (bytes read and written) and a large matrix product, on random data."""
    src = torch.randint(0, 255, (4 << 30,), dtype=torch.uint8, device="cuda")
    dst = torch.empty_like(src)
    copy = median_ms(lambda: dst.copy_(src))
    a, b = (
        torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    product = median_ms(lambda: torch.matmul(a, b))
    say(
        what="limits",
        device=torch.cuda.get_device_name(),
        copy_bytes_per_s=2 * src.numel() / copy * 1e3,
        bf16_flop_per_s=2 * 8192**3 / product * 1e3,
    )


PRODUCTS = {
    "qkv": (6144, 4096),
    "o": (4096, 4096),
    "gate_up": (28672, 4096),
    "down": (4096, 14336),
}


def products():
    """Products alone, at the shapes of tests/bench/cuda_products: bfloat16 in and out."""
    for name, (n, k) in PRODUCTS.items():
        copies = min(16, (256 << 20) // (2 * n * k) + 1)
        w = [
            torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
            for _ in range(copies)
        ]
        for rows in (1, 4, 16, 32, 64, 128, 512, 2048, 8192):
            x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
            inner = max(copies, 8)

            def turn():
                for i in range(inner):
                    torch.matmul(x, w[i % copies].T)

            ms = median_ms(turn) / inner
            say(
                what="product",
                shape=name,
                n=n,
                k=k,
                rows=rows,
                ms=ms,
                flop_per_s=2e3 * rows * n * k / ms,
            )


class Peer:
    """The weights of all layers and one decode step over a static cache."""

    def __init__(self, shape, device):
        self.s, self.device = shape, device
        q, kv = shape["heads"] * shape["dim"], shape["kv"] * shape["dim"]
        self.layers = [
            dict(
                n1=torch.ones(shape["h"], device=device, dtype=torch.bfloat16),
                qkv=self.weight(q + 2 * kv, shape["h"]),
                o=self.weight(shape["h"], q),
                n2=torch.ones(shape["h"], device=device, dtype=torch.bfloat16),
                up=self.weight(2 * shape["f"], shape["h"]),
                down=self.weight(shape["h"], shape["f"]),
            )
            for _ in range(shape["layers"])
        ]
        self.embed = self.weight(shape["vocab"], shape["h"])
        self.head = (
            self.embed if shape["tied"] else self.weight(shape["vocab"], shape["h"])
        )
        self.inv = 1.0 / (
            500000.0
            ** (torch.arange(0, shape["dim"], 2, device=device).float() / shape["dim"])
        )

    def weight(self, rows, cols):
        return torch.randn(rows, cols, device=self.device, dtype=torch.bfloat16) * 0.02

    def rotate(self, x, pos):
        angle = pos.float()[:, None] * self.inv
        angle = torch.cat((angle, angle), -1)
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), -1)
        return x * angle.cos().to(x.dtype) + turned * angle.sin().to(x.dtype)

    def forward(self, ids, pos, cache=None, mask=None):
        """ids [batch, n] at positions pos [n]; with a cache: n = 1, k and v go into it."""
        s, (b, n) = self.s, ids.shape
        x = F.embedding(ids, self.embed)
        for i, w in enumerate(self.layers):
            qkv = F.linear(F.rms_norm(x, (s["h"],), w["n1"], 1e-5), w["qkv"])
            heads = qkv.view(b, n, -1, s["dim"]).transpose(1, 2)
            q, k, v = heads.split([s["heads"], s["kv"], s["kv"]], 1)
            q, k = self.rotate(q, pos), self.rotate(k, pos)
            if cache is not None:
                cache[i][0].index_copy_(2, pos, k)
                cache[i][1].index_copy_(2, pos, v)
                k, v = cache[i]
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=cache is None, enable_gqa=True
            )
            x = x + F.linear(o.transpose(1, 2).reshape(b, n, -1), w["o"])
            gate, up = F.linear(F.rms_norm(x, (s["h"],), w["n2"], 1e-5), w["up"]).chunk(
                2, -1
            )
            x = x + F.linear(F.silu(gate) * up, w["down"])
        norm = torch.ones(s["h"], device=self.device, dtype=torch.bfloat16)
        return F.linear(F.rms_norm(x[:, -1], (s["h"],), norm, 1e-5), self.head)

    def prefill_ms(self, n):
        ids = torch.arange(n, device=self.device)[None] * 7919 % self.s["vocab"]
        pos = torch.arange(n, device=self.device)
        return median_ms(lambda: self.forward(ids, pos))

    def decode_ms(self, batch, depth):
        s, room = self.s, depth + 64
        cache = [
            torch.randn(
                2,
                batch,
                s["kv"],
                room,
                s["dim"],
                device=self.device,
                dtype=torch.bfloat16,
            )
            for _ in range(s["layers"])
        ]
        ids = torch.zeros(batch, 1, dtype=torch.int64, device=self.device)
        pos = torch.full((1,), depth, dtype=torch.int64, device=self.device)
        every = torch.arange(room, device=self.device)

        def step():
            mask = (every <= pos).view(1, 1, 1, room)
            ids.copy_(self.forward(ids, pos, cache, mask).argmax(-1, keepdim=True))
            pos.add_(1)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        pos.fill_(depth)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

        def rounds():
            pos.fill_(depth)
            for _ in range(32):
                graph.replay()

        return median_ms(rounds) / 32


@torch.no_grad()
def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("--what", required=True, choices=["limits", "products", *SHAPES])
    a.add_argument("--prefill", type=int, nargs="*", default=[])
    a.add_argument("--batch", type=int, nargs="*", default=[1])
    a.add_argument("--depth", type=int, default=512)
    a = a.parse_args()
    if a.what == "limits":
        return limits()
    if a.what == "products":
        return products()
    start = time.time()
    peer = Peer(SHAPES[a.what], "cuda")
    torch.cuda.synchronize()
    say(what="build", seconds=time.time() - start)
    for n in a.prefill:
        ms = peer.prefill_ms(n)
        say(what="prefill", tokens=n, tokens_per_s=n / ms * 1e3)
    for b in a.batch:
        ms = peer.decode_ms(b, a.depth)
        say(what="decode", batch=b, depth=a.depth, tokens_per_s=b / ms * 1e3)


if __name__ == "__main__":
    main()

"""A stand-in for a served model or its draft model whose speed and acceptance are given: it sleeps in place of computing.

As a model-server, it begins the step after a Decode at once, unless the call says that drafts may follow (`Edits.drafting`), and
whatever comes instead of the next Decode waits for that step.

    python integration/shards/paced_shard.py --uds-path /tmp/x/s --step-ms 40 [--row-ms 1] [--speculate 8] [--right 0.8]

The token at a position is a function of the position. One that drafts is right at the share --right of the positions,
and another one at the rest. One that verifies (--speculate) takes drafts as a model-server does, as far as they are its own tokens."""

import argparse
import random
import time

from fake_shard import DEFAULTS, Seq, Shard, serve
from shard import stubs

TOKENS = 1000


def token(position):
    return 100 + random.Random(position).randrange(TOKENS)


def drafted(position, right):
    """What a draft model says there that is right so often."""
    wrong = random.Random(f"draft {position}").random() >= right
    return token(position) + wrong


class PacedSeq(Seq):
    def __init__(self, r, script):
        super().__init__(r, script)
        self.said = r.generated_len
        self.prompt = len(r.input_ids)
        self.known, self.drafts = self.prompt, []


class PacedShard(Shard):
    def __init__(self, pb, urls, options):
        super().__init__(pb, urls, {**DEFAULTS, "blocks": 4096})
        self.o = options
        self.ahead, self.free_at = None, 0.0  # the batch whose next step runs; when that is over
        self.gaps, self.left_at = [], 0.0  # times between a Decode's answer and the next call

    def Info(self, q):
        info = super().Info(q)
        info.takes_edits, info.speculate = True, self.o.speculate
        return info

    def edit(self, edits):
        for id, seqs in self.batches.items():
            self.batches[id] = [s for s in seqs if s.id not in edits.leave]
        of = {d.request_id: d for d in edits.drafts}
        for s in (s for seqs in self.batches.values() for s in seqs):
            d = of.get(s.id)
            s.drafts = list(d.ids)[: self.o.speculate] if d and d.position == s.known else []

    def generation(self, s):
        ids = []
        for draft in [*s.drafts, None]:
            ids.append(drafted(s.known, self.o.right))
            s.known, s.said = s.known + 1, s.said + 1
            if ids[-1] != draft or s.over():
                break
        g = self.pb.Generation(request_id=s.id)
        g.tokens.CopyFrom(self.pb.Tokens(ids=ids, logprobs=[-0.5] * len(ids), texts=[f" {i}" for i in ids], is_special=[False] * len(ids)))
        if s.over():
            g.generated_text.text, g.generated_text.generated_tokens = "over", s.said
        return g

    def work(self, seqs, ahead):
        """A step of these, which may have begun before the call."""
        if ahead:
            for s in seqs:
                s.drafts = []
        else:
            ms = self.o.step_ms + self.o.row_ms * sum(len(s.drafts) for s in seqs)
            self.free_at = max(self.free_at, time.monotonic()) + ms / 1000
        time.sleep(max(0, self.free_at - time.monotonic()))

    def step(self, id, seqs, response):
        self.work(seqs, self.ahead == [s.id for s in seqs])
        self.ahead = None
        out = response(total_ns=1, forward_ns=1, generations=[self.generation(s) for s in seqs])
        left = [s for s in seqs if not s.over()]
        for s in left:
            s.drafts = []
        if left:
            self.batches[id] = left
            out.batch.CopyFrom(self.cached(id))
        return out

    def Prefill(self, q):
        self.edit(q.edits)
        self.ahead, id, old = None, q.batch.id, []
        if q.HasField("cached_batch"):
            id = q.cached_batch.id
            old = self.take(id)
        return self.step(id, old + [PacedSeq(r, self.script) for r in q.batch.requests], self.pb.PrefillResponse)

    def note_gap(self):
        self.gaps = [*self.gaps[-99:], time.monotonic() - self.left_at]
        if len(self.gaps) % 20 == 0:
            print(f"between calls: {1000 * sorted(self.gaps)[len(self.gaps) // 2]:.3f} ms", flush=True)

    def Decode(self, q):
        self.note_gap()
        self.edit(q.edits)
        out = super().Decode(q)
        self.left_at = time.monotonic()
        if out.HasField("batch") and not q.edits.drafting:
            self.ahead = [s.id for s in self.batches[out.batch.id]]
            self.free_at = time.monotonic() + self.o.step_ms / 1000
        return out


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--uds-path", required=True)
    p.add_argument("--step-ms", type=float, required=True)
    p.add_argument("--row-ms", type=float, default=0)
    p.add_argument("--speculate", type=int, default=0)
    p.add_argument("--right", type=float, default=1)
    a = p.parse_args()
    serve(PacedShard(stubs(), [f"unix://{a.uds_path}-0"], a), f"{a.uds_path}-0")


if __name__ == "__main__":
    main()

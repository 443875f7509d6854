/* steps.h - the forward pass alone, timed: prefill and decode steps over made-up token ids, whose
 * values do not matter. No gRPC, no text. Where the device chooses tokens (ops->draw), decode steps
 * go as in the engine: each takes its ids from the one before, and is enqueued before that one's
 * are waited for. Elsewhere logits come to the host, and none is chosen. */
#ifndef MODEL_SERVER_BENCH_STEPS_H
#define MODEL_SERVER_BENCH_STEPS_H
#include "model-server/model/model.h"
#include "model-server/tool.h"

enum { BENCH_BLOCK = 16, BENCH_ROUNDS_MAX = 1000 };

/* One row of the report: `batch` sequences with `depth` tokens of context each take `tokens` more,
 * as a prompt or one at a time. */
struct bench_case {
    bool decode;
    uint32_t tokens, batch, depth;
    uint32_t chunk; /* most tokens of a prompt in a step */
};
struct bench_times {
    double median, best, worst; /* seconds of a round */
    double host; /* of the median round: in which the host prepared and enqueued decode steps that
                    choose their tokens on the device; 0: there are none */
};

struct bench_steps {
    struct model *m;
    const struct backend_ops *ops;
    struct device *dev;
    uint32_t max_batch, per_seq; /* sequences, blocks of each */
    uint32_t chunk;              /* see struct bench_case */
    uint32_t filled;             /* tokens of sequence 0 that the cache holds */
    float *logits;
    uint32_t *ids, *pos, *slots, *blocks, *out_rows; /* blocks: [max_batch][per_seq] */
    uint32_t *drawn;                                 /* [max_batch] 0, 1, 2, ... */
    struct draw *draws;                              /* [max_batch] greedy, all alike */
    struct span *spans;
    void (*warm)(void); /* NULL, or called once a case's context and its warm-up are done */
};

/* Memory and a KV cache for `max_batch` sequences of up to `longest` tokens of t->model; for steps
 * of up to `chunk` tokens of a prompt. Borrows `t`. */
int bench_steps_init(struct bench_steps *b, const struct tool *t, uint32_t max_batch,
                     uint32_t longest, uint32_t chunk, struct err *e);
void bench_steps_free(struct bench_steps *b);
/* The case once for warmth and then `rounds` times. */
int bench_time(struct bench_steps *b, const struct bench_case *c, uint32_t rounds,
               struct bench_times *out, struct err *e);
#endif

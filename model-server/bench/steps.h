/* steps.h - the forward pass alone, timed: prefill and decode steps over made-up token ids, whose
 * values do not matter. No gRPC, no sampling, no text. */
#ifndef MODEL_SERVER_BENCH_STEPS_H
#define MODEL_SERVER_BENCH_STEPS_H
#include "model-server/model/model.h"

enum { BENCH_BLOCK = 16, BENCH_CHUNK = 512, BENCH_ROUNDS_MAX = 1000 };

/* One row of the report: `batch` sequences with `depth` tokens of context each take `tokens` more,
 * as a prompt or one at a time. */
struct bench_case {
    bool decode;
    uint32_t tokens, batch, depth;
};
struct bench_times {
    double median, best, worst; /* seconds of a round */
};

struct bench_steps {
    struct model *m;
    uint32_t max_batch, per_seq; /* sequences, blocks of each */
    uint32_t filled;             /* tokens of sequence 0 that the cache holds */
    float *logits;
    uint32_t *ids, *pos, *slots, *blocks, *out_rows; /* blocks: [max_batch][per_seq] */
    struct span *spans;
};

/* Memory and a KV cache for `max_batch` sequences of up to `longest` tokens. */
int bench_steps_init(struct bench_steps *b, struct model *m, uint32_t max_batch, uint32_t longest,
                     enum kv_dtype kv_dtype, struct err *e);
void bench_steps_free(struct bench_steps *b);
/* The case once for warmth and then `rounds` times. */
int bench_time(struct bench_steps *b, const struct bench_case *c, uint32_t rounds,
               struct bench_times *out, struct err *e);
#endif

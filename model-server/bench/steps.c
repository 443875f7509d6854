#include "model-server/bench/steps.h"
#include "common/clock.h"
#include <stdlib.h>

int bench_steps_init(struct bench_steps *b, struct model *m, uint32_t max_batch, uint32_t longest,
                     enum kv_dtype kv_dtype, struct err *e)
{
    size_t rows = max_batch > BENCH_CHUNK ? max_batch : BENCH_CHUNK;
    *b = (struct bench_steps){.m = m, .max_batch = max_batch};
    b->per_seq = (longest + BENCH_BLOCK - 1) / BENCH_BLOCK;
    size_t n_blocks = (size_t)b->per_seq * max_batch;
    if (n_blocks > INT32_MAX)
        return err_set(e, ERR_VALIDATION, "%u sequences of %u tokens are too many", max_batch,
                       longest);
    b->logits = malloc((size_t)max_batch * model_info(m)->vocab * sizeof(float));
    b->ids = calloc(rows * 4 + n_blocks, sizeof(uint32_t));
    b->spans = calloc(max_batch, sizeof(*b->spans));
    if (!b->logits || !b->ids || !b->spans)
        return err_nomem(e);
    b->pos = b->ids + rows;
    b->slots = b->pos + rows;
    b->out_rows = b->slots + rows;
    b->blocks = b->out_rows + rows;
    for (size_t i = 0; i < n_blocks; i++)
        b->blocks[i] = (uint32_t)i;
    return model_kv_resize(m, (uint32_t)n_blocks, BENCH_BLOCK, kv_dtype, e);
}

void bench_steps_free(struct bench_steps *b)
{
    free(b->logits);
    free(b->ids);
    free(b->spans);
    *b = (struct bench_steps){0};
}

/* One step over `n` new tokens of each of `seqs` sequences that hold `kv` tokens already. */
static int step(struct bench_steps *b, uint32_t seqs, uint32_t kv, uint32_t n, struct err *e)
{
    struct ragged r = {seqs * n, seqs, seqs, b->ids, b->pos, b->slots, b->spans, b->out_rows};
    uint32_t vocab = model_info(b->m)->vocab;
    for (uint32_t s = 0; s < seqs; s++) {
        const uint32_t *blocks = b->blocks + (size_t)s * b->per_seq;
        b->spans[s] = (struct span){s * n, n, kv + n, blocks};
        b->out_rows[s] = s * n + n - 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = s * n + i, p = kv + i;
            b->ids[row] = (p * 2654435761u + s * 40503u) % vocab;
            b->pos[row] = p;
            b->slots[row] = blocks[p / BENCH_BLOCK] * BENCH_BLOCK + p % BENCH_BLOCK;
        }
    }
    return model_forward(b->m, &r, b->logits, e);
}

static int prefill(struct bench_steps *b, uint32_t from, uint32_t to, struct err *e)
{
    for (uint32_t n; from < to; from += n) {
        n = to - from < BENCH_CHUNK ? to - from : BENCH_CHUNK;
        if (step(b, 1, from, n, e))
            return -1;
    }
    b->filled = to > b->filled ? to : b->filled;
    return 0;
}

/* `depth` tokens of context for `batch` sequences: computed once, copied to the others. */
static int deepen(struct bench_steps *b, uint32_t batch, uint32_t depth, struct err *e)
{
    uint32_t n = (depth + BENCH_BLOCK - 1) / BENCH_BLOCK;
    if (b->filled < depth && prefill(b, b->filled, depth, e))
        return -1;
    for (uint32_t s = 1; s < batch; s++)
        if (model_kv_copy(b->m, b->blocks, b->blocks + (size_t)s * b->per_seq, n, e))
            return -1;
    return 0;
}

static int round_of(struct bench_steps *b, const struct bench_case *c, struct err *e)
{
    if (!c->decode)
        return prefill(b, 0, c->tokens, e);
    for (uint32_t k = 0; k < c->tokens; k++)
        if (step(b, c->batch, c->depth + k, 1, e))
            return -1;
    return 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int bench_time(struct bench_steps *b, const struct bench_case *c, uint32_t rounds,
               struct bench_times *out, struct err *e)
{
    double t[BENCH_ROUNDS_MAX];
    if (c->decode && deepen(b, c->batch, c->depth, e))
        return -1;
    struct bench_case warm = *c;
    warm.tokens = c->decode && c->tokens > 2 ? 2 : c->tokens;
    if (round_of(b, &warm, e))
        return -1;
    for (uint32_t i = 0; i < rounds; i++) {
        int64_t start = clock_ns();
        if (round_of(b, c, e))
            return -1;
        t[i] = (double)(clock_ns() - start) * 1e-9;
    }
    qsort(t, rounds, sizeof(*t), by_value);
    *out = (struct bench_times){t[rounds / 2], t[0], t[rounds - 1]};
    return 0;
}

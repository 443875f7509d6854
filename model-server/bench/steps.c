#include "model-server/bench/steps.h"
#include "common/clock.h"
#include <stdlib.h>

int bench_steps_init(struct bench_steps *b, const struct tool *t, uint32_t max_batch,
                     uint32_t longest, uint32_t chunk, struct err *e)
{
    size_t rows = max_batch > chunk ? max_batch : chunk;
    *b = (struct bench_steps){
        .m = t->model, .ops = t->ops, .dev = t->dev, .max_batch = max_batch, .chunk = chunk};
    b->per_seq = (longest + BENCH_BLOCK - 1) / BENCH_BLOCK;
    size_t n_blocks = (size_t)b->per_seq * max_batch;
    if (n_blocks > INT32_MAX)
        return err_set(e, ERR_VALIDATION, "%u sequences of %u tokens are too many", max_batch,
                       longest);
    /* aligned as the engine's: on CPUs the head writes to it */
    const size_t logits = (size_t)max_batch * model_info(b->m)->vocab * sizeof(float);
    b->logits = aligned_alloc(64, (logits + 63) & ~(size_t)63);
    b->ids = calloc(rows * 5 + n_blocks, sizeof(uint32_t));
    b->spans = calloc(max_batch, sizeof(*b->spans));
    b->draws = calloc(max_batch, sizeof(*b->draws));
    if (!b->logits || !b->ids || !b->spans || !b->draws)
        return err_nomem(e);
    b->pos = b->ids + rows;
    b->slots = b->pos + rows;
    b->out_rows = b->slots + rows;
    b->drawn = b->out_rows + rows;
    b->blocks = b->drawn + rows;
    for (uint32_t i = 0; i < max_batch; i++) {
        b->drawn[i] = i;
        b->draws[i] = (struct draw){
            .temperature = 1, .top_p = 1, .typical_p = 1, .repetition = 1, .last = DRAW_KNOWN};
    }
    for (size_t i = 0; i < n_blocks; i++)
        b->blocks[i] = (uint32_t)i;
    if (model_state_resize(b->m, max_batch, e))
        return -1;
    return model_kv_resize(b->m, (uint32_t)n_blocks, BENCH_BLOCK, t->kv_dtype, e);
}

void bench_steps_free(struct bench_steps *b)
{
    free(b->logits);
    free(b->ids);
    free(b->spans);
    free(b->draws);
    *b = (struct bench_steps){0};
}

/* A step over `n` new tokens of each of `seqs` sequences that hold `kv` tokens already. */
static struct ragged fill(struct bench_steps *b, uint32_t seqs, uint32_t kv, uint32_t n)
{
    struct ragged r = {seqs * n, seqs, seqs, b->ids, b->pos, b->slots, b->spans, b->out_rows};
    uint32_t vocab = model_info(b->m)->vocab;
    for (uint32_t s = 0; s < seqs; s++) {
        const uint32_t *blocks = b->blocks + (size_t)s * b->per_seq;
        b->spans[s] = (struct span){.first = s * n,
                                    .n = n,
                                    .kv_len = kv + n,
                                    .blocks = blocks,
                                    .state_in = s,
                                    .state_out = s};
        b->out_rows[s] = s * n + n - 1;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t row = s * n + i, p = kv + i;
            b->ids[row] = (p * 2654435761u + s * 40503u) % vocab;
            b->pos[row] = p;
            b->slots[row] = blocks[p / BENCH_BLOCK] * BENCH_BLOCK + p % BENCH_BLOCK;
        }
    }
    return r;
}

static int step(struct bench_steps *b, uint32_t seqs, uint32_t kv, uint32_t n, struct err *e)
{
    struct ragged r = fill(b, seqs, kv, n);
    return model_forward(b->m, &r, b->logits, e);
}

static int prefill(struct bench_steps *b, uint32_t from, uint32_t to, struct err *e)
{
    for (uint32_t n; from < to; from += n) {
        n = to - from < b->chunk ? to - from : b->chunk;
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

struct round_time {
    double all, host; /* seconds; see struct bench_times */
};

/* Decode steps that choose their tokens: step k is enqueued before the tokens of step k - 1 are
 * waited for. */
static int decode_drawn(struct bench_steps *b, const struct bench_case *c, struct round_time *t,
                        struct err *e)
{
    struct draw_results unused;
    for (uint32_t k = 0; k < c->tokens; k++) {
        int64_t start = clock_ns();
        struct ragged r = fill(b, c->batch, c->depth + k, 1);
        r.drawn = k ? b->drawn : NULL;
        r.drawn_set = !(k & 1);
        if (model_draw(b->m, &r, b->draws, k & 1, e))
            return -1;
        t->host += (double)(clock_ns() - start) * 1e-9;
        if (k && b->ops->drawn(b->dev, !(k & 1), &unused, e))
            return -1;
    }
    return b->ops->drawn(b->dev, !(c->tokens & 1), &unused, e);
}

static int round_of(struct bench_steps *b, const struct bench_case *c, struct round_time *t,
                    struct err *e)
{
    int64_t start = clock_ns();
    int rc = 0;
    *t = (struct round_time){0};
    if (!c->decode)
        rc = prefill(b, 0, c->tokens, e);
    else if (b->ops->draw)
        rc = decode_drawn(b, c, t, e);
    else
        for (uint32_t k = 0; k < c->tokens && rc == 0; k++)
            rc = step(b, c->batch, c->depth + k, 1, e);
    t->all = (double)(clock_ns() - start) * 1e-9;
    return rc;
}

static int by_value(const void *a, const void *b)
{
    double x = ((const struct round_time *)a)->all, y = ((const struct round_time *)b)->all;
    return (x > y) - (x < y);
}

int bench_time(struct bench_steps *b, const struct bench_case *c, uint32_t rounds,
               struct bench_times *out, struct err *e)
{
    struct round_time t[BENCH_ROUNDS_MAX];
    if (c->decode && deepen(b, c->batch, c->depth, e))
        return -1;
    struct bench_case warm = *c;
    warm.tokens = c->decode && c->tokens > 2 ? 2 : c->tokens;
    if (round_of(b, &warm, t, e))
        return -1;
    if (b->warm)
        b->warm();
    for (uint32_t i = 0; i < rounds; i++)
        if (round_of(b, c, &t[i], e))
            return -1;
    qsort(t, rounds, sizeof(*t), by_value);
    const struct round_time *median = &t[rounds / 2];
    *out = (struct bench_times){median->all, t[0].all, t[rounds - 1].all, median->host};
    return 0;
}

/* ngrams_rig.h - embeddings of n-grams and a dilated convolution of one sequence in steps, on any
 * backend: for the CPU's test beside plain references, and a GPU's beside the CPU. */
#ifndef TESTS_CHECK_NGRAMS_RIG_H
#define TESTS_CHECK_NGRAMS_RIG_H
#include "model-server/backend/backend.h"
#include "tests/check/random.h"
#include <string.h>

/* Tables of three lengths; few ids, so that the end is among them often. */
enum { MOST = 4, TABLES = 6, COLS = 5, ROWS = 97, TOKENS = 61, IDS = 7, END = 3 };
enum { CHANNELS = 300, WIDTH = 4, DILATION = 3 };

static const struct ngram_table tables[TABLES] = {{2, 11, 0},  {2, 13, 11}, {3, 17, 24},
                                                  {3, 19, 41}, {4, 7, 60},  {4, 23, 67}};

struct text {
    uint32_t ids[TOKENS];
    uint64_t by[NGRAM_IDS];
    float *w;           /* [ROWS][COLS] */
    float *x, *kernels; /* [TOKENS][CHANNELS], [WIDTH][CHANNELS] */
};

static void text_make(struct text *t, struct rng *of)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        t->ids[i] = rng_below(of, IDS);
    for (uint32_t i = 0; i < NGRAM_IDS; i++)
        t->by[i] = (uint64_t)rng_u32(of) << 27 | 1;
    t->w = rng_floats(of, (size_t)ROWS * COLS);
    t->x = rng_floats(of, (size_t)TOKENS * CHANNELS);
    t->kernels = rng_floats(of, (size_t)WIDTH * CHANNELS);
}

static void text_free(struct text *t) { free(t->w), free(t->x), free(t->kernels); }

/* What a run gives for all tokens, and where a backend has the inputs. */
struct embedded {
    float rows[TOKENS][TABLES * COLS], conv[TOKENS][CHANNELS];
};
struct inputs {
    const struct weight *w;
    const struct ngram_table *tables;
    const float *kernels;
    float *cells; /* two of them */
};

/* Tokens [at, at + n) in one step; x, y, c and rows are the backend's memory for them. */
static int embed_step(const struct backend_ops *ops, struct device *d, const struct text *t,
                      const struct inputs *in, uint32_t at, uint32_t n, uint32_t turn, float *x,
                      float *y, float *c, uint32_t *rows, struct err *e)
{
    static const uint32_t zero[TOKENS];
    const struct conv conv = {
        .channels = CHANNELS, .width = WIDTH, .dilation = DILATION, .w = in->kernels, .silu = true};
    struct ngrams p = {.most = MOST, .n = TABLES, .tables = in->tables, .end = END, .rows = rows};
    const size_t stride = ngram_floats(&p) + ops->conv_floats(&conv);
    const struct state_ref ids = {in->cells, stride};
    const struct state_ref inputs = {in->cells + ngram_floats(&p), stride};
    const struct span span = {
        .n = n, .kv_len = at + n, .blocks = zero, .state_in = turn, .state_out = 1 - turn};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .ids = t->ids + at,
                             .pos = zero,
                             .slots = zero,
                             .spans = &span};
    memcpy(p.by, t->by, sizeof(p.by));
    if (ops->step_begin(d, &b, e))
        return -1;
    ops->embed_ngrams(d, y, in->w, &ids, &p);
    ops->conv(d, c, x, CHANNELS, &inputs, &conv);
    return ops->step_end(d, e);
}
#endif

/* windows.h - long prompts in chunks with random weights: one cache for all layers, compared with
 * a separate sliding-window cache whose blocks are reused behind the window. */
#ifndef TEST_GOLDEN_WINDOWS_H
#define TEST_GOLDEN_WINDOWS_H
#include "model-server/model/model.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 16,
    WINDOW = 40,
    CHUNK = 56,
    SEQS = 2,
    LEN = 304, /* the last 24 tokens are single ones */
    PER_SEQ = LEN / BLOCK,
    /* blocks that the positions of a window and a chunk touch */
    WINDOW_BLOCKS = (WINDOW + CHUNK + 2 * BLOCK - 1) / BLOCK,
    VOCAB = 64,
};

/* Both kinds of layers; only sliding-window layers. */
static const char *const configs[] = {
    "{\"model_type\":\"gemma2\",\"vocab_size\":64,\"hidden_size\":64,\"intermediate_size\":64,"
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
    "\"sliding_window\":40,\"max_position_embeddings\":512,\"query_pre_attn_scalar\":16,"
    "\"attn_logit_softcapping\":50.0,\"final_logit_softcapping\":30.0}",
    "{\"model_type\":\"mistral\",\"vocab_size\":64,\"hidden_size\":64,\"intermediate_size\":64,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"sliding_window\":40,\"max_position_embeddings\":512}",
};

struct rig {
    struct device *dev;
    struct model *m;
    uint32_t blocks[SEQS][PER_SEQ];  /* of the cache of all positions */
    uint32_t windows[SEQS][PER_SEQ]; /* of the cache of windows */
    float *logits;                   /* [SEQS][LEN][VOCAB] */
};

static const struct backend_ops *ops; /* its bits are compared; set by the test */

static void open_rig(struct rig *r, const char *config, bool apart, enum kv_dtype dtype)
{
    struct err e = ERR_INIT;
    r->dev = ops->open(&(struct device_options){.threads = 2, .features = ~0ull}, &e);
    struct model_options o = {
        .ops = ops, .dev = r->dev, .comm = comm_solo(), .dtype = -1, .random_config = config};
    r->m = r->dev ? model_load("windows", &o, &e) : NULL;
    const uint32_t n_windows = apart ? 1 + SEQS * WINDOW_BLOCKS : 0;
    if (!r->m || model_kv_resize_apart(r->m, SEQS * PER_SEQ, n_windows, BLOCK, dtype, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(model_info(r->m)->kv_window, WINDOW);
    r->logits = malloc(sizeof(float) * SEQS * LEN * VOCAB);
    assert_non_null(r->logits);
    for (uint32_t i = 0; i < SEQS * PER_SEQ; i++)
        r->blocks[i / PER_SEQ][i % PER_SEQ] = i * 7 % (SEQS * PER_SEQ);
}

static void close_rig(struct rig *r)
{
    model_free(r->m);
    ops->close(r->dev);
    free(r->logits);
}

/* Positions [from, to) of both sequences: their windows use a ring of blocks. */
static void step(struct rig *r, uint32_t from, uint32_t to)
{
    static uint32_t ids[SEQS * LEN], pos[SEQS * LEN], slots[SEQS * LEN], window_slots[SEQS * LEN],
        rows[SEQS * LEN];
    struct span spans[SEQS];
    struct err e = ERR_INIT;
    const uint32_t n = to - from, first = from + 1 > WINDOW ? (from + 1 - WINDOW) / BLOCK : 0;
    for (uint32_t s = 0, t = 0; s < SEQS; s++) {
        memset(r->windows[s], 0, sizeof(r->windows[s])); /* no entry behind the window is read */
        for (uint32_t b = first; b * BLOCK < to; b++)
            r->windows[s][b] = 1 + s * WINDOW_BLOCKS + b % WINDOW_BLOCKS;
        spans[s] = (struct span){t, n, to, r->blocks[s], .seq_len = to, .windows = r->windows[s]};
        for (uint32_t p = from; p < to; p++, t++) {
            ids[t] = (s * 1000 + p) * 2654435761u % VOCAB;
            pos[t] = p;
            slots[t] = r->blocks[s][p / BLOCK] * BLOCK + p % BLOCK;
            window_slots[t] = r->windows[s][p / BLOCK] * BLOCK + p % BLOCK;
            rows[t] = t;
        }
    }
    const struct ragged b = {
        SEQS * n, SEQS, SEQS * n, ids, pos, slots, spans, rows, .window_slots = window_slots};
    float *out = malloc(sizeof(float) * SEQS * n * VOCAB);
    assert_non_null(out);
    if (model_forward(r->m, &b, out, &e))
        fail_msg("%s", e.msg);
    for (uint32_t s = 0; s < SEQS; s++)
        memcpy(r->logits + ((size_t)s * LEN + from) * VOCAB, out + (size_t)s * n * VOCAB,
               sizeof(float) * n * VOCAB);
    free(out);
}

static void same_bits(const char *config, enum kv_dtype dtype)
{
    struct rig whole = {0}, apart = {0};
    open_rig(&whole, config, false, dtype);
    open_rig(&apart, config, true, dtype);
    step(&whole, 0, LEN);
    uint32_t at = 0;
    for (; at + CHUNK <= LEN - 20; at += CHUNK)
        step(&apart, at, at + CHUNK);
    for (; at < LEN; at++)
        step(&apart, at, at + 1);
    assert_memory_equal(whole.logits, apart.logits, sizeof(float) * SEQS * LEN * VOCAB);
    close_rig(&whole);
    close_rig(&apart);
}

#endif

/* encdec.h - expected values of models of an encoder and a decoder (make_encdec.py), and a bench to
 * run one: its encoder, its cross-attention cache, sequences with scattered blocks. */
#ifndef TESTS_GOLDEN_ENCDEC_H
#define TESTS_GOLDEN_ENCDEC_H
#include "model-server/model/text/text_encoder.h"
#include "tests/golden/golden.h"

enum { ENCDEC_TEXTS = 4, ENCDEC_MOST = 128 }; /* ids of a text */
enum { ENCDEC_TABLE = ENCDEC_MOST / MODEL_CROSS_BLOCK };

struct encdec_text {
    uint32_t ids[MAX_LEN], n;
    uint32_t answer[MAX_LEN], n_answer;
    uint32_t steps[MAX_LEN], n_steps;
    float *logits; /* [n_steps][vocab] of the step that gives answer[steps[i]] */
};
struct encdec {
    struct encdec_text texts[ENCDEC_TEXTS];
    uint32_t n, start, vocab;
};

static inline bool encdec_load(struct encdec *g, const char *dir)
{
    char path[PATH_LEN];
    struct err e = ERR_INIT;
    const cJSON *p, *row, *v;
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    cJSON *root = json_load(path, 1 << 24, &e);
    *g = (struct encdec){0};
    if (!root)
        return false;
    g->start = (uint32_t)json_num(root, "start", 0);
    cJSON_ArrayForEach(p, json_get(root, "prompts"))
    {
        struct encdec_text *t = &g->texts[g->n++];
        const cJSON *rows = json_get(p, "logits");
        uint32_t i = 0;
        t->n = golden_ids(json_get(p, "ids"), t->ids);
        t->n_answer = golden_ids(json_get(p, "greedy_ids"), t->answer);
        g->vocab = (uint32_t)cJSON_GetArraySize(cJSON_GetArrayItem(rows, 0));
        t->n_steps = golden_ids(json_get(p, "steps"), t->steps);
        t->logits = malloc((size_t)t->n_steps * g->vocab * sizeof(float));
        assert_non_null(t->logits);
        cJSON_ArrayForEach(row, rows) cJSON_ArrayForEach(v, row) t->logits[i++] =
            (float)v->valuedouble;
        assert_int_equal(i, t->n_steps * g->vocab);
    }
    cJSON_Delete(root);
    return g->n > 0;
}

static inline void encdec_free(struct encdec *g)
{
    for (uint32_t i = 0; i < g->n; i++)
        free(g->texts[i].logits);
}

/* A model, its encoder and a cache for ENCDEC_TEXTS sequences. */
struct encdec_bench {
    struct bench b;
    struct text_encoder *encoder;
};

/* 0, or -1 with `e` filled; close it in either case. */
static inline int encdec_open(struct encdec_bench *m, const struct backend_ops *ops,
                              const char *dir, struct comm *comm, struct err *e)
{
    const struct device_options d = {.threads = 1, .features = ~0ull};
    *m = (struct encdec_bench){.b.ops = ops};
    if (!(m->b.dev = ops->open(&d, e)))
        return -1;
    const struct model_options o = {
        .ops = ops, .dev = m->b.dev, .comm = comm, .dtype = -1, .activations = ACTIVATIONS_EXACT};
    if (!(m->b.model = model_load(dir, &o, e)) ||
        model_kv_resize(m->b.model, ENCDEC_TEXTS * MAX_SEQ_BLOCKS, BLOCK_SIZE, KV_F32, e) ||
        model_cross_resize(m->b.model, ENCDEC_TEXTS * ENCDEC_TABLE, KV_F32, e) ||
        text_encoder_load(dir, model_decoder(m->b.model), &m->encoder, e))
        return -1;
    m->b.vocab = model_info(m->b.model)->vocab;
    return 0;
}

static inline void encdec_close(struct encdec_bench *m)
{
    text_encoder_free(m->encoder);
    bench_close(&m->b);
}

/* The rows of texts, in parts of `most` multiply-adds; out[i] is the caller's to free. */
static inline int encdec_encode(struct text_encoder *t, const struct encdec_text *const *texts,
                                uint32_t n, uint64_t most, float **out, struct err *e)
{
    struct text_job jobs[ENCDEC_TEXTS];
    uint64_t done;
    for (uint32_t i = 0; i < n; i++) {
        out[i] = malloc((size_t)texts[i]->n * text_encoder_width(t) * sizeof(float));
        jobs[i] = (struct text_job){.ids = texts[i]->ids, .n = texts[i]->n, .out = out[i]};
    }
    int rc = text_encoder_begin(t, jobs, n, e);
    while (rc == 0 && text_encoder_busy(t))
        rc = text_encoder_go_on(t, most, &done, e);
    return rc;
}

/* A sequence of the decoder: its tokens, blocks of its own keys and of those of its text. */
struct encdec_seq {
    const struct encdec_text *text;
    uint32_t ids[MAX_LEN], done;
    uint32_t blocks[MAX_SEQ_BLOCKS], shown[ENCDEC_TABLE];
    float *rows; /* [MAX_LEN][vocab] logits after each token */
};

static inline void encdec_seq_init(struct encdec_seq *s, const struct encdec *g, uint32_t text,
                                   uint32_t nth)
{
    *s = (struct encdec_seq){.text = &g->texts[text]};
    s->ids[0] = g->start;
    memcpy(s->ids + 1, s->text->answer, s->text->n_answer * sizeof(uint32_t));
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        s->blocks[i] = (nth + 1) * MAX_SEQ_BLOCKS - 1 - i;
    for (uint32_t i = 0; i < ENCDEC_TABLE; i++)
        s->shown[i] = (nth + 1) * ENCDEC_TABLE - 1 - i;
    s->rows = malloc((size_t)MAX_LEN * g->vocab * sizeof(float));
    assert_non_null(s->rows);
}

/* Encodes the sequence's text, in parts of `most`, and stores its keys and values. */
static inline int encdec_show(struct encdec_bench *m, const struct encdec_seq *s, uint64_t most,
                              struct err *e)
{
    float *rows = NULL;
    int rc = encdec_encode(m->encoder, &s->text, 1, most, &rows, e);
    if (rc == 0)
        rc = model_cross_store(m->b.model, rows, s->shown, 0, s->text->n, e);
    free(rows);
    return rc;
}

/* One step: take[i] tokens of each sequence, logits of all of them. */
static inline int encdec_step(struct bench *b, struct encdec_seq *const *seqs, const uint32_t *take,
                              uint32_t n_seqs, struct err *e)
{
    enum { CAP = ENCDEC_TEXTS * MAX_LEN };
    static _Thread_local uint32_t ids[CAP], pos[CAP], slots[CAP], rows[CAP];
    static _Thread_local struct mutual sees[CAP];
    struct span spans[ENCDEC_TEXTS];
    uint32_t n = 0, n_spans = 0, at = 0;
    for (uint32_t i = 0; i < n_seqs; i++) {
        struct encdec_seq *s = seqs[i];
        if (!take[i])
            continue;
        spans[n_spans++] = (struct span){.first = n,
                                         .n = take[i],
                                         .kv_len = s->done + take[i],
                                         .blocks = s->blocks,
                                         .shown = s->shown};
        for (uint32_t k = s->done; k < s->done + take[i]; k++, n++) {
            ids[n] = s->ids[k], pos[n] = k, rows[n] = n;
            slots[n] = s->blocks[k / BLOCK_SIZE] * BLOCK_SIZE + k % BLOCK_SIZE;
            sees[n] = (struct mutual){0, s->text->n};
        }
    }
    float *logits = malloc((size_t)n * b->vocab * sizeof(float));
    const struct ragged step = {.n_tokens = n,
                                .n_spans = n_spans,
                                .n_out = n,
                                .ids = ids,
                                .pos = pos,
                                .slots = slots,
                                .spans = spans,
                                .out_rows = rows,
                                .sees = sees};
    int rc = logits ? model_forward(b->model, &step, logits, e) : err_nomem(e);
    for (uint32_t i = 0; i < n_seqs && rc == 0; at += take[i++]) {
        memcpy(seqs[i]->rows + (size_t)seqs[i]->done * b->vocab, logits + (size_t)at * b->vocab,
               (size_t)take[i] * b->vocab * sizeof(float));
        seqs[i]->done += take[i];
    }
    free(logits);
    return rc;
}
#endif

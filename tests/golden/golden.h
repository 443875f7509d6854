/* golden.h - expected values of a tiny checkpoint, and a bench to run it: a device, a model, a KV
 * cache, sequences with scattered blocks. */
#ifndef TESTS_GOLDEN_GOLDEN_H
#define TESTS_GOLDEN_GOLDEN_H
#include "common/json/json.h"
#include "model-server/model/model.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

/* ---------------------------------------------------------------- what is expected */

enum {
    PATH_LEN = 1024,
    MAX_PROMPTS = 8,
    MAX_LEN = 512,
    BLOCK_SIZE = 16,
    MAX_SEQ_BLOCKS = MAX_LEN / BLOCK_SIZE
};

struct prompt {
    uint32_t ids[MAX_LEN], n;
    float logprobs[MAX_LEN]; /* [n], the first unused; or none */
    uint32_t n_logprobs;
    uint32_t greedy[MAX_LEN], n_greedy;
    float *last; /* [vocab] */
};
struct golden {
    struct prompt prompts[MAX_PROMPTS];
    int n;
};

static inline uint32_t golden_ids(const cJSON *a, uint32_t out[MAX_LEN])
{
    uint32_t n = 0;
    const cJSON *j;
    cJSON_ArrayForEach(j, a) if (n < MAX_LEN) out[n++] = (uint32_t)j->valuedouble;
    return n;
}

/* Three kinds of file: arch/ has prompt_logprobs and greedy_ids, models/ has prefill and
 * generated_ids, vision/ only greedy_ids. */
static inline void golden_prompt(struct prompt *p, const cJSON *j)
{
    const cJSON *last = json_get(j, "last_logits"), *v;
    const cJSON *lp = json_get(j, "prompt_logprobs"), *rows = lp ? lp : json_get(j, "prefill");
    const cJSON *greedy = json_get(j, "greedy_ids");
    uint32_t n = 0;
    p->n = golden_ids(json_get(j, "ids"), p->ids);
    p->n_greedy = golden_ids(greedy ? greedy : json_get(j, "generated_ids"), p->greedy);
    p->last = calloc((size_t)cJSON_GetArraySize(last) + 1, sizeof(float));
    assert_non_null(p->last);
    cJSON_ArrayForEach(v, last) p->last[n++] = (float)v->valuedouble;
    n = 0;
    cJSON_ArrayForEach(v, rows)
    {
        assert_true(n < MAX_LEN);
        p->logprobs[n++] = (float)(lp ? v->valuedouble : json_num(v, "logprob", 0));
    }
    p->n_logprobs = n;
    assert_true(n == p->n || (!rows && n == 0));
}

static inline bool golden_load(struct golden *g, const char *dir, int most)
{
    char path[PATH_LEN + 32];
    struct err e;
    const cJSON *p;
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    cJSON *root = json_load(path, 1 << 24, &e);
    memset(g, 0, sizeof(*g));
    if (!root)
        return false;
    cJSON_ArrayForEach(p, json_get(root, "cases")) /* of vision/: those without an image */
    {
        if (g->n < most && cJSON_GetArraySize(json_get(p, "images")) == 0)
            golden_prompt(&g->prompts[g->n++], p);
    }
    cJSON_ArrayForEach(p, json_get(root, "prompts"))
    {
        if (g->n < most && cJSON_GetArraySize(json_get(p, "ids")) > 0)
            golden_prompt(&g->prompts[g->n++], p);
    }
    cJSON_Delete(root);
    return g->n > 0;
}

static inline void golden_free(struct golden *g)
{
    for (int i = 0; i < g->n; i++)
        free(g->prompts[i].last);
}

/* ---------------------------------------------------------------- a model on a device */

struct bench {
    const struct backend_ops *ops;
    struct device *dev;
    struct model *model;
    uint32_t vocab, adapter; /* adapter: the one that judge() uses */
    bool ends;               /* logits of a sequence's last token alone, as the engine asks for */
};

static inline void bench_close(struct bench *b)
{
    model_free(b->model);
    if (b->dev)
        b->ops->close(b->dev);
    memset(b, 0, sizeof(*b));
}

/* How to open a model. */
struct bench_setup {
    const char *dir;
    int dtype;                    /* model_options' */
    enum activations activations; /* AUTO stands for EXACT */
    const struct adapter_source *adapters;
    /* adapter: struct bench's; all of them are loaded to the device */
    uint32_t n_adapters, adapter;
    bool draft_heads, expert_parallel;
    const char *draft_dir; /* model_options' */
    struct comm *stages;
};

static inline int bench_pin_all(struct bench *b, struct err *e)
{
    struct adapters *a = model_adapters(b->model);
    uint32_t pages = 0;
    for (uint32_t i = 1; i <= adapters_count(a); i++)
        pages += adapters_pages(a, i);
    if (adapters_reserve(a, pages, e))
        return -1;
    for (uint32_t i = 1; i <= adapters_count(a); i++)
        if (adapters_pin(a, i, e))
            return -1;
    return 0;
}

/* On one CPU device, with an fp32 cache. 0, or -1 with `e` filled; close it in either case.
 * Adapters are opened, but not on the device. */
static inline int bench_open_with(struct bench *b, const struct bench_setup *u, struct comm *comm,
                                  int threads, uint32_t n_blocks, struct err *e)
{
    memset(b, 0, sizeof(*b));
    if (!(b->ops = backend_find("cpu", e)))
        return -1;
    if (!(b->dev =
              b->ops->open(&(struct device_options){.threads = threads, .features = ~0ull}, e)))
        return -1;
    const struct model_options o = {.ops = b->ops,
                                    .dev = b->dev,
                                    .comm = comm,
                                    .dtype = u->dtype,
                                    .activations =
                                        u->activations ? u->activations : ACTIVATIONS_EXACT,
                                    .adapters = u->adapters,
                                    .n_adapters = u->n_adapters,
                                    .draft_heads = u->draft_heads,
                                    .draft_dir = u->draft_dir,
                                    .stages = u->stages,
                                    .expert_parallel = u->expert_parallel};
    if (!(b->model = model_load(u->dir, &o, e)) ||
        model_kv_resize(b->model, n_blocks, BLOCK_SIZE, KV_F32, e) ||
        model_state_resize(b->model, n_blocks, e))
        return -1;
    b->vocab = model_info(b->model)->vocab;
    b->adapter = u->adapter;
    return 0;
}

/* The same with all adapters on the device. */
static inline int bench_open_as(struct bench *b, const struct bench_setup *u, struct comm *comm,
                                int threads, uint32_t n_blocks, struct err *e)
{
    if (bench_open_with(b, u, comm, threads, n_blocks, e))
        return -1;
    return u->n_adapters ? bench_pin_all(b, e) : 0;
}

/* fp32 arithmetic on weights as stored. */
static inline int bench_open(struct bench *b, const char *dir, struct comm *comm, int threads,
                             uint32_t n_blocks, struct err *e)
{
    return bench_open_with(b, &(struct bench_setup){.dir = dir, .dtype = -1}, comm, threads,
                           n_blocks, e);
}

/* ---------------------------------------------------------------- sequences */

struct bench_seq {
    uint32_t ids[MAX_LEN], n, done; /* known tokens, and cached ones */
    uint32_t blocks[MAX_SEQ_BLOCKS], adapter;
    uint32_t cell; /* its state is in cell blocks[cell], where cell is 0 or 1 */
    float *rows;   /* [MAX_LEN][vocab] logits after each token */
};

/* `first`: its first block in `order`, a permutation of the cache's blocks. */
static inline void seq_init(struct bench_seq *s, const struct bench *b, const struct prompt *p,
                            const uint32_t *order)
{
    memset(s, 0, sizeof(*s));
    memcpy(s->ids, p->ids, p->n * sizeof(p->ids[0]));
    s->n = p->n;
    memcpy(s->blocks, order, sizeof(s->blocks));
    s->adapter = b->adapter;
    s->rows = malloc((size_t)MAX_LEN * b->vocab * sizeof(float));
    if (!s->rows)
        abort();
}

static inline void shuffled(struct rng *r, uint32_t *order, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n; i-- > 1;) {
        uint32_t k = rng_below(r, i + 1), t = order[i];
        order[i] = order[k], order[k] = t;
    }
}

/* One step: take[i] tokens of each sequence, logits of all of them or, with `ends`, of each
 * sequence's last token. */
static inline int bench_step(struct bench *b, struct bench_seq *const *seqs, const uint32_t *take,
                             int n_seqs, struct err *e)
{
    enum { CAP = MAX_PROMPTS * MAX_LEN };
    static _Thread_local uint32_t ids[CAP], pos[CAP], slots[CAP], rows[CAP];
    struct span spans[MAX_PROMPTS];
    uint32_t n = 0, n_spans = 0, n_out = 0;
    for (int i = 0; i < n_seqs; i++) {
        struct bench_seq *s = seqs[i];
        if (!take[i])
            continue;
        spans[n_spans++] = (struct span){n,    take[i],    s->done + take[i],  s->blocks,
                                         s->n, s->adapter, s->blocks[s->cell], s->blocks[!s->cell]};
        for (uint32_t k = s->done; k < s->done + take[i]; k++, n++) {
            ids[n] = s->ids[k], pos[n] = k;
            if (!b->ends || k + 1 == s->n)
                rows[n_out++] = n;
            slots[n] = s->blocks[k / BLOCK_SIZE] * BLOCK_SIZE + k % BLOCK_SIZE;
        }
    }
    float *logits = malloc(((size_t)n_out + 1) * b->vocab * sizeof(float));
    int rc = !logits ? err_nomem(e)
                     : model_forward(b->model,
                                     &(struct ragged){.n_tokens = n,
                                                      .n_spans = n_spans,
                                                      .n_out = n_out,
                                                      .ids = ids,
                                                      .pos = pos,
                                                      .slots = slots,
                                                      .spans = spans,
                                                      .out_rows = rows},
                                     logits, e);
    const float *at = logits;
    for (int i = 0; i < n_seqs && rc == 0; i++) {
        struct bench_seq *s = seqs[i];
        s->done += take[i];
        s->cell ^= take[i] > 0;
        const size_t some = !b->ends ? take[i] : take[i] && s->done == s->n, row = b->vocab;
        if (some) /* a sequence without tokens may have no rows */
            memcpy(s->rows + (s->done - some) * row, at, some * row * sizeof(float));
        at += some * row;
    }
    free(logits);
    return rc;
}

static inline uint32_t argmax(const float *row, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = row[i] > row[best] ? i : best;
    return best;
}

static inline double logprob(const float *row, uint32_t n, uint32_t id)
{
    double max = row[argmax(row, n)], sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(row[i] - max);
    return row[id] - max - log(sum);
}

/* ---------------------------------------------------------------- against the expectations */

struct verdict {
    double logits, logprobs; /* largest absolute error */
    uint32_t prompts, greedy, greedy_right;
};

static inline double larger(double a, double b) { return fabs(b) > a || isnan(b) ? fabs(b) : a; }

/* Runs the prompt at once, then decodes greedily token by token. */
static inline int judge_prompt(struct bench *b, const struct prompt *p, struct verdict *v,
                               struct err *e)
{
    static _Thread_local struct bench_seq s;
    struct bench_seq *const one[] = {&s};
    uint32_t order[MAX_SEQ_BLOCKS], n = p->n;
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = MAX_SEQ_BLOCKS - 1 - i;
    seq_init(&s, b, p, order);
    int rc = bench_step(b, one, &n, 1, e);
    for (uint32_t i = 0; i < b->vocab && rc == 0; i++)
        v->logits = larger(v->logits, s.rows[(size_t)(n - 1) * b->vocab + i] - p->last[i]);
    for (uint32_t i = 1; i < p->n_logprobs && rc == 0; i++)
        v->logprobs =
            larger(v->logprobs, logprob(s.rows + (size_t)(i - 1) * b->vocab, b->vocab, p->ids[i]) -
                                    p->logprobs[i]);
    for (uint32_t i = 0; i < p->n_greedy && rc == 0; i++) {
        uint32_t id = argmax(s.rows + (size_t)(s.done - 1) * b->vocab, b->vocab);
        v->greedy++;
        v->greedy_right += id == p->greedy[i];
        s.ids[s.n++] = p->greedy[i]; /* the expected token, so that one error counts once */
        if (i + 1 < p->n_greedy)
            rc = bench_step(b, one, &(uint32_t){1}, 1, e);
    }
    v->prompts++;
    free(s.rows);
    return rc;
}

static inline int judge(struct bench *b, const struct golden *g, struct verdict *v, struct err *e)
{
    memset(v, 0, sizeof(*v));
    for (int i = 0; i < g->n; i++)
        if (judge_prompt(b, &g->prompts[i], v, e))
            return -1;
    return 0;
}
#endif

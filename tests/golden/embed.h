/* embed.h - texts with their expected vectors or scores, and a bench to run a model on them. */
#ifndef TESTS_GOLDEN_EMBED_H
#define TESTS_GOLDEN_EMBED_H
#include "common/json/json.h"
#include "model-server/model/model.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { MAX_TEXTS = 32 };
struct expected_text {
    struct model_text in;
    uint32_t *ids;
    uint8_t *types;
    float *want;         /* [n_want] */
    float *first, *last; /* [hidden] or NULL */
    uint32_t n_want;
};
struct texts {
    struct expected_text text[MAX_TEXTS];
    uint32_t n;
    bool normalize;
};

static inline float *floats_of(const cJSON *a, uint32_t *n)
{
    const cJSON *v;
    *n = 0;
    if (!cJSON_IsArray(a))
        return NULL;
    float *f = malloc(((size_t)cJSON_GetArraySize(a) + 1) * sizeof(*f));
    cJSON_ArrayForEach(v, a) f[(*n)++] = (float)v->valuedouble;
    return f;
}

/* texts have an embedding; pairs a logit, or a list of them. */
static inline void add_text(struct texts *t, const cJSON *j)
{
    struct expected_text *x = &t->text[t->n++];
    const cJSON *ids = json_get(j, "ids"), *types = json_get(j, "token_type_ids"), *v;
    const cJSON *logit = json_get(j, "logit");
    uint32_t n = 0, unused;
    assert_true(t->n <= MAX_TEXTS);
    x->ids = malloc(((size_t)cJSON_GetArraySize(ids) + 1) * sizeof(*x->ids));
    cJSON_ArrayForEach(v, ids) x->ids[n++] = (uint32_t)v->valuedouble;
    x->in = (struct model_text){.ids = x->ids, .n = n};
    if (types) {
        x->in.types = x->types = calloc(n, 1);
        n = 0;
        cJSON_ArrayForEach(v, types) x->types[n++] = (uint8_t)v->valuedouble;
    }
    x->in.skip = (uint32_t)json_int(j, "skip", 0);
    x->want = floats_of(json_get(j, "embedding"), &x->n_want);
    if (!x->want && !(x->want = floats_of(json_get(j, "logits"), &x->n_want))) {
        x->want = malloc(sizeof(float));
        *x->want = (float)logit->valuedouble;
        x->n_want = 1;
    }
    x->first = floats_of(json_get(j, "first_hidden"), &unused);
    x->last = floats_of(json_get(j, "last_hidden"), &unused);
}

static inline bool texts_load(struct texts *t, const char *dir)
{
    char path[1100];
    struct err e;
    const cJSON *j;
    snprintf(path, sizeof(path), "%s/golden.json", dir);
    cJSON *root = json_load(path, 1 << 24, &e);
    memset(t, 0, sizeof(*t));
    t->normalize = json_bool(root, "normalize", false);
    cJSON_ArrayForEach(j, json_get(root, "texts")) add_text(t, j);
    cJSON_ArrayForEach(j, json_get(root, "pairs")) add_text(t, j);
    cJSON_Delete(root);
    return t->n > 0;
}

static inline void texts_free(struct texts *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        free(t->text[i].ids), free(t->text[i].types), free(t->text[i].want);
        free(t->text[i].first), free(t->text[i].last);
    }
}

struct encode_bench {
    const struct backend_ops *ops;
    struct device *dev;
    struct model *model;
};

static inline void encode_close(struct encode_bench *b)
{
    model_free(b->model);
    if (b->dev)
        b->ops->close(b->dev);
    memset(b, 0, sizeof(*b));
}

/* Tokens of made rerankers, which have no tokenizer. */
static inline int64_t answer_id(const void *none, const char *token)
{
    (void)none;
    return strchr("yY1", *token) ? 40 : 41;
}

static inline int encode_open_on(struct encode_bench *b, const struct backend_ops *ops,
                                 const char *dir, int threads, struct comm *comm, struct err *e)
{
    *b = (struct encode_bench){.ops = ops};
    const struct device_options d = {.threads = threads, .features = ~0ull};
    if (!(b->dev = b->ops->open(&d, e)))
        return -1;
    const struct model_options o = {.ops = b->ops,
                                    .dev = b->dev,
                                    .comm = comm,
                                    .dtype = -1,
                                    .activations = ACTIVATIONS_EXACT,
                                    .id_of = answer_id,
                                    .task = strstr(dir, "qwen3_rerank") ? TASK_RERANK
                                            : strstr(dir, "_fill")      ? TASK_FILL_MASK
                                                                        : TASK_AUTO};
    if (!(b->model = model_load(dir, &o, e)))
        return -1;
    assert_true(model_info(b->model)->task != TASK_GENERATE);
    return model_encode_reserve(b->model, 64, 2, KV_F32, e); /* less than needed: it grows */
}

static inline int encode_open(struct encode_bench *b, const char *dir, int threads,
                              struct comm *comm, struct err *e)
{
    return encode_open_on(b, &backend_cpu, dir, threads, comm, e);
}

static inline float *encode_run(struct encode_bench *b, const struct model_text *v, uint32_t n,
                                bool all)
{
    struct err e = ERR_INIT;
    size_t rows = n;
    for (uint32_t i = 0; all && i < n; i++)
        rows += v[i].n;
    const struct model_info *m = model_info(b->model);
    float *out = malloc(rows * (all ? m->row_width : m->width) * sizeof(*out));
    if (model_encode(b->model, v, n, all, out, &e))
        fail_msg("%s", e.msg);
    return out;
}

static inline bool gives_tokens(const struct encode_bench *b)
{
    return model_task_of_tokens(model_info(b->model)->task);
}

/* Numbers of a text's result. */
static inline size_t text_floats(const struct encode_bench *b, const struct expected_text *x)
{
    const struct model_info *m = model_info(b->model);
    return gives_tokens(b) ? (size_t)x->in.n * m->row_width : m->width;
}

/* [n][width], or of tokens, of texts [first, first + n); `turned`: in reverse order. */
static inline float *encode_texts(struct encode_bench *b, const struct texts *t, uint32_t first,
                                  uint32_t n, bool turned)
{
    struct model_text v[MAX_TEXTS];
    for (uint32_t i = 0; i < n; i++)
        v[i] = t->text[turned ? first + n - 1 - i : first + i].in;
    return encode_run(b, v, n, gives_tokens(b));
}

static inline float *encode_all(struct encode_bench *b, const struct texts *t)
{
    struct model_text v[MAX_TEXTS];
    for (uint32_t i = 0; i < t->n; i++)
        v[i] = t->text[i].in;
    return encode_run(b, v, t->n, true);
}

/* The largest error; NaN counts as infinite. */
static inline double encode_error(struct encode_bench *b, const struct texts *t)
{
    float *got = encode_texts(b, t, 0, t->n, false);
    const float *row = got;
    double worst = 0;
    for (uint32_t i = 0; i < t->n; row += text_floats(b, &t->text[i++])) {
        const size_t width = text_floats(b, &t->text[i]);
        double norm = 0;
        assert_int_equal(t->text[i].n_want, width);
        for (size_t k = 0; k < width; k++)
            norm += (double)row[k] * row[k];
        norm = t->normalize ? sqrt(norm) : 1;
        for (size_t k = 0; k < width; k++) {
            const double err = fabs(row[k] / norm - t->text[i].want[k]);
            worst = isnan(err) ? INFINITY : fmax(worst, err);
        }
    }
    free(got);
    return worst;
}
#endif

/* backend_ops.arithmetic: devices with equal texts compute equal bits. */
#include "model-server/backend/host/cpu_features.h"
#include "tests/check/attention_rig.h"

enum { HEADS = 4, DIM = 64, LEN = 96, COLS = 512, ROWS = 32 };

struct results {
    char text[160];
    float attention[LEN * HEADS * DIM], product[LEN * ROWS];
};

/* What the CPU has, without what comes after each of these instruction sets. */
static const uint64_t features[] = {
    ~UINT64_C(0),
    ~(uint64_t)(CPU_AMX_BF16 | CPU_AMX_INT8),
    ~(uint64_t)(CPU_AMX_BF16 | CPU_AMX_INT8 | CPU_AVX512_FP16),
    CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI | CPU_NEON | CPU_NEON_DOT,
    CPU_AVX2 | CPU_NEON,
    0,
};
enum { N_FEATURES = sizeof(features) / sizeof(features[0]), N_RESULTS = 4 * N_FEATURES };

static void multiply(struct device *d, const struct mat_desc *m, const float *x, float *y)
{
    struct err e = ERR_INIT;
    struct weight *w = ops->weight_load(d, m, &e);
    assert_non_null(w);
    const struct ragged none = {0};
    assert_int_equal(ops->step_begin(d, &none, &e), 0);
    ops->linear(d, y, x, LEN, w, NULL);
    assert_int_equal(ops->step_end(d, &e), 0);
    ops->weight_free(d, w);
}

static void compute(struct results *r, const struct device_options *o, struct sequence *s,
                    const struct mat_desc *m, const float *x)
{
    struct err e = ERR_INIT;
    struct device *d = ops->open(o, &e);
    assert_non_null(d);
    ops->arithmetic(d, s->dtype, s->rounds, r->text, sizeof(r->text));
    run_sequence(d, s, LEN, false, r->attention);
    assert_true(attention_error(s, LEN - 1, 0, r->attention + (size_t)(LEN - 1) * HEADS * DIM) <
                0.25);
    multiply(d, m, x, r->product);
    ops->close(d);
}

static bool same_bits(const struct results *a, const struct results *b)
{
    const void *x[] = {a->attention, a->product}, *y[] = {b->attention, b->product};
    return !memcmp(x[0], y[0], sizeof(a->attention)) && !memcmp(x[1], y[1], sizeof(a->product));
}

/* Every device, with and without rounding, over one sequence. */
static uint32_t compute_all(struct results *all, struct sequence *s, const struct mat_desc *m,
                            const float *x)
{
    uint32_t n = 0;
    for (uint32_t f = 0; f < N_FEATURES; f++)
        for (enum arith a = ARITH_EXACT; a <= ARITH_HALF; a++)
            for (s->rounds = false;; s->rounds = true) {
                compute(&all[n++],
                        &(struct device_options){.threads = 1, .features = features[f], .arith = a},
                        s, m, x);
                if (s->rounds)
                    break;
            }
    return n;
}

/* How many of the texts are `text`; fails if two results of one text differ. */
static uint32_t count_texts(const struct results *all, uint32_t n, const char *text)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        found += !strcmp(all[i].text, text);
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(all[i].text, all[k].text) && !same_bits(&all[i], &all[k]))
                fail_msg("\"%s\" is the text of two results (%u, %u)", all[i].text, k, i);
    }
    return found;
}

/* How many texts say that attention is in bfloat16, or with `integers` in integers. */
static uint32_t count_attention(const struct results *all, uint32_t n, bool integers)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += strstr(all[i].text,
                        integers ? "attention in integers" : "attention in bfloat16") != NULL;
    return found;
}

TEST(equal_texts_have_equal_bits)
{
    static const enum kv_dtype types[] = {KV_BF16, KV_F32, KV_I8, KV_I4};
    struct results *all = calloc(N_RESULTS, sizeof(*all));
    rng = rng_new();
    float *x = rng_floats(&rng, LEN * COLS), *w = rng_floats(&rng, ROWS * COLS);
    uint16_t *half = malloc(ROWS * COLS * sizeof(*half));
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        half[i] = bf16_of_f32(w[i]);
    const struct mat_part part = {half, DT_BF16, ROWS, COLS, COLS, 1};
    const struct mat_desc m = {.parts = &part, .n_parts = 1, .dtype = DT_BF16};
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        struct sequence s = sequence_new(
            (struct attn){.n_heads = HEADS, .n_kv_heads = 2, .head_dim = DIM, .scale = 0.125f}, LEN,
            types[t], 16);
        const uint32_t n = compute_all(all, &s, &m, x);
        /* plain C: whatever is asked, and in integers the same on every CPU */
        const bool quads = types[t] == KV_I4;
        assert_true(count_texts(all, n, "") >= (quads ? 2 : 4));
        assert_true(!quads || count_texts(all, n, "attention in integers") >= 2);
        assert_int_equal(count_attention(all, n, true), quads ? n / 2 : 0);
        assert_true(count_attention(all, n, false) == 0 || types[t] == KV_BF16 ||
                    types[t] == KV_I8);
        sequence_free(&s);
    }
    free(half), free(x), free(w);
    free(all);
}

int main(void) { return tests_run(NULL, NULL); }

/* test_cuda_fused.c - operations that become part of a product of few rows, or of attention,
 * against the same operations each by itself: the same bits in everything that is left in memory,
 * whatever the shape, type, company or order of threads and blocks; so does x in shared memory;
 * and how many launches that takes. */
#include "tests/check/cuda/cuda_sequences.h"

enum { FUSE = 64, X_SHARED = 128, MOST_SEQUENCES = 24 };

/* A decoder layer and where its sequences stand. */
struct rig {
    uint32_t sequences, hidden, ffn, kv_len[MOST_SEQUENCES];
    struct attn attn;
    enum dtype dtype;
    enum quant quant;
    enum kv_dtype cache;
    enum norm_kind norm;
    enum act act;
    bool head_norm, interleaved, biased;
    float scale;
    uint32_t rot, layers, twice; /* twice: every product is computed twice */
};

static struct rig any_rig(uint32_t sequences)
{
    static const uint32_t dims[] = {64, 128, 80, 96};
    struct rig r = {.sequences = sequences, .layers = 2};
    uint32_t kv_heads = 1 + rng_below(&rng, 2), group = 1 + rng_below(&rng, 4);
    r.attn = (struct attn){.n_heads = kv_heads * group, .n_kv_heads = kv_heads};
    r.attn.head_dim = dims[rng_below(&rng, 4)];
    r.attn.scale = 1 / sqrtf((float)r.attn.head_dim);
    r.hidden = 1 + rng_below(&rng, 330), r.ffn = 1 + rng_below(&rng, 200);
    if (rng_below(&rng, 2))
        r.hidden = (r.hidden + 63) / 64 * 64;
    r.dtype = rng_below(&rng, 2) ? DT_BF16 : DT_F16;
    r.quant = rng_below(&rng, 2) ? QUANT_NONE : (enum quant)rng_below(&rng, QUANT_N);
    r.cache = (enum kv_dtype)(KV_F16 + rng_below(&rng, KV_I4 - KV_F16));
    r.norm = rng_below(&rng, 3) ? NORM_RMS : NORM_LAYER;
    r.act = (enum act)rng_below(&rng, ACT_N);
    r.head_norm = rng_below(&rng, 2), r.interleaved = rng_below(&rng, 2);
    r.biased = rng_below(&rng, 2);
    r.scale = rng_below(&rng, 2) ? 1.0f : 0.7f;
    r.rot = rng_below(&rng, 4) ? r.attn.head_dim : r.attn.head_dim / 2;
    for (uint32_t i = 0; i < sequences; i++)
        r.kv_len[i] = 1 + rng_below(&rng, i == 0 ? 390 : i < 4 ? 200 : 40);
    return r;
}

/* Numbers on the host, made once for both ways. */
struct numbers {
    float *qkv, *o, *up, *down, *norms, *head_norms, *bias, *rope, *x, *past;
};
enum { PAST = 400, BLOCK = 16 }; /* more than three segments of attention */

static struct numbers numbers_of(const struct rig *r)
{
    const size_t width = qkv_width(&r->attn), heads = (size_t)r->attn.n_heads * r->attn.head_dim;
    struct numbers n = {units(width * r->hidden),
                        units(r->hidden * heads),
                        units(2 * (size_t)r->ffn * r->hidden),
                        units((size_t)r->hidden * r->ffn),
                        units(2 * (size_t)r->hidden),
                        units(2 * (size_t)r->attn.head_dim),
                        units(width + r->hidden + 2 * (size_t)r->ffn),
                        units((size_t)MOST_SEQUENCES * r->rot),
                        units((size_t)r->sequences * r->hidden),
                        units(PAST * width)};
    return n;
}
static void numbers_free(struct numbers *n)
{
    free(n->qkv), free(n->o), free(n->up), free(n->down), free(n->norms), free(n->head_norms);
    free(n->bias), free(n->rope), free(n->x), free(n->past);
}

/* What memory holds after a step. Results of attention and of the gate may only be stored in 16
 * bits, so x stands for them. */
struct outcome {
    float *x, *n, *qkv;
    uint64_t launches;
};

struct rank {
    struct side s;
    const struct rig *r;
    struct kv_cache *kv;
    struct weight *w[4];
    float *norms, *head_norms, *bias, *rope, *x, *n, *res, *qkv, *att, *up, *act;
};

/* Keys and values of what stands before the step. */
static void fill_cache(struct rank *k, const float *past, const uint32_t *tables)
{
    const struct rig *r = k->r;
    const size_t width = qkv_width(&r->attn);
    struct err e = ERR_INIT;
    float *qkv = up(k->s, NULL, PAST * width * 4);
    uint32_t *slots = malloc(PAST * 4), *pos = malloc(PAST * 4);
    for (uint32_t i = 0; i < r->sequences; i++) {
        const uint32_t *table = tables + (size_t)i * (PAST / BLOCK);
        struct span span = {0, r->kv_len[i], r->kv_len[i], table, 0};
        struct ragged b = {.n_tokens = span.n, .n_spans = 1, .spans = &span};
        for (uint32_t t = 0; t < span.n; t++)
            pos[t] = t, slots[t] = table[t / BLOCK] * BLOCK + t % BLOCK;
        b.pos = pos, b.slots = slots;
        if (gpu->upload(k->s.d, qkv, past, span.n * width * 4, &e) ||
            gpu->step_begin(k->s.d, &b, &e))
            fail_msg("%s", e.msg);
        gpu->rope_kv(k->s.d, qkv, k->kv, 0,
                     &(struct rope_kv){.n_heads = r->attn.n_heads,
                                       .n_kv_heads = r->attn.n_kv_heads,
                                       .head_dim = r->attn.head_dim});
        assert_int_equal(gpu->step_end(k->s.d, &e), 0);
    }
    gpu->free(k->s.d, qkv), free(slots), free(pos);
}

/* Its rows have one reader, or two: the second one may read them in fp32 alone. */
static void product(struct rank *k, float *y, const float *x, const struct weight *w,
                    const float *bias)
{
    for (uint32_t i = 0; i < 1 + k->r->twice; i++)
        gpu->linear(k->s.d, y, x, k->r->sequences, w, bias);
}

static void layer(struct rank *k)
{
    const struct rig *r = k->r;
    struct device *d = k->s.d;
    const uint32_t t = r->sequences, width = (uint32_t)qkv_width(&r->attn);
    const float *bias = r->biased ? k->bias : NULL;
    struct norm norm[2];
    for (int i = 0; i < 2; i++)
        norm[i] = (struct norm){r->norm, k->norms + i * r->hidden,
                                r->norm == NORM_LAYER ? k->norms : NULL, 1e-5f};
    const struct rope_kv rope = {r->attn.n_heads,
                                 r->attn.n_kv_heads,
                                 r->attn.head_dim,
                                 r->rot,
                                 r->interleaved,
                                 k->rope,
                                 r->head_norm ? k->head_norms : NULL,
                                 r->head_norm ? k->head_norms + r->attn.head_dim : NULL,
                                 1e-6f};
    product(k, k->qkv, k->n, k->w[0], bias);
    gpu->rope_kv(d, k->qkv, k->kv, 0, &rope);
    gpu->attention(d, k->att, k->qkv, width, k->kv, 0, &r->attn);
    product(k, k->res, k->att, k->w[1], bias ? bias + width : NULL);
    gpu->add_norm(d, k->n, k->x, k->res, r->scale, t, r->hidden, &norm[1]);
    product(k, k->up, k->n, k->w[2], bias ? bias + width + r->hidden : NULL);
    gpu->act_mul(d, k->act, k->up, t, r->ffn, r->act);
    product(k, k->res, k->act, k->w[3], NULL);
    gpu->add_norm(d, k->n, k->x, k->res, r->scale, t, r->hidden, &norm[0]);
}

static struct outcome run_rig(const struct rig *r, const struct numbers *n, uint64_t features)
{
    const uint32_t h = r->hidden, f = r->ffn, per = PAST / BLOCK;
    const uint32_t width = (uint32_t)qkv_width(&r->attn),
                   heads = r->attn.n_heads * r->attn.head_dim;
    const size_t t = r->sequences;
    struct err e = ERR_INIT;
    struct rank k = {.s = open_side(gpu, features), .r = r};
    uint32_t *tables = malloc((size_t)MOST_SEQUENCES * per * 4);
    for (uint32_t i = 0; i < MOST_SEQUENCES * per; i++)
        tables[i] = MOST_SEQUENCES * per - i; /* neither the first nor in order */
    const struct kv_desc kd = {1,
                               MOST_SEQUENCES * per + 2,
                               BLOCK,
                               r->cache,
                               {r->attn.n_kv_heads, r->attn.head_dim, r->attn.head_dim}};
    if (!(k.kv = gpu->kv_new(k.s.d, &kd, &e)))
        fail_msg("%s", e.msg);
    const uint32_t shapes[4][2] = {{width, h}, {h, heads}, {2 * f, h}, {h, f}};
    const float *const from[4] = {n->qkv, n->o, n->up, n->down};
    for (int i = 0; i < 4; i++)
        k.w[i] = load_quant(k.s, from[i], shapes[i][0], shapes[i][1], r->dtype, r->quant);
    k.norms = up(k.s, n->norms, 2 * (size_t)h * 4);
    k.head_norms = up(k.s, n->head_norms, 2 * (size_t)r->attn.head_dim * 4);
    k.bias = up(k.s, n->bias, (width + h + 2 * (size_t)f) * 4);
    k.rope = up(k.s, n->rope, (size_t)MOST_SEQUENCES * r->rot * 4);
    k.x = up(k.s, n->x, t * h * 4), k.n = up(k.s, NULL, t * h * 4);
    k.res = up(k.s, NULL, t * h * 4), k.qkv = up(k.s, NULL, t * width * 4);
    k.att = up(k.s, NULL, t * heads * 4), k.up = up(k.s, NULL, t * 2 * f * 4);
    k.act = up(k.s, NULL, t * f * 4);
    fill_cache(&k, n->past, tables);

    struct span spans[MOST_SEQUENCES];
    uint32_t pos[MOST_SEQUENCES], slots[MOST_SEQUENCES];
    for (uint32_t i = 0; i < t; i++) {
        const uint32_t *table = tables + (size_t)i * per, at = r->kv_len[i];
        spans[i] = (struct span){i, 1, at + 1, table, 0};
        pos[i] = at, slots[i] = table[at / BLOCK] * BLOCK + at % BLOCK;
    }
    const struct ragged b = {.n_tokens = (uint32_t)t,
                             .n_spans = (uint32_t)t,
                             .spans = spans,
                             .pos = pos,
                             .slots = slots};
    struct outcome out = {malloc(t * h * 4), malloc(t * h * 4), malloc(t * width * 4)};
    for (int step = 0; step < 3; step++) { /* run, captured, replayed */
        if (gpu->upload(k.s.d, k.x, n->x, t * h * 4, &e) || gpu->step_begin(k.s.d, &b, &e))
            fail_msg("%s", e.msg);
        uint64_t before = machine ? machine->launches : 0;
        const struct norm first = {r->norm, k.norms, NULL, 1e-5f};
        gpu->norm(k.s.d, k.n, k.x, (uint32_t)t, h, &first);
        for (uint32_t l = 0; l < r->layers; l++)
            layer(&k);
        assert_int_equal(gpu->step_end(k.s.d, &e), 0);
        out.launches = machine && step == 0 ? machine->launches - before : out.launches;
    }
    down(k.s, out.x, k.x, t * h * 4), down(k.s, out.n, k.n, t * h * 4);
    down(k.s, out.qkv, k.qkv, t * width * 4);
    float *const rest[] = {k.norms, k.head_norms, k.bias, k.rope, k.res, k.att, k.up, k.act};
    for (size_t i = 0; i < sizeof(rest) / sizeof(*rest); i++)
        gpu->free(k.s.d, rest[i]);
    for (int i = 0; i < 4; i++)
        gpu->weight_free(k.s.d, k.w[i]);
    gpu->kv_free(k.s.d, k.kv);
    close_side(k.s);
    free(tables);
    return out;
}

static void outcome_free(struct outcome *o) { free(o->x), free(o->n), free(o->qkv); }

/* Returns the launches of a step, fused. */
static uint64_t compare(const struct rig *r)
{
    const size_t t = r->sequences;
    struct numbers n = numbers_of(r);
    const uint64_t single = ~(uint64_t)(FUSE | X_SHARED);
    struct outcome want = run_rig(r, &n, single), got = run_rig(r, &n, ~0ull);
    const struct {
        const char *name;
        const float *got, *want;
        size_t n;
    } of[] = {{"x", got.x, want.x, t * r->hidden},
              {"n", got.n, want.n, t * r->hidden},
              {"qkv", got.qkv, want.qkv, t * qkv_width(&r->attn)}};
    for (size_t i = 0; i < sizeof(of) / sizeof(*of); i++)
        for (size_t j = 0; j < of[i].n; j++)
            if (memcmp(&of[i].got[j], &of[i].want[j], 4))
                fail_msg("%s[%zu] is %.9g fused, %.9g by itself: %u sequences, hidden %u, ffn %u, "
                         "%u of %u heads of %u, %s %s, cache %s, norm %d, act %d",
                         of[i].name, j, of[i].got[j], of[i].want[j], r->sequences, r->hidden,
                         r->ffn, r->attn.n_heads, r->attn.n_kv_heads, r->attn.head_dim,
                         dtype_name(r->dtype), quant_name(r->quant), kv_dtype_name(r->cache),
                         (int)r->norm, (int)r->act);
    outcome_free(&want), outcome_free(&got);
    numbers_free(&n);
    return got.launches;
}

TEST(fused_operations_have_the_bits_of_single_ones)
{
    for (uint32_t i = 0; i < 18; i++) {
        struct rig r =
            any_rig(i % 3 == 0 ? 1 : 1 + rng_below(&rng, i % 3 == 1 ? 4 : MOST_SEQUENCES));
        if (machine) /* blocks with many tiles, with one */
            machine->sms = i % 2 ? 1 + (int)rng_below(&rng, 4) : 132;
        compare(&r);
    }
    for (enum quant q = 0; q < QUANT_N; q++) {
        struct rig r = any_rig(1 + q % 3);
        r.quant = q;
        compare(&r);
    }
}

TEST(rows_are_there_for_every_reader)
{
    for (uint32_t i = 0; i < 8; i++) {
        struct rig r = any_rig(i % 2 ? MOST_SEQUENCES : 1 + i % 5);
        r.twice = 1, r.ffn = 64 + 64 * (i % 3), r.layers = 2;
        compare(&r);
    }
}

TEST(no_bit_depends_on_the_order_of_threads_and_blocks)
{
    if (!machine)
        skip();
    for (uint32_t i = 1; i <= 6; i++) {
        struct rig r = any_rig(1 + rng_below(&rng, 5));
        machine->shuffle = i * 77;
        machine->sms = i % 2 ? 2 : 132;
        compare(&r);
    }
    machine->shuffle = 0;
    machine->sms = 132;
}

/* The norm before the first layer and after the last, which is not read here, is part of the first
 * and stays one for the last. */
TEST(a_layer_is_five_launches)
{
    if (!machine || getenv("CUDA_FEATURES"))
        skip();
    for (uint32_t layers = 1; layers <= 3; layers++) {
        struct rig r = any_rig(1);
        r.quant = QUANT_NONE, r.layers = layers, r.cache = KV_BF16;
        r.attn.head_dim = r.rot = 64; /* results of attention fill their rows */
        assert_int_equal(compare(&r), 5 * layers + 1);
        r.sequences = 9; /* norms by themselves; rows in 16 bits by those who make them */
        for (uint32_t i = 0; i < 9; i++)
            r.kv_len[i] = 40 + i;
        r.ffn = 128;
        assert_int_equal(compare(&r), 7 * layers + 1);
        r.cache = KV_FP8;
        assert_int_equal(compare(&r), 7 * layers + 1);
        r.ffn = 100; /* rows with columns that only fill them up */
        assert_int_equal(compare(&r), 8 * layers + 1);
    }
}

int main(void) { return cuda_tests_run(); }

/* test_latent.c - latent attention on the CPU: its operations against double precision, the same
 * bits on every instruction set, number of threads and cut of a prompt; a cache whose layers differ
 * is copied and swapped whole. */
#include "model-server/backend/cpu/kernels/kernels.h"
#include "model-server/backend/numbers.h"
#include "tests/check/cpu_device.h"
#include "tests/check/random.h"
#include <math.h>
#include <string.h>

enum { HEADS = 19, RANK = 40, ROT = 16, NOPE = 24, V = 20, KEY = RANK + ROT, TOKENS = 300 };
enum { BLOCK = 16, N_BLOCKS = TOKENS / BLOCK + 2 };

static struct rng rng;
static const struct backend_ops *const ops = &backend_cpu;

/* Inputs of one layer, and the results: [TOKENS, HEADS, V]. */
struct layer_case {
    float *nope, *turned, *kv, *norm, *rope, *k_up, *v_up;
    uint32_t pos[TOKENS], slots[TOKENS], blocks[N_BLOCKS];
    enum kv_dtype dtype;
};

static void case_make(struct layer_case *c, enum kv_dtype t)
{
    c->dtype = t;
    c->nope = rng_floats(&rng, (size_t)TOKENS * HEADS * NOPE);
    c->turned = rng_floats(&rng, (size_t)TOKENS * HEADS * ROT);
    c->kv = rng_floats(&rng, (size_t)TOKENS * KEY);
    c->norm = rng_floats(&rng, RANK);
    c->rope = malloc((size_t)TOKENS * ROT * sizeof(float));
    c->k_up = rng_floats(&rng, (size_t)HEADS * RANK * NOPE);
    c->v_up = rng_floats(&rng, (size_t)HEADS * V * RANK);
    for (uint32_t i = 0; i < N_BLOCKS; i++)
        c->blocks[i] = (i * 7 + 3) % N_BLOCKS;
    for (uint32_t t2 = 0; t2 < TOKENS; t2++) {
        c->pos[t2] = t2;
        c->slots[t2] = c->blocks[t2 / BLOCK] * BLOCK + t2 % BLOCK;
        for (uint32_t i = 0; i < ROT / 2; i++) {
            const double angle = t2 / pow(100, 2.0 * i / ROT);
            c->rope[t2 * ROT + i] = (float)cos(angle);
            c->rope[t2 * ROT + ROT / 2 + i] = (float)sin(angle);
        }
    }
}

static void case_free(struct layer_case *c)
{
    free(c->nope), free(c->turned), free(c->kv), free(c->norm), free(c->rope);
    free(c->k_up), free(c->v_up);
}

static void load_heads(struct device *d, const float *m, uint32_t rows, uint32_t cols,
                       struct weight **out)
{
    struct err e = ERR_INIT;
    for (uint32_t h = 0; h < HEADS; h++) {
        struct mat_part p = {m + (size_t)h * rows * cols, DT_F32, rows, cols, cols, 1};
        if (!(out[h] = ops->weight_load(d, &(struct mat_desc){&p, 1, DT_BF16}, &e)))
            fail_msg("%s", e.msg);
    }
}

static void step(struct device *d, const struct layer_case *c, struct kv_cache *kv,
                 struct weight *const *k_up, struct weight *const *v_up, uint32_t first, uint32_t n,
                 float *out)
{
    struct err e = ERR_INIT;
    const size_t at = first;
    const struct span span = {0, n, first + n, c->blocks};
    const struct ragged b = {.n_tokens = n,
                             .n_spans = 1,
                             .pos = c->pos + first,
                             .slots = c->slots + first,
                             .spans = &span};
    float *latent = ops->alloc(d, (size_t)n * HEADS * RANK * 4, &e);
    float *q = ops->alloc(d, (size_t)n * HEADS * KEY * 4, &e);
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->linear_heads(d, latent, c->nope + at * HEADS * NOPE, n, k_up, HEADS);
    ops->latent_kv(d, q, c->kv + at * KEY, kv, 1,
                   &(struct latent_kv){.n_heads = HEADS,
                                       .rank = RANK,
                                       .rot_dim = ROT,
                                       .interleaved = true,
                                       .rope = c->rope + at * ROT,
                                       .norm = c->norm,
                                       .eps = 1e-6F,
                                       .latent = latent,
                                       .turned = c->turned + at * HEADS * ROT});
    ops->attention(
        d, latent, q, HEADS * KEY, kv, 1,
        &(struct attn){.n_heads = HEADS, .n_kv_heads = 1, .head_dim = KEY, .scale = 0.17F});
    ops->linear_heads(d, out + at * HEADS * V, latent, n, v_up, HEADS);
    assert_int_equal(ops->step_end(d, &e), 0);
    ops->free(d, latent), ops->free(d, q);
}

/* Layer 1 of a cache whose other layers are of other kinds. */
static struct kv_cache *cache(struct device *d, enum kv_dtype t)
{
    static const struct kv_layer layers[] = {{2, 32, 32}, {1, KEY, RANK, true, 24}, {3, 80, 80}};
    struct err e = ERR_INIT;
    const struct kv_desc kd = {3, N_BLOCKS, BLOCK, t, {0}, layers};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    if (!kv)
        fail_msg("%s", e.msg);
    return kv;
}

/* The whole layer in chunks of up to `most` tokens. */
static float *run(const struct layer_case *c, int threads, uint64_t features, uint32_t most)
{
    struct device *d = device(threads, features);
    struct weight *k_up[HEADS], *v_up[HEADS];
    struct kv_cache *kv = cache(d, c->dtype);
    float *out = malloc((size_t)TOKENS * HEADS * V * sizeof(float));
    load_heads(d, c->k_up, RANK, NOPE, k_up);
    load_heads(d, c->v_up, V, RANK, v_up);
    for (uint32_t at = 0, n; at < TOKENS; at += n) {
        n = most == TOKENS ? TOKENS : 1 + rng_below(&rng, most);
        n = n < TOKENS - at ? n : TOKENS - at;
        step(d, c, kv, k_up, v_up, at, n, out);
    }
    for (uint32_t h = 0; h < HEADS; h++)
        ops->weight_free(d, k_up[h]), ops->weight_free(d, v_up[h]);
    ops->kv_free(d, kv);
    ops->close(d);
    return out;
}

static double rounded(float f) { return f32_of_bf16(bf16_of_f32(f)); }

/* q of a head for latents: W^T nope beside the turned pairs. */
static void want_query(const struct layer_case *c, uint32_t t, uint32_t h, double *q)
{
    const float *nope = c->nope + ((size_t)t * HEADS + h) * NOPE;
    const float *x = c->turned + ((size_t)t * HEADS + h) * ROT, *rope = c->rope + (size_t)t * ROT;
    for (uint32_t r = 0; r < RANK; r++) {
        q[r] = 0;
        for (uint32_t i = 0; i < NOPE; i++)
            q[r] += rounded(c->k_up[((size_t)h * RANK + r) * NOPE + i]) * nope[i];
    }
    for (uint32_t i = 0; i < ROT / 2; i++) {
        const double co = rope[i], si = rope[ROT / 2 + i];
        q[RANK + 2 * i] = x[2 * i] * co - x[2 * i + 1] * si;
        q[RANK + 2 * i + 1] = x[2 * i + 1] * co + x[2 * i] * si;
    }
}

static void want_key(const struct layer_case *c, uint32_t t, double *key)
{
    const float *x = c->kv + (size_t)t * KEY, *rope = c->rope + (size_t)t * ROT;
    double sum = 0;
    for (uint32_t i = 0; i < RANK; i++)
        sum += (double)x[i] * x[i];
    for (uint32_t i = 0; i < RANK; i++)
        key[i] = x[i] / sqrt(sum / RANK + 1e-6) * c->norm[i];
    for (uint32_t i = 0; i < ROT / 2; i++) {
        const double co = rope[i], si = rope[ROT / 2 + i], a = x[RANK + 2 * i],
                     b = x[RANK + 2 * i + 1];
        key[RANK + 2 * i] = a * co - b * si;
        key[RANK + 2 * i + 1] = b * co + a * si;
    }
}

/* A head of a token in double precision. */
static void want_row(const struct layer_case *c, uint32_t t, uint32_t h, double out[V])
{
    static double keys[TOKENS][KEY], p[TOKENS];
    double q[KEY], sum[RANK] = {0}, max = -INFINITY, all = 0;
    want_query(c, t, h, q);
    for (uint32_t k = 0; k <= t; k++) {
        want_key(c, k, keys[k]);
        p[k] = 0;
        for (uint32_t i = 0; i < KEY; i++)
            p[k] += 0.17F * q[i] * keys[k][i];
        max = p[k] > max ? p[k] : max;
    }
    for (uint32_t k = 0; k <= t; k++) {
        all += p[k] = exp(p[k] - max);
        for (uint32_t i = 0; i < RANK; i++)
            sum[i] += p[k] * keys[k][i];
    }
    for (uint32_t v = 0; v < V; v++) {
        out[v] = 0;
        for (uint32_t i = 0; i < RANK; i++)
            out[v] += rounded(c->v_up[((size_t)h * V + v) * RANK + i]) * sum[i] / all;
    }
}

TEST(agrees_with_double_precision)
{
    struct layer_case c;
    case_make(&c, KV_F32);
    float *got = run(&c, 2, ~0ull, TOKENS);
    for (uint32_t t = 0; t < TOKENS; t += 37)
        for (uint32_t h = 0; h < HEADS; h += 6) {
            double want[V];
            want_row(&c, t, h, want);
            for (uint32_t v = 0; v < V; v++) {
                const double g = got[((size_t)t * HEADS + h) * V + v];
                if (!(fabs(g - want[v]) < 1e-4 * (1 + fabs(want[v]))))
                    fail_msg("token %u, head %u: [%u] = %g, not %g", t, h, v, g, want[v]);
            }
        }
    free(got);
    case_free(&c);
}

/* Matrix units add in an order of their own: all other instruction sets agree. */
TEST(the_same_bits_however_it_is_computed)
{
    static const uint64_t vectors = ~(uint64_t)CPU_AMX_BF16;
    static const struct {
        uint64_t whole, parts;
        int threads;
        uint32_t cut;
    } pairs[] = {{vectors, vectors, 3, 41},
                 {vectors, CPU_AVX2, 1, TOKENS},
                 {vectors, 0, 1, 41},
                 {~0ull, ~0ull, 3, 41}};
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct layer_case c;
        case_make(&c, t);
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
            float *whole = run(&c, 1, pairs[i].whole, TOKENS);
            float *parts = run(&c, pairs[i].threads, pairs[i].parts, pairs[i].cut);
            assert_memory_equal(parts, whole, (size_t)TOKENS * HEADS * V * sizeof(float));
            free(parts), free(whole);
        }
        case_free(&c);
    }
}

/* A block leaves for the host and returns elsewhere; another is copied: both read the same. */
TEST(blocks_move_with_all_layers)
{
    for (enum kv_dtype t = 0; t < KV_N; t++) {
        struct err e = ERR_INIT;
        struct device *d = device(2, ~0ull);
        struct kv_cache *kv = cache(d, t);
        static const struct kv_layer layers[] = {
            {2, 32, 32}, {1, KEY, RANK, true, 24}, {3, 80, 80}};
        const size_t bytes =
            ops->kv_block_bytes(&(struct kv_desc){3, N_BLOCKS, BLOCK, t, {0}, layers});
        char *host = ops->host_alloc(d, 4 * bytes, &e), *other = host + bytes;
        const uint32_t a = 5, b = 9, c = 2, zero = 0, one = 1, two = 2;
        for (size_t i = 0; i < bytes; i++)
            host[i] = (char)rng_below(&rng, 256);
        assert_int_equal(ops->kv_write(d, kv, &a, host, &zero, 1, &e), 0);
        assert_int_equal(ops->kv_copy(d, kv, &a, &b, 1, &e), 0);
        assert_int_equal(ops->kv_read(d, kv, &b, host, &one, 1, &e), 0);
        assert_memory_equal(host, other, bytes);
        assert_int_equal(ops->kv_read(d, kv, &c, host, &two, 1, &e), 0);
        for (size_t i = 0; i < bytes; i++) /* its neighbours are as they were */
            assert_int_equal(host[2 * bytes + i], 0);
        ops->host_free(d, host, 4 * bytes);
        ops->kv_free(d, kv);
        ops->close(d);
    }
}

int main(void)
{
    rng = rng_new();
    return tests_run(NULL, NULL);
}

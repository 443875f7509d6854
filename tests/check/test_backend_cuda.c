/* test_backend_cuda.c - every operation of the CUDA backend against the CPU's, and its promises: a
 * row's bits do not depend on batch, chunking or block table; a replayed step is the step; what is
 * taken is given back; every refusal says why.
 *
 * Without a GPU the plugin is the one built with tests/cuda_double, where the same kernels run on
 * the CPU. On a machine with one, `make gpu-check` runs this program on build/bin/backend-cuda.so
 * (BACKEND_CUDA); what only the double can show is left out there. */
#include "model-server/backend/cpu/numbers.h"
#include "model-server/backend/plugin.h"
#include "tests/check/random.h"
#include "tests/cuda_double/cuda_runtime_api.h"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
// cmocka wants the three above first
#include <cmocka.h>

enum { TENSOR = 1, GRAPHS = 2, OVERLAP = 4 };

static struct rng rng;
static const struct backend_ops *gpu;
static const struct backend_plugin *plugin;
static struct cuda_double *machine; /* NULL: a real GPU */
static const struct backend_ops *const cpu = &backend_cpu;

/* A device and where its results are looked at. */
struct side {
    const struct backend_ops *ops;
    struct device *d;
};

static struct side open_side(const struct backend_ops *ops, uint64_t features)
{
    struct err e = ERR_INIT;
    struct side s = {ops,
                     ops->open(&(struct device_options){.threads = 1, .features = features}, &e)};
    if (!s.d)
        fail_msg("%s", e.msg);
    return s;
}

static void close_side(struct side s)
{
    s.ops->close(s.d);
    if (machine && s.ops == gpu) {
        assert_int_equal(machine->allocations, 0);
        machine->sms = 132;
    }
}

static void *up(struct side s, const void *src, size_t bytes)
{
    struct err e = ERR_INIT;
    void *p = s.ops->alloc(s.d, bytes + 64, &e);
    if (!p || (src && s.ops->upload(s.d, p, src, bytes, &e)))
        fail_msg("%s", e.msg);
    return p;
}

static void down(struct side s, void *dst, void *src, size_t bytes)
{
    struct err e = ERR_INIT;
    if (s.ops->download(s.d, dst, src, bytes, &e))
        fail_msg("%s", e.msg);
    s.ops->free(s.d, src);
}

static struct weight *load(struct side s, const float *w, uint32_t rows, uint32_t cols,
                           enum dtype t)
{
    struct err e = ERR_INIT;
    struct mat_part part = {w, DT_F32, rows, cols, cols, 1};
    struct weight *out = s.ops->weight_load(s.d, &(struct mat_desc){&part, 1, t}, &e);
    if (!out)
        fail_msg("%s", e.msg);
    return out;
}

/* In (-1, 1): sums of products stay far from overflow in every type. */
static float *units(size_t n)
{
    float *p = rng_floats(&rng, n);
    for (size_t i = 0; i < n; i++)
        p[i] = rng_unit(&rng);
    return p;
}

/* ---------------------------------------------------------------- linear */

static float *linear(struct side s, const float *x, uint32_t rows, struct weight *w, uint32_t n,
                     uint32_t k, const float *bias)
{
    float *y = malloc((size_t)rows * n * 4);
    float *dx = up(s, x, (size_t)rows * k * 4), *db = up(s, bias, n * 4);
    float *dy = up(s, NULL, (size_t)rows * n * 4);
    s.ops->linear(s.d, dy, dx, rows, w, db);
    down(s, y, dy, (size_t)rows * n * 4);
    s.ops->free(s.d, dx), s.ops->free(s.d, db);
    return y;
}

/* `step`: half a unit in the last place that x is rounded to; 0: the very bits of the CPU. */
static void check_linear(struct side g, struct side c, uint32_t rows, uint32_t n, uint32_t k,
                         enum dtype t, double step)
{
    float *w = units((size_t)n * k), *x = units((size_t)rows * k), *bias = units(n);
    struct weight *gw = load(g, w, n, k, t), *cw = load(c, w, n, k, t);
    float *got = linear(g, x, rows, gw, n, k, bias), *want = linear(c, x, rows, cw, n, k, bias);
    for (uint32_t i = 0; i < rows * n; i++) {
        double mag = 1e-30;
        for (uint32_t j = 0; step > 0 && j < k; j++)
            mag += fabs((double)w[(size_t)(i % n) * k + j] * x[(size_t)(i / n) * k + j]);
        if (step > 0 ? !(fabs((double)got[i] - want[i]) <= mag * step * 1.02)
                     : memcmp(&got[i], &want[i], 4) != 0)
            fail_msg("%s [%u, %u] x %u rows: y[%u][%u] = %g, the CPU's is %g", dtype_name(t), n, k,
                     rows, i / n, i % n, got[i], want[i]);
    }
    g.ops->weight_free(g.d, gw), c.ops->weight_free(c.d, cw);
    free(w), free(x), free(bias), free(got), free(want);
}

static void linear_is_right(void **state)
{
    (void)state;
    static const uint32_t rows[] = {1, 2, 7, 8, 9, 16, 17, 32, 33, 130};
    static const uint32_t shapes[][2] = {{1, 1}, {16, 64}, {33, 70}, {150, 513}, {128, 1024}};
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++)
        for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
            for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
                if ((r + i) % 2 == 0 || !machine)
                    check_linear(g, c, rows[r], shapes[i][0], shapes[i][1], t,
                                 t == DT_F32   ? 0
                                 : t == DT_F16 ? 0x1p-11
                                               : 0x1p-8);
    close_side(g), close_side(c);
}

static void without_tensor_cores_linear_has_the_bits_of_the_cpu(void **state)
{
    (void)state;
    struct side g = open_side(gpu, (uint64_t)~TENSOR), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++) {
        check_linear(g, c, 3, 70, 130, t, 0);
        check_linear(g, c, 66, 65, 77, t, 0);
    }
    close_side(g), close_side(c);
}

static void a_row_of_linear_does_not_depend_on_the_others(void **state)
{
    (void)state;
    enum { N = 150, K = 580, ROWS = 140 };
    static const uint32_t rows[] = {2, 8, 9, 16, 17, 31, 32, 33, 128, 140};
    float *w = units(N * K), *x = units(ROWS * K), *bias = units(N);
    for (int sms = 1; sms <= 132; sms += 131) /* slices one after the other, side by side */
        for (enum dtype t = 0; t < DT_N; t++) {
            if (machine)
                machine->sms = sms;
            struct side g = open_side(gpu, ~0ull);
            struct weight *gw = load(g, w, N, K, t);
            float *want = malloc(ROWS * N * 4);
            for (uint32_t r = 0; r < ROWS; r++) {
                float *one = linear(g, x + r * K, 1, gw, N, K, bias);
                memcpy(want + r * N, one, N * 4);
                free(one);
            }
            for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                uint32_t first = rng_below(&rng, ROWS - rows[i] + 1);
                float *got = linear(g, x + first * K, rows[i], gw, N, K, bias);
                if (memcmp(got, want + first * N, (size_t)rows[i] * N * 4))
                    fail_msg("%s, %u rows, %d multiprocessors: other bits", dtype_name(t), rows[i],
                             sms);
                free(got);
            }
            g.ops->weight_free(g.d, gw);
            close_side(g);
            free(want);
        }
    free(w), free(x), free(bias);
}

static void a_weight_may_be_stacked_strided_and_of_any_type(void **state)
{
    (void)state;
    struct side g = open_side(gpu, (uint64_t)~TENSOR);
    struct err e = ERR_INIT;
    enum { K = 37, A = 19, B = 30 };
    float *a = units(A * K), *b = units(B * K), eye[K * K] = {0};
    uint16_t bt[K * B]; /* transposed bf16 */
    for (int i = 0; i < B * K; i++)
        bt[i % K * B + i / K] = bf16_of_f32(b[i]);
    for (int k = 0; k < K; k++)
        eye[k * K + k] = 1;
    struct mat_part parts[] = {{a, DT_F32, A, K, K, 1}, {bt, DT_BF16, B, K, 1, B}};
    struct weight *w = g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16}, &e);
    assert_non_null(w);
    float *y = linear(g, eye, K, w, A + B, K, (float[A + B]){0});
    for (int k = 0; k < K; k++)
        for (int i = 0; i < A + B; i++) {
            float v = i < A ? a[i * K + k] : b[(i - A) * K + k];
            assert_true(y[k * (A + B) + i] == f32_of_bf16(bf16_of_f32(v)));
        }
    free(y);
    assert_int_equal(g.ops->weight_bytes(w), (A + B) * 64 * 2);
    g.ops->weight_free(g.d, w);
    assert_null(g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16, QUANT_INT8}, &e));
    assert_string_equal(e.msg,
                        "the CUDA backend has no quantised weights yet: leave out --quantize");
    parts[1].cols = K - 1;
    assert_null(g.ops->weight_load(g.d, &(struct mat_desc){parts, 2, DT_BF16}, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    free(a), free(b);
    close_side(g);
}

/* ---------------------------------------------------------------- rows */

static void assert_near(const float *got, const float *want, size_t n, double within,
                        const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= within * (1 + fabs(want[i]))))
            fail_msg("%s: element %zu is %.9g, the CPU's is %.9g", what, i, got[i], want[i]);
}

enum row_op { NORM, LAYER_NORM, ADD_NORM, ADD, ACT, ACT_MUL, SCALE, CAP, N_ROW_OPS };

static float *run_rows(struct side s, enum row_op op, uint32_t rows, uint32_t n, const float *x,
                       const float *r, const float *w)
{
    size_t bytes = (size_t)rows * n * 4;
    float *out = malloc(bytes), *dx = up(s, x, 2 * bytes), *dr = up(s, r, bytes);
    float *dw = up(s, w, 2 * n * 4), *dy = up(s, NULL, bytes);
    struct norm p = {op == LAYER_NORM ? NORM_LAYER : NORM_RMS, dw, op == NORM ? NULL : dw + n,
                     1e-5f};
    switch (op) {
    case NORM:
    case LAYER_NORM:
        s.ops->norm(s.d, dy, dx, rows, n, &p);
        break;
    case ADD_NORM:
        s.ops->add_norm(s.d, dy, dx, dr, 0.7f, rows, n, &p);
        break;
    case ADD:
        s.ops->add_norm(s.d, dy, dx, dr, 0.7f, rows, n, NULL);
        break;
    case ACT:
        s.ops->act(s.d, dx, rows, n, ACT_GELU);
        break;
    case ACT_MUL:
        s.ops->act_mul(s.d, dy, dx, rows, n, ACT_SILU);
        break;
    default:
        s.ops->logit_scale(s.d, dx, rows, n, 0.3f, op == CAP ? 2.0f : 0);
    }
    bool in_place = op == ADD || op == ACT || op == SCALE || op == CAP;
    down(s, out, in_place ? dx : dy, bytes);
    s.ops->free(s.d, in_place ? dy : dx), s.ops->free(s.d, dr), s.ops->free(s.d, dw);
    return out;
}

static void operations_on_rows_are_right(void **state)
{
    (void)state;
    static const uint32_t widths[] = {1, 31, 256, 300, 2049};
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (int op = 0; op < N_ROW_OPS; op++)
        for (size_t i = 0; i < sizeof(widths) / sizeof(*widths); i++) {
            uint32_t n = widths[i], rows = 1 + rng_below(&rng, 5);
            float *x = rng_floats(&rng, 2 * (size_t)rows * n), *r = units((size_t)rows * n);
            float *w = units(2 * (size_t)n);
            float *got = run_rows(g, op, rows, n, x, r, w);
            float *want = run_rows(c, op, rows, n, x, r, w);
            if (op <= ADD_NORM)
                assert_near(got, want, (size_t)rows * n, 2e-5, "norm");
            else if (memcmp(got, want, (size_t)rows * n * 4)) /* one number at a time: no excuse */
                fail_msg("operation %d, %u x %u: not the bits of the CPU", op, rows, n);
            free(x), free(r), free(w), free(got), free(want);
        }
    close_side(g), close_side(c);
}

static void embed_once(struct side s, const float *table, enum dtype t, float *out, float *picked)
{
    enum { N = 45, V = 20, T = 6 };
    static const uint32_t ids[T] = {7, 3, 26, 9, 100, 7}, pos[T] = {0, 1, 2, 5, 6, 17};
    static const uint32_t out_rows[] = {1, 5};
    struct err e = ERR_INIT;
    const struct span span = {.n = T};
    const struct ragged b = {T, 1, 2, ids, pos, pos, &span, out_rows};
    struct weight *w = load(s, table, V, N, t);
    float *y = up(s, NULL, T * N * 4), *z = up(s, NULL, 2 * N * 4);
    assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
    s.ops->embed(s.d, y, w, 7, 1.5f);
    s.ops->embed_pos(s.d, y, w, 2);
    s.ops->gather_out(s.d, z, y, N);
    assert_int_equal(s.ops->step_end(s.d, &e), 0);
    down(s, out, y, T * N * 4);
    down(s, picked, z, 2 * N * 4);
    s.ops->weight_free(s.d, w);
}

static void embedding_and_gathering_are_right(void **state)
{
    (void)state;
    float *table = units(20 * 45), a[6 * 45], b[6 * 45], pa[90], pb[90];
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (enum dtype t = 0; t < DT_N; t++) {
        embed_once(g, table, t, a, pa);
        embed_once(c, table, t, b, pb);
        assert_memory_equal(a, b, sizeof(a));
        assert_memory_equal(pa, pb, sizeof(pa));
        assert_memory_equal(pa, a + 45, 45 * 4);
    }
    free(table);
    close_side(g), close_side(c);
}

/* ---------------------------------------------------------------- attention */

static const float slopes[16] = {.5f, .25f, .125f, .0625f, .03125f, .4f, .3f, .2f,
                                 .1f, .05f, .02f,  .01f,   .7f,     .6f, .9f, .8f};
struct attn_case {
    struct attn attn;
    uint32_t len, block_size;
    enum dtype dtype;
    bool norm, interleaved;
};
static const struct attn_case attn_cases[] = {
    {{8, 2, 64, 0.125f, 0, 0, NULL}, 300, 16, DT_BF16, false, false},
    {{4, 4, 48, 0.144f, 0, 0, NULL}, 70, 32, DT_F32, true, true},
    {{4, 1, 128, 0.088f, 0, 40, NULL}, 150, 16, DT_F16, true, false},
    {{6, 1, 80, 0.11f, 20.0f, 33, NULL}, 200, 16, DT_BF16, false, true},
    {{16, 1, 18, 0.2f, 0, 0, slopes}, 130, 16, DT_F32, false, false},
    {{3, 3, 7, 0.3f, 5.0f, 0, slopes}, 40, 16, DT_F16, false, false},
    {{14, 2, 64, 0.125f, 10.0f, 0, slopes}, 140, 64, DT_F16, false, false},
    {{2, 2, 128, 0.0884f, 0, 0, NULL}, 260, 32, DT_BF16, false, false},
};

struct sequence {
    struct attn_case c;
    uint32_t rot;
    float *qkv, *rope, *norms;
};

static size_t qkv_width(const struct attn *a)
{
    return (size_t)(a->n_heads + 2 * a->n_kv_heads) * a->head_dim;
}

static struct sequence sequence_new(const struct attn_case *c)
{
    struct sequence s = {*c, c->attn.head_dim / 2 & ~1u, NULL, NULL, NULL};
    s.qkv = units(c->len * qkv_width(&c->attn));
    s.norms = units(2 * (size_t)c->attn.head_dim);
    s.rope = units((size_t)c->len * s.rot + 1);
    return s;
}

static void sequence_free(struct sequence *s) { free(s->qkv), free(s->rope), free(s->norms); }

/* What a step of one sequence adds to a batch. */
struct feed {
    struct ragged b;
    struct span spans[8];
    uint32_t *pos, *slots;
    float *qkv, *rope;
};

static void feed_add(struct feed *f, const struct sequence *s, const uint32_t *table, uint32_t at,
                     uint32_t n)
{
    size_t width = qkv_width(&s->c.attn);
    uint32_t size = s->c.block_size;
    if (!n)
        return;
    f->spans[f->b.n_spans++] = (struct span){f->b.n_tokens, n, at + n, table, 0};
    for (uint32_t i = at; i < at + n; i++, f->b.n_tokens++) {
        uint32_t t = f->b.n_tokens;
        f->pos[t] = i;
        f->slots[t] = table[i / size] * size + i % size;
        memcpy(f->qkv + t * width, s->qkv + i * width, width * 4);
        memcpy(f->rope + (size_t)t * s->rot, s->rope + (size_t)i * s->rot, s->rot * 4);
    }
}

static void run_step(struct side s, const struct sequence *q, struct kv_cache *kv, struct feed *f,
                     float *norms, float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim, t = f->b.n_tokens;
    float *qkv = up(s, f->qkv, t * width * 4), *rope = up(s, f->rope, t * q->rot * 4);
    float *res = up(s, NULL, t * out * 4), *alibi = up(s, a->alibi, a->n_heads * 4);
    struct attn dev = *a;
    dev.alibi = a->alibi ? alibi : NULL;
    struct rope_kv rk = {a->n_heads,
                         a->n_kv_heads,
                         a->head_dim,
                         q->rot,
                         q->c.interleaved,
                         rope,
                         q->c.norm ? norms : NULL,
                         q->c.norm ? norms + a->head_dim : NULL,
                         1e-6f};
    f->b.pos = f->pos, f->b.slots = f->slots, f->b.spans = f->spans;
    if (s.ops->step_begin(s.d, &f->b, &e))
        fail_msg("%s", e.msg);
    s.ops->rope_kv(s.d, qkv, kv, 1, &rk);
    s.ops->attention(s.d, res, qkv, (uint32_t)width, kv, 1, &dev);
    if (s.ops->step_end(s.d, &e))
        fail_msg("%s", e.msg);
    down(s, o, res, t * out * 4);
    s.ops->free(s.d, qkv), s.ops->free(s.d, rope), s.ops->free(s.d, alibi);
}

/* Feed the sequence in chunks, behind `beside` shorter copies of itself; o: [len][heads * dim]. */
static void run_sequence(struct side s, const struct sequence *q, uint32_t chunk, uint32_t beside,
                         float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    uint32_t len = q->c.len, size = q->c.block_size, n_blocks = (len + size - 1) / size;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim;
    uint32_t all = (beside + 1) * n_blocks, most = (beside + 1) * len;
    struct kv_desc kd = {2, all + 3, size, a->n_kv_heads, a->head_dim, (enum kv_dtype)q->c.dtype};
    struct kv_cache *kv = s.ops->kv_new(s.d, &kd, &e);
    if (!kv)
        fail_msg("%s", e.msg);
    uint32_t *blocks = malloc(all * 4);
    struct feed f = {.pos = malloc(most * 4), .slots = malloc(most * 4)};
    f.qkv = malloc(most * width * 4), f.rope = malloc((size_t)most * q->rot * 4 + 4);
    float *res = malloc(most * out * 4), *norms = up(s, q->norms, 2 * (size_t)a->head_dim * 4);
    for (uint32_t i = 0; i < all; i++)
        blocks[i] = all - i + 1; /* neither the first nor in order */
    for (uint32_t at = 0; at < len; at += chunk) {
        f.b = (struct ragged){0};
        for (uint32_t i = 0; i <= beside; i++) {
            uint32_t end = i == beside ? len : len / (i + 2);
            feed_add(&f, q, blocks + i * n_blocks, at,
                     at >= end          ? 0
                     : end - at < chunk ? end - at
                                        : chunk);
        }
        run_step(s, q, kv, &f, norms, res);
        const struct span *last = &f.spans[f.b.n_spans - 1];
        memcpy(o + at * out, res + last->first * out, last->n * out * 4);
    }
    s.ops->free(s.d, norms);
    s.ops->kv_free(s.d, kv);
    free(blocks), free(f.pos), free(f.slots), free(f.qkv), free(f.rope), free(res);
}

static size_t o_count(const struct attn_case *c)
{
    return (size_t)c->len * c->attn.n_heads * c->attn.head_dim;
}

static void attention_is_right(void **state)
{
    (void)state;
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    for (size_t i = 0; i < sizeof(attn_cases) / sizeof(*attn_cases); i++) {
        const struct attn_case *k = &attn_cases[i];
        struct sequence s = sequence_new(k);
        size_t n = o_count(k);
        float *got = malloc(n * 4), *want = malloc(n * 4);
        run_sequence(g, &s, k->len, 0, got);
        struct sequence other = s; /* the CPU backend's blocks begin at 16 */
        other.c.block_size = k->block_size < 16 ? 16 : k->block_size;
        run_sequence(c, &other, k->len, 0, want);
        /* tensor cores round q and the weights to the cache's type */
        assert_near(got, want, n,
                    k->dtype == DT_F32   ? 1e-5
                    : k->dtype == DT_F16 ? 2e-3
                                         : 1.2e-2,
                    "attention");
        free(got), free(want);
        sequence_free(&s);
    }
    close_side(g), close_side(c);
}

static void attention_is_bitwise_the_same_however_it_is_cut(void **state)
{
    (void)state;
    static const uint32_t chunks[] = {1, 7, 33, 64};
    for (size_t i = 0; i < sizeof(attn_cases) / sizeof(*attn_cases); i++) {
        const struct attn_case *k = &attn_cases[i];
        struct sequence s = sequence_new(k);
        size_t bytes = o_count(k) * 4;
        float *want = malloc(bytes), *got = malloc(bytes);
        struct side g = open_side(gpu, ~0ull);
        run_sequence(g, &s, k->len, 0, want);
        close_side(g);
        for (uint32_t j = 0; j < 4; j++) {
            if (machine) /* few: large batches are not split; many: they are */
                machine->sms = j % 2 ? 1 : 132;
            g = open_side(gpu, j == 2 ? TENSOR : ~0ull);
            run_sequence(g, &s, chunks[j], j, got);
            close_side(g);
            if (memcmp(want, got, bytes))
                fail_msg("case %zu: chunks of %u beside %u give other bits", i, chunks[j], j);
        }
        free(want), free(got);
        sequence_free(&s);
    }
}

static void a_copied_block_reads_the_same(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct side g = open_side(gpu, ~0ull);
    struct attn_case k = {{4, 2, 64, 0.2f, 0, 0, NULL}, 16, 16, DT_F16, false, false};
    struct sequence s = sequence_new(&k);
    struct kv_desc kd = {3, 9, 16, 2, 64, KV_F16};
    struct kv_cache *kv = g.ops->kv_new(g.d, &kd, &e);
    assert_non_null(kv);
    assert_int_equal(g.ops->kv_block_bytes(&kd), 3 * 2 * 16 * 2 * 64 * 2);
    uint32_t pos[16], slots[16], blocks[3] = {1, 5, 7};
    float o[3][256], all[16 * 256], *qkv = malloc(16 * 512 * 4), *rope = malloc(16 * 32 * 4);
    struct feed f = {.pos = pos, .slots = slots, .qkv = qkv, .rope = rope};
    feed_add(&f, &s, &blocks[0], 0, 16);
    run_step(g, &s, kv, &f, NULL, all);
    /* a chain: 5 takes what 1 had, 7 what 5 had then */
    assert_int_equal(g.ops->kv_copy(g.d, kv, (uint32_t[]){1, 5, 2}, (uint32_t[]){5, 7, 2}, 3, &e),
                     0);
    for (int i = 0; i < 3; i++) {
        f.b = (struct ragged){0};
        feed_add(&f, &s, &blocks[i], 15, 1);
        run_step(g, &s, kv, &f, NULL, o[i]);
        assert_memory_equal(o[i], o[0], sizeof(o[0]));
    }
    assert_memory_equal(o[0], all + 15 * 256, sizeof(o[0]));
    assert_int_equal(g.ops->kv_copy(g.d, kv, blocks, &(uint32_t){9}, 1, &e), -1);
    /* out to the host, and back into another block */
    size_t bytes = 3 * g.ops->kv_block_bytes(&kd);
    void *host = g.ops->host_alloc(g.d, bytes, &e);
    assert_int_equal(g.ops->kv_read(g.d, kv, blocks, host, (uint32_t[]){2, 0}, 2, &e), 0);
    assert_int_equal(g.ops->kv_write(g.d, kv, (uint32_t[]){8, 3}, host, (uint32_t[]){2, 0}, 2, &e),
                     0);
    for (uint32_t i = 0, moved = 8; i < 2; i++, moved = 3) {
        f.b = (struct ragged){0};
        feed_add(&f, &s, &moved, 15, 1);
        run_step(g, &s, kv, &f, NULL, o[i]);
        assert_memory_equal(o[i], all + 15 * 256, sizeof(o[0]));
    }
    g.ops->host_free(g.d, host, bytes);
    kd.block_size = 8;
    assert_null(g.ops->kv_new(g.d, &kd, &e)); /* another size while this one is there */
    kd.block_size = 24;
    assert_null(g.ops->kv_new(g.d, &kd, &e));
    assert_int_equal(e.kind, ERR_VALIDATION);
    g.ops->kv_free(g.d, kv);
    free(qkv), free(rope);
    sequence_free(&s);
    close_side(g);
}

/* ---------------------------------------------------------------- mixture of experts */

enum { EXPERTS = 6, HIDDEN = 70, FFN = 40 };

static float *run_moe(struct side s, const float *w, enum dtype t, uint32_t rows, const float *x,
                      bool renormalise)
{
    struct weight *router = load(s, w, EXPERTS, HIDDEN, DT_F32), *upw[EXPERTS], *downw[EXPERTS];
    w += EXPERTS * HIDDEN;
    for (int i = 0; i < EXPERTS; i++, w += 3 * FFN * HIDDEN) {
        upw[i] = load(s, w, 2 * FFN, HIDDEN, t);
        downw[i] = load(s, w + 2 * FFN * HIDDEN, HIDDEN, FFN, t);
    }
    struct moe m = {router, upw, downw, EXPERTS, 3, renormalise, ACT_SILU};
    float *out = malloc(rows * HIDDEN * 4);
    float *dx = up(s, x, rows * HIDDEN * 4), *dy = up(s, NULL, rows * HIDDEN * 4);
    s.ops->moe(s.d, dy, dx, rows, &m);
    down(s, out, dy, rows * HIDDEN * 4);
    s.ops->free(s.d, dx);
    s.ops->weight_free(s.d, router);
    for (int i = 0; i < EXPERTS; i++)
        s.ops->weight_free(s.d, upw[i]), s.ops->weight_free(s.d, downw[i]);
    return out;
}

static void mixtures_are_right_and_rows_independent(void **state)
{
    (void)state;
    enum { ROWS = 21 };
    struct side g = open_side(gpu, ~0ull), c = open_side(cpu, ~0ull);
    float *w = units(EXPERTS * HIDDEN + (size_t)EXPERTS * 3 * FFN * HIDDEN);
    float *x = units(ROWS * HIDDEN);
    for (size_t i = 0; i < (size_t)EXPERTS * 3 * FFN * HIDDEN; i++)
        w[EXPERTS * HIDDEN + i] *= 0.2f;
    for (enum dtype t = 0; t < DT_N; t++) {
        float *got = run_moe(g, w, t, ROWS, x, t), *want = run_moe(c, w, t, ROWS, x, t);
        if (t == DT_F32)
            assert_memory_equal(got, want, ROWS * HIDDEN * 4);
        assert_near(got, want, ROWS * HIDDEN, t == DT_BF16 ? 2e-2 : 2e-3, "moe");
        for (int r = 0; r < ROWS; r += 5) {
            float *one = run_moe(g, w, t, 1, x + r * HIDDEN, t);
            assert_memory_equal(one, got + r * HIDDEN, HIDDEN * 4);
            free(one);
        }
        free(got), free(want);
    }
    free(w), free(x);
    close_side(g), close_side(c);
}

/* ---------------------------------------------------------------- replay */

/* Decode `steps` tokens of a sequence, one a step, activations in the same memory each time. */
static void decode(struct side s, const struct sequence *q, uint32_t steps, float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim;
    uint32_t blocks[64], pos, slot, size = q->c.block_size, row = 0, id = 0;
    struct kv_desc kd = {2, 64, size, a->n_kv_heads, a->head_dim, (enum kv_dtype)q->c.dtype};
    struct kv_cache *kv = s.ops->kv_new(s.d, &kd, &e);
    float *qkv = up(s, NULL, width * 4), *rope = up(s, NULL, q->rot * 4);
    float *res = up(s, NULL, out * 4), *picked = up(s, NULL, out * 4);
    for (uint32_t i = 0; i < 64; i++)
        blocks[i] = 63 - i;
    for (uint32_t i = 0; i < steps; i++) {
        pos = i, slot = blocks[i / size] * size + i % size;
        struct span span = {0, 1, i + 1, blocks, 0};
        struct ragged b = {1, 1, 1, &id, &pos, &slot, &span, &row};
        struct rope_kv rk = {a->n_heads, a->n_kv_heads, a->head_dim, q->rot, false, rope, 0, 0, 0};
        assert_int_equal(s.ops->upload(s.d, qkv, q->qkv + i * width, width * 4, &e), 0);
        assert_int_equal(s.ops->upload(s.d, rope, q->rope + (size_t)i * q->rot, q->rot * 4, &e), 0);
        assert_int_equal(s.ops->step_begin(s.d, &b, &e), 0);
        s.ops->rope_kv(s.d, qkv, kv, 0, &rk);
        s.ops->attention(s.d, res, qkv, (uint32_t)width, kv, 0, a);
        s.ops->gather_out(s.d, picked, res, (uint32_t)out);
        if (s.ops->step_end(s.d, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(s.ops->download(s.d, o + i * out, picked, out * 4, &e), 0);
    }
    s.ops->free(s.d, qkv), s.ops->free(s.d, rope), s.ops->free(s.d, res), s.ops->free(s.d, picked);
    s.ops->kv_free(s.d, kv);
}

static void a_replayed_step_is_the_step(void **state)
{
    (void)state;
    struct attn_case k = {{8, 2, 64, 0.125f, 0, 0, NULL}, 200, 16, DT_BF16, false, false};
    struct sequence s = sequence_new(&k);
    float *plain = malloc(o_count(&k) * 4), *graphs = malloc(o_count(&k) * 4);
    struct side g = open_side(gpu, TENSOR);
    decode(g, &s, k.len, plain);
    close_side(g);
    g = open_side(gpu, TENSOR | GRAPHS | OVERLAP);
    uint64_t before = machine ? machine->graph_launches : 0;
    decode(g, &s, k.len, graphs);
    /* grids of one and of two segments: each is run once, then captured */
    if (machine && !getenv("CUDA_FEATURES"))
        assert_int_equal(machine->graph_launches - before, k.len - 2);
    close_side(g);
    assert_memory_equal(plain, graphs, o_count(&k) * 4);
    free(plain), free(graphs);
    sequence_free(&s);
}

/* ---------------------------------------------------------------- what only the double can show */

static void no_result_depends_on_the_order_of_threads(void **state)
{
    (void)state;
    if (!machine)
        skip();
    float want[9 * 70], *w = units(70 * 130), *x = units(40 * 130), *bias = units(70);
    for (size_t i = 0; i < sizeof(attn_cases) / sizeof(*attn_cases); i++) {
        struct attn_case k = attn_cases[i];
        k.len = k.len < 70 ? k.len : 70;
        struct sequence s = sequence_new(&k);
        float *a = malloc(o_count(&k) * 4), *b = malloc(o_count(&k) * 4);
        for (uint32_t seed = 0; seed < 3; seed++) {
            machine->shuffle = seed * 77;
            struct side g = open_side(gpu, ~0ull);
            run_sequence(g, &s, 41, 1, seed ? b : a);
            if (seed)
                assert_memory_equal(a, b, o_count(&k) * 4);
            struct weight *gw = load(g, w, 70, 130, i % 2 ? DT_BF16 : DT_F16);
            float *y = linear(g, x, i % 2 ? 9 : 40, gw, 70, 130, bias);
            if (!seed)
                memcpy(want, y, sizeof(want));
            assert_memory_equal(y, want, sizeof(want));
            free(y);
            g.ops->weight_free(g.d, gw);
            close_side(g);
        }
        machine->shuffle = 0;
        free(a), free(b);
        sequence_free(&s);
    }
    free(w), free(x), free(bias);
}

static void every_refusal_says_why(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    if (!machine)
        skip();
    machine->driver = 0;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "no NVIDIA driver"));
    machine->driver = 12040;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "supports CUDA 12.4, this program needs 13.0"));
    machine->driver = 13000, machine->devices = 0;
    assert_int_equal(plugin->available(&e), -1);
    assert_non_null(strstr(e.msg, "no GPU is visible"));
    machine->devices = 2;
    assert_null(gpu->open(&(struct device_options){.index = 2, .features = ~0ull}, &e));
    assert_string_equal(e.msg, "GPU 2: there are 2, numbered from 0");
    machine->devices = 1, machine->major = 7;
    assert_null(gpu->open(&(struct device_options){.features = ~0ull}, &e));
    assert_non_null(strstr(e.msg, "compute capability 7.0; 8.0 or later is needed"));
    machine->major = 9;
    struct side g = open_side(gpu, ~0ull);
    struct kv_desc kd = {32, 100000, 16, 8, 128, KV_BF16};
    assert_null(g.ops->kv_new(g.d, &kd, &e));
    assert_non_null(strstr(e.msg, "no memory for a KV cache of 100000 blocks: 195.31 GiB are"));
    assert_non_null(strstr(e.msg, "lower --kv-cache-memory"));
    close_side(g);
    assert_null(backend_plugin_load("/no/such/backend-cuda.so", &e));
    assert_non_null(strstr(e.msg, "/no/such/backend-cuda.so"));
    assert_null(backend_plugin_load("libm.so.6", &e));
    assert_non_null(strstr(e.msg, "is not of this build"));
}

static int use_all(struct side g, const float *w, struct err *e)
{
    struct mat_part part = {w, DT_F32, 40, 40, 40, 1};
    struct kv_desc kd = {2, 4, 16, 2, 64, KV_BF16};
    struct weight *m = g.ops->weight_load(g.d, &(struct mat_desc){&part, 1, DT_BF16}, e);
    float *v = m ? g.ops->vector_load(g.d, &part, 1, e) : NULL, *y = NULL;
    struct kv_cache *kv = v ? g.ops->kv_new(g.d, &kd, e) : NULL;
    uint32_t pos[20] = {0}, blocks[2] = {0, 1};
    struct span span = {0, 20, 20, blocks, 0};
    struct ragged b = {20, 1, 0, pos, pos, pos, &span, pos};
    int rc = kv && (y = g.ops->alloc(g.d, 4000, e)) ? g.ops->step_begin(g.d, &b, e) : -1;
    if (rc == 0) {
        g.ops->linear(g.d, y, v, 20, m, NULL);
        rc = g.ops->step_end(g.d, e);
    }
    g.ops->weight_free(g.d, m);
    g.ops->free(g.d, v), g.ops->free(g.d, y);
    g.ops->kv_free(g.d, kv);
    return rc;
}

/* Let the n-th allocation fail, for n = 0, 1, 2 ... until all goes well. */
static void a_failed_allocation_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    if (!machine)
        skip();
    float *w = units(40 * 40);
    int n = 0, rc = -1;
    for (; rc && n < 100; n++) {
        struct err e = ERR_INIT;
        struct side g = open_side(gpu, ~0ull);
        machine->fail_after = n;
        rc = use_all(g, w, &e);
        machine->fail_after = -1;
        if (rc)
            assert_non_null(strstr(e.msg, "GPU 0: no memory for "));
        close_side(g);
    }
    assert_in_range(n, 5, 50);
    free(w);
}

int main(void)
{
    const char *path = getenv("BACKEND_CUDA"), *stand_in = getenv("CUDA_DOUBLE");
    struct err e = ERR_INIT;
    rng = rng_new();
    if (!path && !stand_in) {
        printf("skipped: 14 cases (no GPU plugin is given, and the double runs on x86-64 only)\n");
        return 0;
    }
    if (!(plugin = backend_plugin_load(path ? path : stand_in, &e)) || plugin->available(&e)) {
        fprintf(stderr, "%s\n", e.msg);
        return 1;
    }
    gpu = plugin->ops;
    void *so = dlopen(path ? path : stand_in, RTLD_NOW);
    struct cuda_double *(*get)(void);
    *(void **)&get = dlsym(so, "cuda_double");
    machine = get ? get() : NULL;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_right),
        cmocka_unit_test(without_tensor_cores_linear_has_the_bits_of_the_cpu),
        cmocka_unit_test(a_row_of_linear_does_not_depend_on_the_others),
        cmocka_unit_test(a_weight_may_be_stacked_strided_and_of_any_type),
        cmocka_unit_test(operations_on_rows_are_right),
        cmocka_unit_test(embedding_and_gathering_are_right),
        cmocka_unit_test(attention_is_right),
        cmocka_unit_test(attention_is_bitwise_the_same_however_it_is_cut),
        cmocka_unit_test(a_copied_block_reads_the_same),
        cmocka_unit_test(mixtures_are_right_and_rows_independent),
        cmocka_unit_test(a_replayed_step_is_the_step),
        cmocka_unit_test(no_result_depends_on_the_order_of_threads),
        cmocka_unit_test(every_refusal_says_why),
        cmocka_unit_test(a_failed_allocation_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

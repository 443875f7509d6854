/* test_attention.c - attention and its cache on the CPU backend: against double precision, and the
 * promise that a row's bits depend on what its token sees and on nothing else: not on batch,
 * chunks, block table, block size, threads or instruction set, nor on what other sequences left in
 * a block. */
#include "tests/check/attention_rig.h"

/* How the device multiplies, whether this CPU is fast at it or not. */
static enum form { IN_VECTORS, IN_QUADS, IN_PAIRS, IN_SQUARES, IN_PARTS } form;
static unsigned features; /* of this CPU */

static void look_at_cpu(void)
{
    struct device *d = device(1, ~0ull);
    features = d->features;
    ops->close(d);
}

/* This CPU has no instruction for it. */
static bool emulated(void)
{
    return form > IN_QUADS && !(features & (form == IN_PAIRS ? CPU_AVX512_BF16 : CPU_AMX_BF16));
}

static struct device *attn_device(int threads, uint64_t allowed)
{
    struct device *d = device(threads, allowed);
    d->kv[false] = (struct kv_products){.quads = form == IN_QUADS,
                                        .pairs = form == IN_PAIRS,
                                        .squares = form == IN_SQUARES ? 1
                                                   : form == IN_PARTS ? SQUARE_PARTS
                                                                      : 0};
    return d;
}

static const float slopes[16] = {.5f, .25f, .125f, .0625f, .03125f, .4f, .3f, .2f,
                                 .1f, .05f, .02f,  .01f,   .7f,     .6f, .9f, .8f};
static const float sinks[16] = {0,    1.5f,  -2, 4, 9,  -30, .5f,       -.25f,
                                2.5f, -1e3f, 88, 3, -4, .1f, -INFINITY, 1};
/* ---------------------------------------------------------------- the cases */

struct attn_case {
    struct attn attn;
    uint32_t len, block_size;
};
static const struct attn_case attn_cases[] = {
    {{4, 1, 64, 0.125f}, 1100, 16},
    {{4, 4, 48, 0.144f}, 70, 32},
    {{7, 1, 64, 0.125f, 0, 100}, 650, 64},
    {{6, 1, 80, 0.11f, 20.0f, 33}, 600, 16},
    {{16, 1, 18, 0.2f, 0, .alibi = slopes}, 130, 16},
    {{3, 3, 7, 0.3f, 5.0f, .alibi = slopes}, 40, 16},
    {{2, 1, 256, 0.0625f, 50.0f, 0}, 530, 1024},
    {{2, 1, 1088, 0.03f, 0, 100}, 280, 16}, /* the widest */
    {{5, 5, 96, 0.1f, 0, 5}, 300, 16},
    {{9, 3, 128, 0.09f, 0, 1}, 60, 16},
    {{8, 1, 64, 0.125f, 0, 0, .sinks = sinks}, 600, 16},
    {{16, 2, 64, 0.125f, 0, 128, .sinks = sinks}, 530, 16},
    {{3, 3, 32, 0.17f, 0, 0, .both = true}, 512, 16},
    {{6, 2, 64, 0.125f, 0, 65, .both = true}, 700, 16},
    {{4, 1, 64, 0.125f, 0, 300, .sinks = sinks, .both = true}, 620, 32},
    {{3, 3, 20, 0.2f, 0, 1, .both = true}, 37, 16},
    {{3, 1, 64, 0.125f, 0, 65, .both = true, .ahead = 1}, 530, 16},
    {{4, 2, 32, 0.2f, 0, 6, .both = true, .ahead = 3}, 90, 16},
    {{4, 2, 64, 0.125f, .chunk = 100}, 650, 16}, /* runs that end within tiles and splits */
    {{6, 2, 32, 0.2f, .chunk = 1, .sinks = sinks}, 90, 32},
    {{4, 1, 64, 0.125f, .window = 40, .mutual = MUTUAL_TOO}, 650, 16},
    {{8, 4, 72, 0.125f, .softcap = 20, .mutual = MUTUAL_TOO}, 300, 32},
    {{4, 2, 64, 0.125f, .window = 40, .mutual = MUTUAL_AHEAD}, 530, 16},
    {{3, 3, 80, 0.11f, .both = true, .mutual = MUTUAL_ALONE}, 530, 16},
    {{4, 4, 64, 1.0f, .near = nears, .reach = NEAR_REACH}, 530, 16},
    {{4, 2, 24, 0.3f, .near = nears, .reach = NEAR_REACH}, 90, 32},
    {{3, 3, 64, 0.3f, .near = nears, .reach = NEAR_REACH, .both = true}, 300, 16},
};
enum { N_FIXED = sizeof(attn_cases) / sizeof(*attn_cases), N_RANDOM = 14 };

/* One of the table, then at random. */
static struct attn_case any_case(uint32_t c)
{
    static const uint32_t dims[] = {64, 80, 96, 128, 256, 0};
    if (c < N_FIXED)
        return attn_cases[c];
    uint32_t group = 1 + c % 9, heads = 1 + rng_below(&rng, 2), dim = dims[rng_below(&rng, 6)];
    struct attn_case k = {.attn = {.n_heads = group * heads, .n_kv_heads = heads}};
    k.attn.head_dim = dim ? dim : 1 + rng_below(&rng, 140);
    k.attn.scale = 1 / sqrtf((float)k.attn.head_dim);
    k.attn.softcap = rng_below(&rng, 3) ? 0 : 10;
    k.attn.window = rng_below(&rng, 2) ? 0 : 1 + rng_below(&rng, 400);
    k.attn.alibi = rng_below(&rng, 4) || group * heads > 16 ? NULL : slopes;
    k.attn.sinks = rng_below(&rng, 3) || group * heads > 16 ? NULL : sinks;
    k.attn.both = !k.attn.alibi && rng_below(&rng, 3) == 0;
    k.len = 1 + rng_below(&rng, 700);
    k.block_size = 16u << rng_below(&rng, 4);
    return k;
}

/* Case number c. What is emulated in plain C takes minutes for long sequences: then one in ten
 * crosses the end of a split, and the others are short. */
static struct attn_case pick(uint32_t c)
{
    struct attn_case k = any_case(c);
    const uint32_t most = !emulated() ? UINT32_MAX : c % 10 == 0 ? 262 : 40;
    k.len = k.len < most ? k.len : most;
    return k;
}

static struct sequence sequence_of(const struct attn_case *k, enum kv_dtype t)
{
    return sequence_new(k->attn, k->len, t, k->block_size);
}

/* Pictures are not cut. */
static uint32_t cut(const struct attn_case *k, uint32_t chunk)
{
    if (k->attn.both)
        return k->len;
    return k->attn.mutual ? (chunk + 127) / 128 * 128 : chunk;
}

static size_t out_bytes(const struct attn_case *k)
{
    return (size_t)k->len * k->attn.n_heads * k->attn.head_dim * 4;
}

/* ---------------------------------------------------------------- tests */

/* What is stored is known to the bit, so every type leaves only the rounding of fp32 sums. */
static const double TOLERANCE = 3e-5, ROUNDED = 8e-2, IN_8_BITS = 0.12;

/* The cache's type in case c: quads are for int4, squares for bfloat16, pairs for what it
 * represents. */
static enum kv_dtype type_of(uint32_t c)
{
    static const enum kv_dtype in_bf16[] = {KV_BF16, KV_I8, KV_FP8, KV_I4};
    if (form == IN_QUADS)
        return KV_I4;
    if (form == IN_PAIRS)
        return in_bf16[c % 4];
    return form ? KV_BF16 : (enum kv_dtype)(c % KV_N);
}

static void agrees_with_double_precision(double tolerance)
{
    struct device *d = attn_device(2, ~0ull);
    for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
        struct attn_case k = pick(c);
        enum kv_dtype type = type_of(c);
        struct sequence s = sequence_of(&k, type);
        size_t out = (size_t)k.attn.n_heads * k.attn.head_dim;
        float *o = malloc(out_bytes(&k));
        run_sequence(d, &s, k.len, false, o);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t t = i ? rng_below(&rng, k.len) : k.len - 1,
                     h = rng_below(&rng, k.attn.n_heads);
            double err = attention_error(&s, t, h, o + t * out + (size_t)h * k.attn.head_dim);
            if (!(err < tolerance))
                fail_msg("case %u, %s, token %u, head %u: off by %g", c, kv_dtype_name(type), t, h,
                         err);
        }
        free(o);
        sequence_free(&s);
    }
    ops->close(d);
}

TEST(attention_agrees_with_double_precision) { agrees_with_double_precision(TOLERANCE); }

TEST(squares_agree_with_double_precision)
{
    form = IN_PARTS;
    agrees_with_double_precision(TOLERANCE);
    form = IN_SQUARES; /* q and the weights have 8 bits */
    agrees_with_double_precision(ROUNDED);
    form = IN_VECTORS;
}

TEST(pairs_agree_with_double_precision)
{
    form = IN_PAIRS;
    agrees_with_double_precision(ROUNDED);
    form = IN_VECTORS;
}

TEST(quads_agree_with_double_precision)
{
    form = IN_QUADS;
    agrees_with_double_precision(IN_8_BITS);
    form = IN_VECTORS;
}

/* Plain C takes long: of sequences without tokens ahead it computes every third chunk. */
static void plain_is_the_same(uint32_t c, const struct attn_case *k, struct sequence *s,
                              const float *want)
{
    const uint32_t chunk = cut(k, 60);
    const size_t row = out_bytes(k) / k->len / sizeof(*want);
    float *got = malloc(out_bytes(k));
    struct device *d = attn_device(2, 0);
    s->every = 3;
    run_sequence(d, s, chunk, false, got);
    for (uint32_t at = 0; at < k->len; at += chunk) {
        const uint32_t n = k->len - at < chunk ? k->len - at : chunk;
        if (attended(s, chunk, at) && memcmp(want + at * row, got + at * row, n * row * 4))
            fail_msg("case %u, %s: the plain C kernels give other bits", c,
                     kv_dtype_name(s->dtype));
    }
    s->every = 0;
    ops->close(d);
    free(got);
}

static void same_however_it_is_cut(uint32_t c, struct attn_case *k, enum kv_dtype type)
{
    static const uint32_t chunks[] = {1, 7, 64, 513, 4096};
    struct sequence s = sequence_of(k, type);
    size_t bytes = out_bytes(k);
    float *want = malloc(bytes), *got = malloc(bytes);
    struct device *d = attn_device(1, ~0ull);
    run_sequence(d, &s, k->len, false, want);
    ops->close(d);
    for (uint32_t i = 0; i < 5; i++) {
        d = attn_device((int)i + 1, i == 2 && form <= IN_QUADS
                                        ? 1
                                        : ~0ull); /* the others are plain C on AVX2 */
        s.dirty = i == 1 || i == 3;
        s.block_size = i == 4 ? 16u << rng_below(&rng, 3) : k->block_size;
        run_sequence(d, &s, cut(k, chunks[i]), i & 1, got);
        ops->close(d);
        if (memcmp(want, got, bytes))
            fail_msg("case %u, %s: chunks of %u give other bits", c, kv_dtype_name(type),
                     chunks[i]);
    }
    if (c < N_FIXED || c % 4 == 0)
        plain_is_the_same(c, k, &s, want);
    free(want), free(got);
    sequence_free(&s);
}

TEST(attention_is_bitwise_the_same_however_it_is_cut)
{
    for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
        struct attn_case k = pick(c);
        for (enum kv_dtype t = 0; t < KV_N; t++)
            if (c < 4 || c % KV_N == t) /* every type on some, each case with some */
                same_however_it_is_cut(c, &k, t);
    }
}

TEST(squares_are_bitwise_the_same_however_they_are_cut)
{
    for (form = IN_PARTS; form >= IN_SQUARES; form--)
        for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
            struct attn_case k = pick(c);
            if (k.attn.head_dim % 32 || c % 2 != (form == IN_PARTS)) /* each in one of both */
                continue;
            k.len = k.len < 300 ? k.len : k.len / 2; /* the plain C kernels take long */
            same_however_it_is_cut(c, &k, KV_BF16);
        }
    form = IN_VECTORS;
}

TEST(pairs_are_bitwise_the_same_however_they_are_cut)
{
    form = IN_PAIRS;
    for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
        struct attn_case k = pick(c);
        k.len = k.len < 300 ? k.len : k.len / 2;
        same_however_it_is_cut(c, &k, type_of(c));
        if (c % 4 == 1)
            same_however_it_is_cut(c, &k, KV_BF16);
    }
    form = IN_VECTORS;
}

TEST(quads_are_bitwise_the_same_however_they_are_cut)
{
    form = IN_QUADS;
    for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
        struct attn_case k = pick(c);
        same_however_it_is_cut(c, &k, KV_I4);
    }
    form = IN_VECTORS;
}

/* Does the token at position `t` see position `key`? */
static bool sees(const struct attn *a, uint32_t t, uint32_t key)
{
    const uint32_t distance = key <= t ? t - key : key - t;
    const struct mutual m = mutual_at(a->mutual, t, UINT32_MAX);
    if (m.end && a->mutual == MUTUAL_AHEAD && key > t && key < m.end)
        return true;
    if (m.end && a->mutual != MUTUAL_AHEAD &&
        (a->mutual == MUTUAL_ALONE || (key >= m.begin && key < m.end)))
        return key >= m.begin && key < m.end;
    const uint32_t reach = a->window + (key > t ? a->ahead : 0);
    return (a->both || key <= t) && (!a->window || distance < reach) &&
           (!a->chunk || key / a->chunk == t / a->chunk);
}

/* A token whose key or value is not finite must be felt by those that see it, and by no other: not
 * by earlier rows of the same tile, not by rows whose window has passed it. */
static void broken_token(void)
{
    for (uint32_t c = 0; c < N_FIXED + N_RANDOM; c++) {
        struct attn_case k = pick(c);
        struct sequence s = sequence_of(&k, type_of(c));
        struct device *d =
            attn_device(1 + (int)(c & 1), c % 5 == 0 && form <= IN_QUADS ? 1 : ~0ull);
        size_t out = (size_t)k.attn.n_heads * k.attn.head_dim, width = qkv_width(&k.attn);
        float *clean = malloc(out_bytes(&k)), *got = malloc(out_bytes(&k));
        /* the first key of a split is the only one there that its own token sees */
        uint32_t bad = c % 3 == 1 && k.len > 256 ? 256 : rng_below(&rng, k.len),
                 n_k = k.attn.n_kv_heads * k.attn.head_dim;
        run_sequence(d, &s, k.len, false, clean);
        for (uint32_t i = 0; i < n_k; i++) /* values, or keys as well */
            s.qkv[(bad + 1) * width - 1 - i] = i % 2 ? NAN : INFINITY;
        for (uint32_t i = 0; c & 1 && i < n_k; i++)
            s.qkv[(bad + 1) * width - 1 - n_k - i] = NAN;
        run_sequence(d, &s, c & 2 ? cut(&k, 33) : k.len, c & 4, got);
        for (uint32_t t = 0; t < k.len; t++)
            for (size_t i = t * out; i < (t + 1) * out; i++)
                if (sees(&k.attn, t, bad) ? isfinite(got[i])
                                          : memcmp(&got[i], &clean[i], sizeof(*got)) != 0)
                    fail_msg("case %u: token %u, broken is %u, gives %g, not %g", c, t, bad, got[i],
                             clean[i]);
        free(clean), free(got);
        sequence_free(&s);
        ops->close(d);
    }
}

TEST(a_broken_token_reaches_only_those_that_see_it)
{
    broken_token();
    form = IN_QUADS;
    broken_token();
    form = IN_PAIRS;
    broken_token();
    form = IN_PARTS;
    broken_token();
    form = IN_VECTORS;
}

static void copied_block(enum kv_dtype t, size_t block_bytes)
{
    struct err e = ERR_INIT;
    struct device *d = device(2, ~0ull);
    struct kv_desc kd = {3, 5, 16, t, {2, 32, 32}};
    struct kv_cache *kv = ops->kv_new(d, &kd, &e);
    assert_non_null(kv);
    assert_int_equal(ops->kv_block_bytes(&kd), block_bytes);
    float *qkv = rng_floats(&rng, 16 * 6 * 32), q[64], o[2][64];
    uint32_t pos[16], slots[16], one_pos = 15, one_slot = 4 * 16 + 15, block = 1, copy = 3;
    for (uint32_t i = 0; i < 16; i++)
        pos[i] = i, slots[i] = 16 + i;
    struct span span = {0, 16, 16, &block};
    struct ragged b = {.n_tokens = 16, .n_spans = 1, .pos = pos, .slots = slots, .spans = &span};
    struct rope_kv rk = {2, 2, 32, 0, false, NULL, NULL, NULL, 0};
    struct attn a = {2, 2, 32, 0.2f};
    assert_int_equal(ops->step_begin(d, &b, &e), 0);
    ops->rope_kv(d, qkv, kv, 2, &rk);
    assert_int_equal(ops->step_end(d, &e), 0);
    assert_int_equal(ops->kv_copy(d, kv, &block, &copy, 1, &e), 0);
    memcpy(q, qkv, sizeof(q));
    for (int i = 0; i < 2; i++) {
        struct span s = {0, 1, 16, i ? &copy : &block};
        b = (struct ragged){
            .n_tokens = 1, .n_spans = 1, .pos = &one_pos, .slots = &one_slot, .spans = &s};
        assert_int_equal(ops->step_begin(d, &b, &e), 0);
        ops->attention(d, o[i], q, 64, kv, 2, &a);
        assert_int_equal(ops->step_end(d, &e), 0);
    }
    assert_memory_equal(o[0], o[1], sizeof(o[0]));
    assert_true(o[0][0] != 0);
    assert_int_equal(ops->kv_copy(d, kv, &block, &(uint32_t){5}, 1, &e), -1);
    free(qkv);
    ops->kv_free(d, kv);
    ops->close(d);
}

TEST(a_copied_block_reads_the_same)
{
    enum { HEADS = 3 * 2 * 2, NUMBERS = 16 * 32 };
    copied_block(KV_F32, HEADS * NUMBERS * 4);
    copied_block(KV_F16, HEADS * NUMBERS * 2);
    copied_block(KV_BF16, HEADS * NUMBERS * 2);
    copied_block(KV_FP8, HEADS * (NUMBERS + 16 * 4));
    copied_block(KV_I4, HEADS * (NUMBERS / 2 + 16 * 4));
    copied_block(KV_I8, HEADS * (NUMBERS + 16 * 4)); /* the scales are copied and counted */
}

TEST(what_the_cache_cannot_hold_is_refused)
{
    struct device *d = device(1, ~0ull);
    static const struct kv_desc bad[] = {{3, 5, 24, KV_F16, {2, 32, 32}},
                                         {3, 5, 8, KV_F16, {2, 32, 32}},
                                         {3, 5, 16, KV_F16, {2, 0, 0}},
                                         {3, 5, 16, KV_F16, {2, 1089, 1089}},
                                         {3, 5, 16, KV_N, {2, 32, 32}}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct err e = ERR_INIT;
        assert_null(ops->kv_new(d, &bad[i], &e));
        assert_int_equal(e.kind, ERR_VALIDATION);
    }
    ops->close(d);
}

int main(void)
{
    rng = rng_new();
    look_at_cpu();
    return tests_run(NULL, NULL);
}

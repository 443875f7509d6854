/* test_cuda_attention.c - attention of the CUDA backend against the CPU's, and its promises: bits
 * do not depend on batch, chunking or block table; a copied block reads the same; a replayed step
 * is the step. */
#include "tests/check/cuda/cuda_sequences.h"
#include <math.h>

/* Segments have 128 keys: two of them, or three; some begin after a segment that no token sees. */
static const struct attn_case attn_cases[] = {
    {{8, 2, 64, 0.125f}, 300, 16, KV_BF16, false, false},
    {{4, 4, 48, 0.144f}, 70, 32, KV_F32, true, true},
    {{4, 1, 128, 0.088f, 0, 40}, 150, 16, KV_F16, true, false},
    {{6, 1, 80, 0.11f, 20.0f, 33}, 200, 16, KV_BF16, false, true},
    {{16, 1, 18, 0.2f, 0, .alibi = slopes}, 130, 16, KV_F32, false, false},
    {{3, 3, 7, 0.3f, 5.0f, .alibi = slopes}, 40, 16, KV_F16, false, false},
    {{14, 2, 64, 0.125f, 10.0f, .alibi = slopes}, 140, 64, KV_F16, false, false},
    {{2, 2, 128, 0.0884f}, 260, 32, KV_BF16, false, false},
    {{16, 2, 64, 0.125f, 0, 0, .sinks = sinks}, 300, 16, KV_BF16, false, false},
    {{8, 1, 64, 0.125f, 0, 128, .sinks = sinks}, 270, 16, KV_F32, false, false},
    {{4, 4, 32, 0.17f, 0, 0, .both = true}, 150, 16, KV_F32, false, false},
    {{4, 2, 64, 0.125f, 0, 65, .both = true}, 200, 16, KV_F16, false, false},
    {{4, 2, 64, 0.125f, 0, 12, .both = true, .ahead = 1}, 100, 16, KV_F32, false, false},
    {{8, 2, 64, 0.125f, .window = 40, .mutual = MUTUAL_TOO}, 190, 16, KV_BF16, false, false},
    {{4, 2, 72, 0.125f, .mutual = MUTUAL_TOO}, 150, 16, KV_F32, false, false},
    {{8, 2, 64, 0.125f, .window = 40, .mutual = MUTUAL_AHEAD}, 190, 16, KV_BF16, false, false},
    {{4, 4, 80, 0.11f, .both = true, .mutual = MUTUAL_ALONE}, 160, 16, KV_F32, false, false},
    {{4, 4, 80, 0.11f, .both = true}, 160, 16, KV_BF16, false, false},
    {{8, 2, 128, 0.088f, .window = 70, .both = true, .ahead = 1}, 300, 32, KV_F16, false, false},
    {{4, 4, 64, 0.125f, .both = true, .mutual = MUTUAL_ALONE}, 190, 16, KV_BF16, false, false},
    {{16, 1, 128, 0.088f, .mutual = MUTUAL_TOO, .sinks = sinks}, 190, 8, KV_F16, false, false},
    {{6, 2, 96, 0.1f, .window = 12, .both = true}, 150, 16, KV_I8, false, false},
    {{4, 4, 64, 1.0f, .near = nears, .reach = NEAR_REACH}, 180, 16, KV_BF16, false, false},
    {{4, 2, 24, 0.3f, .near = nears, .reach = NEAR_REACH}, 150, 32, KV_F32, false, false},
    {{3, 3, 64, 0.3f, .near = nears, .reach = NEAR_REACH, .both = true}, 90, 16, KV_F16, 0, 0},
};

enum { WGMMA = 16 | 32, ATTN_WGMMA = 2048 }; /* of CUDA_FEATURES */

/* Pictures are not cut. */
static uint32_t cut(const struct attn_case *k, uint32_t chunk)
{
    if (k->attn.both)
        return k->len;
    return k->attn.mutual ? (chunk + 63) / 64 * 64 : chunk;
}

TEST(attention_is_right)
{
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
                    k->dtype == KV_F32   ? 1e-5
                    : k->dtype == KV_F16 ? 2e-3
                                         : 1.2e-2,
                    "attention");
        free(got), free(want);
        sequence_free(&s);
    }
    close_side(g), close_side(c);
}

/* As a large picture has: more tokens than the second dimension of a grid takes. Each attends to
 * itself alone, so its result is its value. The double checks the grid alone. */
TEST(a_step_may_have_more_tokens_than_65535)
{
    enum { N = 65536 };
    const struct attn_case k = {
        {1, 1, 2, 0.3f, .window = 1, .both = true}, N, 64, KV_F32, false, false};
    struct sequence s = sequence_new(&k);
    struct side g = open_side(gpu, ~0ull);
    float *got = malloc(o_count(&k) * 4);
    if (machine)
        machine->idle = true;
    run_sequence(g, &s, N, 0, got);
    if (machine)
        machine->idle = false;
    for (size_t i = 0; !machine && i < N; i++)
        assert_memory_equal(got + 2 * i, s.qkv + 6 * i + 4, 2 * sizeof(float));
    free(got);
    close_side(g);
    sequence_free(&s);
}

TEST(attention_is_bitwise_the_same_however_it_is_cut)
{
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
            run_sequence(g, &s, cut(k, chunks[j]), j, got);
            close_side(g);
            if (memcmp(want, got, bytes))
                fail_msg("case %zu: chunks of %u beside %u give other bits", i, chunks[j], j);
        }
        free(want), free(got);
        sequence_free(&s);
    }
}

/* ---------------------------------------------------------------- by wgmma */

/* A shape that attn_wgmma takes. */
static struct attn_case wide_case(void)
{
    const uint32_t heads = 1 + rng_below(&rng, 2), group = 1 + rng_below(&rng, 8);
    struct attn_case c = {.block_size = 8u << rng_below(&rng, 6), .len = 20 + rng_below(&rng, 330)};
    c.dtype = rng_below(&rng, 2) ? KV_F16 : KV_BF16;
    c.attn = (struct attn){heads * group, heads, rng_below(&rng, 2) ? 64 : 128};
    c.attn.scale = 1 / sqrtf((float)c.attn.head_dim);
    const uint32_t mask = rng_below(&rng, 8);
    c.attn.window = mask % 2 ? 1 + rng_below(&rng, 200) : 0;
    c.attn.chunk = mask == 2 ? 1 + rng_below(&rng, 200) : 0;
    c.attn.both = mask >= 4;
    c.attn.mutual = mask == 3 || mask == 6 ? 1 + (enum attn_mutual)rng_below(&rng, 3) : MUTUAL_NONE;
    c.attn.sinks = rng_below(&rng, 3) ? NULL : sinks;
    return c;
}

TEST(prefill_by_wgmma_has_the_bits_of_mma_sync)
{
    if (machine && getenv("CUDA_FEATURES"))
        skip();
    for (int i = 0; i < 32; i++) {
        const struct attn_case k = wide_case();
        const uint32_t chunk = cut(&k, i % 3 ? 1 + rng_below(&rng, k.len) : k.len);
        const uint32_t beside = rng_below(&rng, 3);
        struct sequence s = sequence_new(&k);
        float *want = malloc(o_count(&k) * 4), *got = malloc(o_count(&k) * 4);
        struct side g = open_side(gpu, ~(uint64_t)(WGMMA | ATTN_WGMMA));
        const uint64_t before = machine ? machine->wgmmas : 0;
        run_sequence(g, &s, chunk, beside, want);
        const uint64_t without = machine ? machine->wgmmas : 0;
        close_side(g);
        g = open_side(gpu, ~0ull);
        const uint64_t opened = machine ? machine->wgmmas : 0;
        if (machine)
            machine->shuffle = i % 2 ? (uint32_t)i * 77 : 0;
        run_sequence(g, &s, chunk, beside, got);
        if (machine) {
            machine->shuffle = 0;
            assert_int_equal(without, before);
            if (chunk * (k.attn.n_heads / k.attn.n_kv_heads) > 16)
                assert_true(machine->wgmmas > opened);
        }
        close_side(g);
        if (memcmp(want, got, o_count(&k) * 4))
            fail_msg("%u of %u heads of %u, %u tokens by %u, window %u, chunks of %u, blocks of %u:"
                     " other bits",
                     k.attn.n_heads, k.attn.n_kv_heads, k.attn.head_dim, k.len, chunk,
                     k.attn.window, k.attn.chunk, k.block_size);
        free(want), free(got);
        sequence_free(&s);
    }
}

/* Runs `n` tokens of the sequence, whose blocks are those of the cache in order. */
static void run_whole(struct side g, const struct sequence *s, struct kv_cache *kv, uint32_t n,
                      float *o)
{
    static const uint32_t blocks[] = {4, 1, 3, 2};
    uint32_t pos[256], slots[256];
    struct mutual mutual[256];
    struct feed f = {.pos = pos, .slots = slots, .mutual = mutual};
    f.qkv = malloc(n * qkv_width(&s->c.attn) * 4), f.rope = malloc((size_t)n * s->rot * 4 + 4);
    feed_add(&f, s, blocks, 0, n);
    run_step(g, s, kv, &f, NULL, o);
    free(f.qkv), free(f.rope);
}

/* Blocks contain what earlier sequences left, which may be not finite. */
TEST(what_lies_after_the_end_changes_nothing)
{
    struct err e = ERR_INIT;
    static const uint32_t ends[] = {1, 4, 31, 70, 129, 161, 255};
    struct side g = open_side(gpu, ~0ull);
    for (size_t i = 0; i < 4 * sizeof(ends) / sizeof(*ends); i++) {
        const uint32_t n = ends[i / 4];
        const struct attn_case k = {{4, 1, i % 2 ? 64 : 128, 0.1f}, 256,   64,
                                    i % 4 < 2 ? KV_F16 : KV_BF16,   false, false};
        struct sequence s = sequence_new(&k), bad = s;
        const struct kv_desc kd = {2, 6, 64, k.dtype, {1, k.attn.head_dim, k.attn.head_dim}};
        const size_t floats = k.len * qkv_width(&k.attn), out = (size_t)n * 4 * k.attn.head_dim;
        float *want = malloc(out * 4), *got = malloc(o_count(&k) * 4);
        bad.qkv = malloc(floats * 4);
        for (size_t j = 0; j < floats; j++)
            bad.qkv[j] = NAN;
        struct kv_cache *kv = g.ops->kv_new(g.d, &kd, &e);
        run_whole(g, &s, kv, n, want);
        run_whole(g, &bad, kv, k.len, got);
        run_whole(g, &s, kv, n, got);
        assert_memory_equal(got, want, out * 4);
        g.ops->kv_free(g.d, kv);
        free(want), free(got), free(bad.qkv);
        sequence_free(&s);
    }
    close_side(g);
}

/* Encoders compute the keys of all layers' inputs, then attention part by part: a token's range
 * ends after its part, of few tokens or of many. */
TEST(a_part_of_a_step_sees_what_follows_it)
{
    enum { LEN = 200, OUT = 4 * 128 };
    static const uint32_t parts[] = {LEN, 5, 70}, blocks[] = {4, 1, 3, 2};
    struct err e = ERR_INIT;
    struct side g = open_side(gpu, ~0ull);
    for (uint32_t i = 0; i < 3; i++) {
        struct attn_case k = {{4, 2, (uint32_t[]){64, 80, 128}[i], 0.1f},
                              LEN,
                              64,
                              i ? KV_BF16 : KV_F16,
                              false,
                              false};
        k.attn.both = true, k.attn.mutual = MUTUAL_ALONE;
        struct sequence s = sequence_new(&k);
        const uint32_t out = 4 * k.attn.head_dim;
        const struct kv_desc kd = {2, 6, 64, k.dtype, {2, k.attn.head_dim, k.attn.head_dim}};
        struct kv_cache *kv = g.ops->kv_new(g.d, &kd, &e);
        uint32_t pos[LEN], slots[LEN];
        struct mutual mutual[LEN];
        struct feed f = {.pos = pos, .slots = slots, .mutual = mutual};
        float *want = malloc(LEN * OUT * sizeof(float)), *got = malloc(LEN * OUT * sizeof(float));
        f.qkv = malloc(LEN * qkv_width(&k.attn) * 4), f.rope = malloc((size_t)LEN * s.rot * 4);
        for (uint32_t p = 0; p < 3; p++)
            for (uint32_t at = 0, n; at < LEN; at += n) {
                n = LEN - at < parts[p] ? LEN - at : parts[p];
                f.b = (struct ragged){0};
                feed_add(&f, &s, blocks, at, n);
                for (uint32_t t = 0; t < n; t++) /* an image of 150 tokens, and what follows */
                    mutual[t] = at + t < 150 ? (struct mutual){0, 150} : (struct mutual){40, LEN};
                run_step(g, &s, kv, &f, NULL, p ? got : want);
                if (p)
                    assert_memory_equal(got, want + (size_t)at * out, (size_t)n * out * 4);
            }
        g.ops->kv_free(g.d, kv);
        free(want), free(got), free(f.qkv), free(f.rope);
        sequence_free(&s);
    }
    close_side(g);
}

/* ---------------------------------------------------------------- before the wait */

/* Steps of one token of each sequence load K and V before the kernels before them have written
 * theirs. */
TEST(decode_loads_nothing_too_early)
{
    if (!machine || getenv("CUDA_FEATURES"))
        skip();
    static const uint32_t dims[] = {64, 80, 128, 256};
    for (uint32_t i = 0; i < 16; i++) {
        struct attn_case k = {.block_size = 4u << rng_below(&rng, 4), .len = 100 + i * 4};
        k.attn = (struct attn){4, 1 + i % 2, dims[i % 4], 0.1f};
        k.attn.window = i % 3 ? 0 : 50;
        k.dtype = KV_F16 + i / 4;
        struct sequence s = sequence_new(&k);
        float *want = malloc(o_count(&k) * 4), *got = malloc(o_count(&k) * 4);
        struct side g = open_side(gpu, ~0ull);
        run_sequence(g, &s, k.len, 0, want);
        machine->early = true;
        run_sequence(g, &s, 1, i % 3, got);
        machine->early = false;
        close_side(g);
        assert_memory_equal(got, want, o_count(&k) * 4);
        free(want), free(got);
        sequence_free(&s);
    }
}

/* ---------------------------------------------------------------- copies */

TEST(a_copied_block_reads_the_same)
{
    struct err e = ERR_INIT;
    struct side g = open_side(gpu, ~0ull);
    struct attn_case k = {{4, 2, 64, 0.2f}, 16, 16, KV_F16, false, false};
    struct sequence s = sequence_new(&k);
    struct kv_desc kd = {3, 9, 16, KV_F16, {2, 64, 64}};
    struct kv_cache *kv = g.ops->kv_new(g.d, &kd, &e);
    assert_non_null(kv);
    assert_int_equal(g.ops->kv_block_bytes(&kd), 3 * 2 * 16 * 2 * 64 * 2);
    uint32_t pos[16], slots[16], blocks[3] = {1, 5, 7};
    float o[3][256], all[16 * 256], *qkv = malloc(16 * 512 * 4), *rope = malloc(16 * 32 * 4);
    struct mutual mutual[16];
    struct feed f = {.pos = pos, .slots = slots, .mutual = mutual, .qkv = qkv, .rope = rope};
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

/* ---------------------------------------------------------------- replay */

/* Decode `steps` tokens of a sequence, one a step, activations in the same memory each time. */
static void decode(struct side s, const struct sequence *q, uint32_t steps, float *o)
{
    struct err e = ERR_INIT;
    const struct attn *a = &q->c.attn;
    size_t width = qkv_width(a), out = (size_t)a->n_heads * a->head_dim;
    uint32_t blocks[64], pos, slot, size = q->c.block_size, row = 0, id = 0;
    struct kv_desc kd = {2, 64, size, q->c.dtype, {a->n_kv_heads, a->head_dim, a->head_dim}};
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

TEST(a_replayed_step_is_the_step)
{
    struct attn_case k = {{8, 2, 64, 0.125f}, 140, 16, KV_BF16, false, false};
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
    if (machine && !getenv("CUDA_FEATURES")) { /* no memory for the first graph: it is made later */
        machine->graphs_fail = 1, before = machine->graph_launches;
        g = open_side(gpu, TENSOR | GRAPHS | OVERLAP);
        decode(g, &s, k.len, graphs);
        assert_int_equal(machine->graph_launches - before, k.len - 4);
        close_side(g);
        assert_memory_equal(plain, graphs, o_count(&k) * 4);
    }
    free(plain), free(graphs);
    sequence_free(&s);
}

/* ---------------------------------------------------------------- what only the double can show */

TEST(no_result_depends_on_the_order_of_threads)
{
    if (!machine)
        skip();
    for (size_t i = 0; i < sizeof(attn_cases) / sizeof(*attn_cases); i++) {
        struct attn_case k = attn_cases[i];
        k.len = k.len < 70 ? k.len : 70;
        struct sequence s = sequence_new(&k);
        float *a = malloc(o_count(&k) * 4), *b = malloc(o_count(&k) * 4);
        for (uint32_t seed = 0; seed < 3; seed++) {
            machine->shuffle = seed * 77;
            struct side g = open_side(gpu, ~0ull);
            run_sequence(g, &s, cut(&k, 41), 1, seed ? b : a);
            if (seed)
                assert_memory_equal(a, b, o_count(&k) * 4);
            close_side(g);
        }
        machine->shuffle = 0;
        free(a), free(b);
        sequence_free(&s);
    }
}

int main(void) { return cuda_tests_run(); }

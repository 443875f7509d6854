/* test_cuda_kv.c - every type of the KV cache and every head dimension that tensor cores take,
 * against the CPU backend at random; caches of 8 and 4 bits and their scales in copies, on the way
 * to the host and back, and where a token is broken. */
#include "tests/check/cuda/cuda_sequences.h"
#include <math.h>

/* q and the weights are rounded to the type of the product, bf16 for caches in 8 bits. The CPU
 * backend has the same numbers of 8 and 4 bits, and q and the weights in fp32. */
static const double tolerance[KV_N] = {1e-5, 2e-3, 1.2e-2, 1.2e-2, 1.2e-2, 1.2e-2};
static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 48};
enum { N_DIMS = sizeof(dims) / sizeof(*dims) };

static struct attn_case any_case(uint32_t dim, enum kv_dtype t, uint32_t longest)
{
    uint32_t heads = 1 + rng_below(&rng, 2), group = 1 + rng_below(&rng, 7);
    struct attn_case c = {.dtype = t, .block_size = 16u << rng_below(&rng, 4)};
    c.attn = (struct attn){.n_heads = heads * group, .n_kv_heads = heads, .head_dim = dim};
    c.attn.scale = 1 / sqrtf((float)dim);
    c.attn.softcap = rng_below(&rng, 3) ? 0 : 10;
    c.attn.window = rng_below(&rng, 2) ? 0 : 1 + rng_below(&rng, longest);
    c.attn.alibi = rng_below(&rng, 3) ? NULL : slopes;
    c.attn.sinks = rng_below(&rng, 3) ? NULL : sinks;
    c.len = longest / 2 + rng_below(&rng, longest / 2);
    c.interleaved = rng_below(&rng, 2);
    return c;
}

static const char *name_of(const struct attn_case *c)
{
    static char text[160];
    snprintf(text, sizeof(text), "%s, %u of %u heads of %u, %u tokens, window %u, blocks of %u",
             kv_dtype_name(c->dtype), c->attn.n_heads, c->attn.n_kv_heads, c->attn.head_dim, c->len,
             c->attn.window, c->block_size);
    return text;
}

static void check_against_cpu(struct side g, struct side c, const struct attn_case *k,
                              double within)
{
    struct sequence s = sequence_new(k);
    size_t n = o_count(k);
    float *got = malloc(n * 4), *want = malloc(n * 4);
    run_sequence(g, &s, k->len - k->len / 3, 0, got); /* a prompt; a chunk after it */
    run_sequence(c, &s, k->len, 0, want);
    assert_near(got, want, n, within, name_of(k));
    free(got), free(want);
    sequence_free(&s);
}

TEST(every_type_and_head_dimension_is_right)
{
    for (uint32_t i = 0; i < N_DIMS; i++)
        for (enum kv_dtype t = KV_F16; t < KV_N; t++) {
            struct side g = open_side(gpu, t == KV_FP8 && i % 4 == 1 ? (uint64_t)~TENSOR : ~0ull);
            struct side c = open_side(cpu, ~0ull);
            struct attn_case k = any_case(dims[i], t, 180);
            check_against_cpu(g, c, &k, tolerance[t]);
            close_side(g), close_side(c);
        }
}

/* Without tensor cores, in fp32 arithmetic: the numbers of a cache are those of the CPU. */
TEST(numbers_of_few_bits_are_those_of_the_cpu)
{
    static const uint32_t widths[] = {64, 20, 32, 128, 6, 72};
    for (uint32_t i = 0; i < sizeof(widths) / sizeof(*widths); i++)
        for (enum kv_dtype t = KV_I8; t < KV_N; t++) {
            struct side g = open_side(gpu, (uint64_t)~TENSOR), c = open_side(cpu, ~0ull);
            struct attn_case k = any_case(widths[i], t, 100);
            check_against_cpu(g, c, &k, 2e-5);
            close_side(g), close_side(c);
        }
}

/* Alone, in chunks, beside others; segments dealt out or walked. */
TEST(bits_are_the_same_however_it_is_cut)
{
    for (uint32_t i = 0; i < N_DIMS; i++)
        for (enum kv_dtype t = KV_F16; t < KV_N; t++) {
            struct attn_case k = any_case(dims[i], t, 160);
            struct sequence s = sequence_new(&k);
            size_t bytes = o_count(&k) * 4;
            float *want = malloc(bytes), *got = malloc(bytes);
            for (uint32_t j = 0; j < 3; j++) {
                static const uint32_t chunks[] = {1000, 1, 19};
                if (machine)
                    machine->sms = j == 2 ? 1 : 132;
                struct side g = open_side(gpu, ~0ull);
                run_sequence(g, &s, chunks[j], j, j ? got : want);
                close_side(g);
                if (j && memcmp(want, got, bytes))
                    fail_msg("%s: chunks of %u give other bits", name_of(&k), chunks[j]);
            }
            free(want), free(got);
            sequence_free(&s);
        }
}

static bool sees(const struct attn *a, uint32_t t, uint32_t key)
{
    return key <= t && (!a->window || t - key < a->window);
}

/* A head that is not finite is a scale that is NaN: tokens that attend to it have NaN, others do
 * not. */
TEST(a_broken_token_reaches_only_those_that_see_it)
{
    struct side g = open_side(gpu, ~0ull);
    for (uint32_t i = 0; i < 3 * N_DIMS; i++) {
        struct attn_case k = any_case(dims[i / 3], (enum kv_dtype)(KV_I8 + i % 3), 140);
        struct sequence s = sequence_new(&k);
        size_t n = o_count(&k), width = qkv_width(&k.attn), out = n / k.len;
        float *clean = malloc(n * 4), *got = malloc(n * 4);
        uint32_t bad = rng_below(&rng, k.len), part = k.attn.n_kv_heads * k.attn.head_dim;
        run_sequence(g, &s, k.len, 0, clean);
        float *v = s.qkv + (bad + 1) * width - part, *at = i % 4 < 2 ? v : v - part;
        for (uint32_t h = 0; h < k.attn.n_kv_heads; h++)
            at[(size_t)h * k.attn.head_dim + 3] = i % 3 ? NAN : INFINITY;
        run_sequence(g, &s, i % 5 ? 33 : k.len, 0, got);
        for (uint32_t t = 0; t < k.len; t++)
            for (size_t e = t * out; e < (t + 1) * out; e++)
                if (sees(&k.attn, t, bad) ? !isnan(got[e]) : memcmp(&got[e], &clean[e], 4) != 0)
                    fail_msg("%s: token %u gives %g, not %g; %u is broken", name_of(&k), t, got[e],
                             clean[e], bad);
        free(clean), free(got);
        sequence_free(&s);
    }
    close_side(g);
}

/* The last token of the sequence in `q` again, its block read at `block`. */
static void read_again(struct side g, const struct sequence *q, struct kv_cache *kv, struct feed *f,
                       uint32_t block, float *o)
{
    f->b = (struct ragged){0};
    feed_add(f, q, &block, q->c.len - 1, 1);
    run_step(g, q, kv, f, NULL, o);
}

TEST(scales_go_where_the_numbers_go)
{
    struct err e = ERR_INIT;
    for (enum kv_dtype t = KV_I8; t < KV_N; t++) {
        enum { N = 32, DIM = 80, HEADS = 3, OUT = HEADS * DIM };
        struct side g = open_side(gpu, ~0ull);
        struct attn_case k = {{HEADS, 1, DIM, 0.1f, 0, 0, NULL}, N, N, t, false, false};
        struct sequence s = sequence_new(&k);
        struct kv_desc kd = {3, 9, N, t, {1, DIM, DIM}};
        struct kv_cache *kv = g.ops->kv_new(g.d, &kd, &e);
        assert_non_null(kv);
        assert_int_equal(g.ops->kv_block_bytes(&kd), 3 * 2 * N * (kv_dtype_bytes(t, DIM) + 4));
        uint32_t pos[N], slots[N], first = 2;
        float all[N * OUT], o[OUT], *qkv = malloc(N * (OUT + 2 * DIM) * 4), *rope = malloc(N * 160);
        struct mutual mutual[N];
        struct feed f = {.pos = pos, .slots = slots, .mutual = mutual, .qkv = qkv, .rope = rope};
        feed_add(&f, &s, &first, 0, N);
        run_step(g, &s, kv, &f, NULL, all);
        const float *want = all + (N - 1) * OUT;
        assert_int_equal(g.ops->kv_copy(g.d, kv, &first, &(uint32_t){5}, 1, &e), 0);
        read_again(g, &s, kv, &f, 5, o);
        assert_memory_equal(o, want, sizeof(o));
        size_t bytes = 2 * g.ops->kv_block_bytes(&kd);
        void *host = g.ops->host_alloc(g.d, bytes, &e);
        uint32_t slot = 1, back = 7;
        assert_int_equal(g.ops->kv_read(g.d, kv, &first, host, &slot, 1, &e), 0);
        assert_int_equal(g.ops->kv_write(g.d, kv, &back, host, &slot, 1, &e), 0);
        read_again(g, &s, kv, &f, 7, o);
        assert_memory_equal(o, want, sizeof(o));
        g.ops->host_free(g.d, host, bytes);
        g.ops->kv_free(g.d, kv);
        kd.block_size = 2;
        assert_null(g.ops->kv_new(g.d, &kd, &e));
        assert_non_null(strstr(e.msg, "takes powers of two from 4 on"));
        free(qkv), free(rope);
        sequence_free(&s);
        close_side(g);
    }
}

TEST(sparse_attention_in_4_bits_is_refused)
{
    struct err e = ERR_INIT;
    struct side g = open_side(gpu, ~0ull);
    struct kv_desc kd = {1, 4, 16, KV_I4, {1, 64, 64, .index_dim = 32}};
    assert_null(g.ops->kv_new(g.d, &kd, &e));
    assert_non_null(strstr(e.msg, "no sparse attention in 4 bits"));
    close_side(g);
}

int main(void) { return cuda_tests_run(); }

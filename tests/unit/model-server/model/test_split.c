/* Which part of a model a rank takes, and where heads lie in packed matrices. */
#include "model-server/model/split.h"
#include "tests/unit/test.h"
#include <string.h>

static struct decoder_spec spec(uint32_t heads, uint32_t kv, uint32_t ffn, uint32_t vocab)
{
    return (struct decoder_spec){.n_heads = heads,
                                 .n_kv_heads = kv,
                                 .ffn = ffn,
                                 .vocab = vocab,
                                 .head_dim = 4,
                                 .hidden = 64};
}

/* Slices of n things cover them once, in order, and differ by at most one. */
TEST(test_slices)
{
    for (uint32_t n = 1; n < 70; n++)
        for (uint32_t world = 1; world <= 8 && world <= n; world++) {
            uint32_t next = 0;
            for (uint32_t r = 0; r < world; r++) {
                struct slice s = slice_of(n, r, world);
                assert_int_equal(s.first, next);
                assert_in_range(s.n, n / world, (n + world - 1) / world);
                for (uint32_t i = s.first; i < s.first + s.n; i++)
                    assert_int_equal(slice_with(n, i, world).first, s.first);
                next += s.n;
            }
            assert_int_equal(next, n);
        }
}

TEST(test_key_value_heads)
{
    static const struct {
        uint32_t heads, kv;
        int world, rank;
        uint32_t first, n;
    } cases[] = {
        {8, 4, 2, 1, 2, 2}, {8, 4, 4, 3, 3, 1}, {8, 2, 4, 1, 0, 1},
        {8, 2, 4, 2, 1, 1}, {8, 1, 8, 7, 0, 1}, {8, 8, 1, 0, 0, 8},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoder_spec m = spec(cases[i].heads, cases[i].kv, 128, 320);
        struct split s;
        struct err e = ERR_INIT;
        assert_int_equal(split_make(&s, &m, cases[i].rank, cases[i].world, &e), 0);
        const struct slice kv = split_kv_heads(&s, &m, 0);
        assert_int_equal(kv.first, cases[i].first);
        assert_int_equal(kv.n, cases[i].n);
        /* each local head finds its key-value head by the same rule as in the whole model */
        uint32_t g = m.n_heads / m.n_kv_heads, local = s.heads.n / kv.n;
        for (uint32_t h = 0; h < s.heads.n; h++)
            assert_int_equal((s.heads.first + h) / g, kv.first + h / local);
    }
}

/* A key of compressed convolutional attention needs all queries of its group, and differential
 * attention both heads of a pair. */
TEST(test_groups_are_whole)
{
    struct decoder_spec m = spec(8, 2, 128, 320);
    struct split s;
    struct err e = ERR_INIT;
    m.n_layers = 1;
    assert_int_equal(split_make(&s, &m, 0, 4, &e), 0);
    m.layers[0].mixer = MIXER_CCA;
    assert_int_equal(split_make(&s, &m, 1, 2, &e), 0);
    assert_int_equal(split_make(&s, &m, 0, 4, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_non_null(strstr(e.msg, "2 key-value heads"));
    m.layers[0].mixer = MIXER_DIFFERENCE;
    assert_int_equal(split_make(&s, &m, 0, 1, &e), 0);
    assert_int_equal(split_make(&s, &m, 0, 2, &e), -1);
    assert_non_null(strstr(e.msg, "1 pairs of key-value heads"));
}

/* Key heads and groups of recurrent layers are shared as key-value heads are. */
TEST(test_recurrent_heads)
{
    for (uint32_t keys = 1; keys <= 8; keys *= 2)
        for (int world = 1; world <= 8; world *= 2)
            for (int rank = 0; rank < world; rank++) {
                struct decoder_spec m = spec(8, 8, 128, 320);
                struct split s;
                struct err e = ERR_INIT;
                m.recur = (struct recur_spec){.heads = 8, .key_heads = keys};
                assert_int_equal(split_make(&s, &m, rank, world, &e), 0);
                assert_int_equal(s.mix_heads.n, 8 / world);
                const uint32_t all = 8 / keys, local = s.mix_heads.n / s.mix_keys.n;
                for (uint32_t h = 0; h < s.mix_heads.n; h++)
                    assert_int_equal((s.mix_heads.first + h) / all, s.mix_keys.first + h / local);
            }
}

TEST(test_refuses_recurrent_heads)
{
    struct decoder_spec m = spec(12, 12, 128, 320);
    struct split s;
    struct err e = ERR_INIT;
    m.recur = (struct recur_spec){.heads = 4, .key_heads = 2};
    assert_int_equal(split_make(&s, &m, 0, 3, &e), -1);
    assert_non_null(strstr(e.msg, "heads of the recurrent layers"));
    m.recur = (struct recur_spec){.heads = 12, .key_heads = 4};
    assert_int_equal(split_make(&s, &m, 0, 6, &e), -1);
    assert_non_null(strstr(e.msg, "key heads of the recurrent layers"));
    m.n_layers = 1;
    m.layers[0].mixer = MIXER_MAMBA2;
    assert_int_equal(split_make(&s, &m, 0, 12, &e), -1); /* a norm is shared by up to two groups */
    assert_non_null(strstr(e.msg, "4 groups"));
    m.recur.key_heads = 2;
    assert_int_equal(split_make(&s, &m, 0, 12, &e), 0);
}

TEST(test_refuses)
{
    static const struct {
        uint32_t heads, kv;
        int world;
        const char *says;
    } cases[] = {
        {8, 8, 3, "`num_shard` 3 does not divide the 8 attention heads of this model; 2 does"},
        {12, 6, 4, "`num_shard` 4 does not divide the 6 key-value heads of this model; 3 does"},
        {256, 1, 256, "`num_shard` 256 is more than this model can be cut into"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct decoder_spec m = spec(cases[i].heads, cases[i].kv, 128, 320);
        struct split s;
        struct err e = ERR_INIT;
        assert_int_equal(split_make(&s, &m, 0, cases[i].world, &e), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        assert_string_equal(e.msg, cases[i].says);
    }
}

/* In every layout the heads of q, k and v tile the packed rows exactly once. */
TEST(test_packed_rows)
{
    static const enum qkv_layout layouts[] = {QKV_STACKED, QKV_GROUPED};
    for (size_t l = 0; l < 2; l++) {
        struct decoder_spec m = spec(8, 2, 128, 320);
        uint8_t seen[8 + 2 * 2] = {0};
        m.qkv = layouts[l];
        for (int part = 0; part < 3; part++)
            for (uint32_t h = 0; h < (part ? m.n_kv_heads : m.n_heads); h++)
                seen[spec_qkv_row(&m, 0, part, h) / m.head_dim]++;
        for (size_t i = 0; i < sizeof(seen); i++)
            assert_int_equal(seen[i], 1);
    }
    struct decoder_spec m = spec(8, 2, 128, 320);
    m.qkv = QKV_GROUPED; /* q0 q1 q2 q3 k0 v0 q4 q5 q6 q7 k1 v1 */
    assert_int_equal(spec_qkv_row(&m, 0, 0, 4), 6 * 4);
    assert_int_equal(spec_qkv_row(&m, 0, 1, 1), 10 * 4);
    assert_int_equal(spec_qkv_row(&m, 0, 2, 0), 5 * 4);
}

int main(void) { return tests_run(NULL, NULL); }

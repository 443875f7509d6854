/* Where layers are cut into stages, and which experts a rank has. */
#include "model-server/model/split.h"
#include "model-server/model/stage.h"
#include "tests/check/random.h"
#include "tests/unit/test.h"
#include <string.h>

static struct decoder_spec spec;
static struct stage_sizes sizes;

static uint64_t bytes_of(const struct stage *g)
{
    uint64_t n = (g->begins ? sizes.embed : 0) + (g->ends ? sizes.head : 0);
    for (uint32_t i = 0; i < g->n; i++)
        n += sizes.layer[g->first + i];
    return n;
}

/* Of all ways to cut layers [from, n) into `left` stages, the least that the largest one takes. */
static uint64_t least(uint32_t from, int left, bool begins)
{
    uint64_t best = UINT64_MAX;
    if (left == 1) {
        const struct stage g = {from, spec.n_layers - from, begins, true};
        return bytes_of(&g);
    }
    for (uint32_t n = 1; from + n + (uint32_t)left - 1 <= spec.n_layers; n++) {
        const struct stage g = {from, n, begins, false};
        const uint64_t mine = bytes_of(&g), rest = least(from + n, left - 1, false);
        const uint64_t most = mine > rest ? mine : rest;
        best = most < best ? most : best;
    }
    return best;
}

TEST(stages_cover_the_layers_and_the_largest_is_least)
{
    struct rng r = rng_new();
    struct err e = ERR_INIT;
    for (int round = 0; round < 300; round++) {
        spec = (struct decoder_spec){.n_layers = 1 + rng_below(&r, 12)};
        sizes.embed = rng_below(&r, 50), sizes.head = rng_below(&r, 200);
        for (uint32_t i = 0; i < spec.n_layers; i++)
            sizes.layer[i] = 1 + rng_below(&r, 100);
        const int world = 1 + (int)rng_below(&r, spec.n_layers < 5 ? spec.n_layers : 5);
        uint64_t largest = 0;
        uint32_t next = 0;
        for (int k = 0; k < world; k++) {
            struct stage g;
            assert_int_equal(stage_cut(&spec, &sizes, k, world, &g, &e), 0);
            assert_int_equal(g.first, next);
            assert_true(g.n > 0 && g.begins == (k == 0) && g.ends == (k == world - 1));
            next += g.n;
            largest = bytes_of(&g) > largest ? bytes_of(&g) : largest;
        }
        assert_int_equal(next, spec.n_layers);
        assert_int_equal(largest, least(0, world, true));
    }
}

/* Layers 2 and 3 read keys and the selection of layer 1, layer 5 has the weights of layer 4. */
TEST(layers_that_belong_together_stay_in_one_stage)
{
    struct err e = ERR_INIT;
    struct stage g;
    spec = (struct decoder_spec){.n_layers = 6, .moe.router_width = 16};
    assert_int_equal(stage_cut(&spec, &sizes, 0, 1, &g, &e), 0);
    assert_int_equal(stage_cut(&spec, &sizes, 0, 2, &g, &e), -1);
    spec = (struct decoder_spec){.n_layers = 6};
    spec.layers[2].kv_of = spec.layers[3].top_of = 2;
    spec.layers[5].same_as = 5;
    sizes = (struct stage_sizes){.layer = {1, 1, 1, 1, 1, 1}};
    static const uint32_t want[] = {0, 1, 4, 6};
    for (int k = 0; k < 3; k++) {
        assert_int_equal(stage_cut(&spec, &sizes, k, 3, &g, &e), 0);
        assert_int_equal(g.first, want[k]);
        assert_int_equal(g.first + g.n, want[k + 1]);
    }
    spec = (struct decoder_spec){.n_layers = 6}; /* a place is written, read, and written again */
    spec.layers[1].keeps = spec.layers[3].keeps = 1;
    spec.layers[2].joins = spec.layers[4].joins = 1;
    assert_int_equal(stage_cut(&spec, &sizes, 2, 4, &g, &e), 0);
    assert_true(g.first == 3 && g.n == 2);
    assert_int_equal(stage_cut(&spec, &sizes, 0, 5, &g, &e), -1);
    spec = (struct decoder_spec){.n_layers = 6, .moe.shortcut = true};
    spec.layers[0].moe = spec.layers[3].moe = true; /* added after layers 1 and 4 */
    assert_int_equal(stage_cut(&spec, &sizes, 2, 3, &g, &e), 0);
    assert_true(g.first != 1 && g.first != 4);
    assert_int_equal(stage_cut(&spec, &sizes, 0, 4, &g, &e), 0);
    assert_int_equal(stage_cut(&spec, &sizes, 0, 5, &g, &e), -1);
    spec = (struct decoder_spec){.n_layers = 6};
    spec.layers[2].kv_of = spec.layers[3].top_of = 2;
    spec.layers[5].same_as = 5;
    assert_int_equal(stage_cut(&spec, &sizes, 0, 4, &g, &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_int_equal(stage_cut(&spec, &sizes, 0, 7, &g, &e), -1);
    assert_non_null(strstr(e.msg, "--pipeline-parallel-size 7"));
}

TEST(ranks_have_each_expert_once_and_all_of_it)
{
    const struct decoder_spec m = {.n_heads = 8,
                                   .n_kv_heads = 8,
                                   .ffn = 64,
                                   .vocab = 64,
                                   .hidden = 64,
                                   .head_dim = 8,
                                   .moe = {.n_experts = 5, .ffn = 32}};
    struct err e = ERR_INIT;
    uint32_t next = 0;
    for (int r = 0; r < 4; r++) {
        struct split s;
        assert_int_equal(split_make(&s, &m, r, 4, &e), 0);
        assert_int_equal(s.experts.n, 5);
        assert_int_equal(s.moe_ffn.n, 8);
        assert_int_equal(split_by_experts(&s, &m, &e), 0);
        assert_int_equal(s.experts.first, next);
        assert_int_equal(s.moe_ffn.n, 32);
        next += s.experts.n;
    }
    assert_int_equal(next, 5);
    struct split s;
    assert_int_equal(split_make(&s, &m, 0, 8, &e), 0);
    assert_int_equal(split_by_experts(&s, &m, &e), -1);
    assert_non_null(strstr(e.msg, "5 experts for 8 ranks"));
}

int main(void) { return tests_run(NULL, NULL); }

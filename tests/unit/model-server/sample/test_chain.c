/* Whole chains of samplers against tests/data/sampling_chain.json and sampling_edges.json, which
 * tests/golden/make_sampling.py and make_sampling_edges.py write from transformers' processors and
 * plain definitions: what is kept, how likely, how often drawn. */
#include "common/json/json.h"
#include "common/params.h"
#include "model-server/sample/sample.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

enum { V = 40, MOST = 64, DRAWS = 400, EDGES = 410 };
static struct filter_mem mem;
static const char *texts[V];
#include "tests/unit/model-server/sample/detok_texts.inc.h"

/* ---------------------------------------------------------------- a case */
struct chain {
    struct sampling p;
    struct tally t;
    float row[V], bias[V];
    uint32_t bias_id[V], mask[(V + 31) / 32];
    bool masked;
    bool error;     /* no token is left */
    double want[V]; /* probabilities */
    double bound;   /* on their relative errors */
};

static void read_context(struct chain *c, const cJSON *ids, bool generated)
{
    struct err e = ERR_INIT;
    const cJSON *v;
    cJSON_ArrayForEach(v, ids)
    {
        assert_int_equal(tally_add(&c->t, (uint32_t)v->valuedouble, generated, &e), 0);
        assert_int_equal(repeats_push(c->p.repeats, (uint32_t)v->valuedouble, &e), 0);
    }
}

static void read_lists(struct chain *c, const cJSON *one, const cJSON *row)
{
    const cJSON *v;
    size_t n = 0;
    cJSON_ArrayForEach(v, row) c->row[n++] = cJSON_IsNull(v) ? -INFINITY : (float)v->valuedouble;
    assert_int_equal(n, V);
    cJSON_ArrayForEach(v, json_get(one, "bias"))
    {
        c->bias_id[c->p.bias.n] = (uint32_t)cJSON_GetArrayItem(v, 0)->valuedouble;
        c->bias[c->p.bias.n++] = (float)cJSON_GetArrayItem(v, 1)->valuedouble;
    }
    c->p.bias.id = c->bias_id, c->p.bias.value = c->bias;
    cJSON_ArrayForEach(v, json_get(one, "mask"))
    {
        c->mask[(uint32_t)v->valuedouble / 32] |= 1u << ((uint32_t)v->valuedouble % 32);
        c->masked = true;
    }
    cJSON_ArrayForEach(v, json_get(one, "kept"))
        c->want[(int)cJSON_GetArrayItem(v, 0)->valuedouble] =
        exp(cJSON_GetArrayItem(v, 1)->valuedouble);
}

static void chain_begin(struct chain *c, const cJSON *all, const cJSON *one)
{
    struct err e = ERR_INIT;
    char *breakers[8] = {0};
    size_t n = 0;
    const cJSON *v, *o = json_get(one, "params");
    *c = (struct chain){.p = sampling_neutral(), .bound = json_num(one, "bound", 1e-4)};
    c->error = json_bool(one, "error", false);
#define PARAM(kind, type, name, member, neutral, ...)                                              \
    c->p.member = (PARAM_C_##type)json_num(o, #name, neutral);
#include "common/params.def"
    assert_int_equal(sampling_normalise(&c->p, &e), 0);
    c->p.sample = true;
    cJSON_ArrayForEach(v, json_get(all, "breakers")) breakers[n++] = v->valuestring;
    c->p.repeats = repeats_new(NULL, breakers, n, MOST, &e);
    assert_non_null(c->p.repeats);
    read_context(c, json_get(one, "prompt"), false);
    read_context(c, json_get(one, "answer"), true);
    read_lists(c, one, cJSON_GetArrayItem(json_get(all, "rows"), (int)json_num(one, "row", 0)));
}

static void chain_end(struct chain *c)
{
    repeats_free(c->p.repeats);
    tally_free(&c->t);
}

/* One token at `position`; n_top > 0: also every token that is kept. */
static int try_draw(struct chain *c, uint64_t position, uint32_t n_top, uint32_t *id, float *lp,
                    struct sampled *out)
{
    float row[V];
    struct err e = ERR_INIT;
    struct sampling p = c->p;
    *out = (struct sampled){.n_top = n_top, .top_id = id, .top_logprob = lp};
    if (p.dry.multiplier == 0)
        p.repeats = NULL;
    memcpy(row, c->row, sizeof(row));
    return sample_row(&p, &c->t, 0, c->masked ? c->mask : NULL, position, row, V, &mem, out, &e);
}

static void compare(struct chain *c, const char *name)
{
    uint32_t id[V];
    float lp[V];
    double got[V] = {0}, best = 0;
    struct sampled out;
    const int rc = try_draw(c, 0, V, id, lp, &out);
    if ((rc != 0) != c->error)
        fail_msg("%s: %s", name, rc ? "an error" : "no error");
    if (rc != 0)
        return;
    for (uint32_t i = 0; i < out.n_top; i++)
        got[id[i]] = exp((double)lp[i]);
    for (int t = 0; t < V; t++) {
        if (!(fabs(got[t] - c->want[t]) <= c->bound * c->want[t] + 1e-12))
            fail_msg("%s: token %d has %g, not %g", name, t, got[t], c->want[t]);
        best = c->want[t] > best ? c->want[t] : best;
    }
    c->p.sample = false;
    assert_int_equal(try_draw(c, 0, 0, NULL, NULL, &out), 0);
    c->p.sample = true;
    if (c->want[out.id] < best * (1 - 2 * c->bound))
        fail_msg("%s: token %u is not the likeliest", name, out.id);
}

/* ---------------------------------------------------------------- how often */
struct fit {
    double chi;
    int freedom;
};

/* Pearson's sum over tokens that are expected five times or more, and the rest together. */
static void count_draws(struct chain *c, uint64_t seed, struct fit *f)
{
    int count[V] = {0}, rest = DRAWS;
    double likely = 0;
    struct sampled out;
    c->p.seed = seed;
    for (uint64_t at = 0; at < DRAWS; at++) {
        assert_int_equal(try_draw(c, at, 0, NULL, NULL, &out), 0);
        count[out.id]++;
    }
    for (int t = 0; t < V; t++) {
        const double expected = c->want[t] * DRAWS;
        if (count[t] && c->want[t] == 0)
            fail_msg("token %d was drawn, which is not kept", t);
        if (expected < 5)
            continue;
        f->chi += (count[t] - expected) * (count[t] - expected) / expected;
        f->freedom++;
        likely += expected;
        rest -= count[t];
    }
    const double expected = DRAWS - likely;
    if (expected >= 5)
        f->chi += (rest - expected) * (rest - expected) / expected;
    else
        f->freedom--;
}

static void check_file(const char *path, int n_cases)
{
    struct err e = ERR_INIT;
    cJSON *all = json_load(path, 1 << 22, &e);
    if (!all)
        fail_msg("%s", e.msg);
    struct fit f = {0};
    const cJSON *one, *v;
    int n = 0;
    size_t n_texts = 0;
    cJSON_ArrayForEach(v, json_get(all, "texts")) texts[n_texts++] = v->valuestring;
    assert_int_equal(n_texts, V);
    cJSON_ArrayForEach(one, json_get(all, "cases"))
    {
        struct chain c;
        char *name = cJSON_PrintUnformatted(one);
        chain_begin(&c, all, one);
        compare(&c, name);
        if (!c.error)
            count_draws(&c, test_seed(1) + (uint64_t)n, &f);
        chain_end(&c);
        free(name);
        n++;
    }
    cJSON_Delete(all);
    assert_int_equal(n, n_cases);
    /* Wilson and Hilferty's normal deviate of a chi-square: four standard deviations */
    const double k = f.freedom, z = (cbrt(f.chi / k) - (1 - 2 / (9 * k))) / sqrt(2 / (9 * k));
    print_message("chi-square %.1f at %d degrees of freedom\n", f.chi, f.freedom);
    assert_true(fabs(z) < 4);
}

TEST(chains) { check_file("tests/data/sampling_chain.json", 320); }

/* Each parameter alone and beside each other one, at the ends of its range. */
TEST(edges) { check_file("tests/data/sampling_edges.json", EDGES); }

int main(void)
{
    struct err e = ERR_INIT;
    if (filter_mem_init(&mem, V, &e))
        return 1;
    int rc = tests_run(NULL, NULL);
    filter_mem_free(&mem);
    return rc;
}

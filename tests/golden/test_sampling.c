// The chain against distributions made by transformers' processors (and TGI's frequency penalty).
#include "common/json/json.h"
#include "model-server/sample/noise.h"
#include "model-server/sample/sample.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static float num(const cJSON *o, const char *key, float def)
{
    return (float)json_num(o, key, def);
}

static struct sampling params(const cJSON *o)
{
    struct sampling p = sampling_neutral();
    p.temperature = num(o, "temperature", 1);
    p.top_p = num(o, "top_p", 1);
    p.typical_p = num(o, "typical_p", 1);
    p.min_p = num(o, "min_p", 0);
    p.top_k = (uint32_t)json_int(o, "top_k", 0);
    p.penalties.repetition = num(o, "repetition_penalty", 1);
    p.penalties.frequency = num(o, "frequency_penalty", 0);
    return p;
}

static size_t read_row(const cJSON *a, float *row)
{
    size_t n = 0;
    const cJSON *v;
    cJSON_ArrayForEach(v, a) row[n++] = cJSON_IsNull(v) ? -INFINITY : (float)v->valuedouble;
    return n;
}

/* All tokens that survived, through the widest window sample_row() has: every alternative. */
static const char *check_case(const cJSON *c, const cJSON *rows, const cJSON *contexts)
{
    static char why[700];
    const char *name = json_str(c, "logits", "");
    float row[512], lp[512], want[512];
    uint32_t id[512];
    struct err e = ERR_INIT;
    struct filter_mem x;
    struct tally t = {0};
    struct sampling p = params(json_get(c, "params"));
    size_t n = read_row(json_get(rows, name), row), kept = 0, nw = 0;
    const cJSON *v, *k = json_get(c, "kept");
    const char *bad = NULL;
    if (filter_mem_init(&x, (uint32_t)n, &e))
        return "memory";
    cJSON_ArrayForEach(v, json_get(contexts, name))
        tally_add(&t, (uint32_t)v->valuedouble, false, &e);
    struct sampled out = {.n_top = (uint32_t)n, .top_id = id, .top_logprob = lp};
    if (sampling_normalise(&p, &e) || sample_row(&p, &t, 0, NULL, 0, row, n, &x, &out, &e))
        bad = e.msg;
    for (size_t i = 0; i < n; i++)
        want[i] = NAN;
    cJSON_ArrayForEach(v, k) want[(int)v->valuedouble] =
        (float)cJSON_GetArrayItem(json_get(c, "logprobs"), (int)nw++)->valuedouble;
    bool tie_cut = json_bool(c, "tie_cut", false);
    /* The reference's probabilities underflow below e^-103, which it shows as "not kept". */
    while (!bad && out.n_top > nw && lp[out.n_top - 1] < -100)
        out.n_top--;
    if (!bad && out.n_top != nw)
        bad = "another number of tokens is kept";
    for (; !bad && kept < out.n_top; kept++) {
        if (!tie_cut && isnan(want[id[kept]]))
            bad = "another token is kept";
        else if (!isnan(want[id[kept]]) &&
                 fabsf(lp[kept] - want[id[kept]]) > 2e-5f * (1 + fabsf(lp[kept])))
            bad = "another log-probability";
    }
    if (bad) {
        char *text = cJSON_PrintUnformatted(json_get(c, "params"));
        snprintf(why, sizeof(why), "%s %s: %s (%u for %zu)", name, text, bad, out.n_top, nw);
        free(text);
    }
    tally_free(&t);
    filter_mem_free(&x);
    return bad ? why : NULL;
}

static void cases(void **state)
{
    (void)state;
    char path[500];
    struct err e = ERR_INIT;
    const char *data = getenv("TEST_DATA") ? getenv("TEST_DATA") : TEST_DATA;
    snprintf(path, sizeof(path), "%s/expected/sampling/logits.json", data);
    cJSON *l = json_load(path, 1 << 24, &e);
    snprintf(path, sizeof(path), "%s/expected/sampling/cases.json", data);
    cJSON *c = l ? json_load(path, 1 << 24, &e) : NULL;
    if (!c) {
        printf("skipped: 547 cases (%s)\n", e.msg);
        return;
    }
    const cJSON *one;
    int failed = 0, n = 0;
    cJSON_ArrayForEach(one, c)
    {
        const char *why = check_case(one, json_get(l, "logits"), json_get(l, "input_ids"));
        if (why)
            print_error("%s\n", why), failed++;
        n++;
    }
    cJSON_Delete(l), cJSON_Delete(c);
    assert_true(n > 500);
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest t[] = {cmocka_unit_test(cases)};
    return cmocka_run_group_tests(t, NULL, NULL);
}

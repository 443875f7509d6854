/* The server's sampling parameters: read from a model's file, overridden, applied. */
#include "router/generate/defaults.h"
#include "tests/unit/router/rig.h"
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/test-defaults-XXXXXX";
static struct sampling_defaults d;
static struct err e;

static void write_config(const char *text)
{
    char path[64];
    snprintf(path, sizeof(path), "%s/generation_config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int load(const char *source, const char *override)
{
    e = (struct err)ERR_INIT;
    return defaults_load(&d, dir, source, override, &e);
}

static void assert_printed(const char *text)
{
    struct buf b = BUF_INIT;
    defaults_print(&d, &b);
    assert_string_equal(b.p ? b.p : "", text);
    buf_free(&b);
}

TEST(the_models_file_is_read)
{
    assert_int_equal(load("auto", NULL), 0); /* there is none yet */
    assert_printed("");
    write_config(
        "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.95, \"top_k\": 20, \"min_p\": "
        "null, \"repetition_penalty\": 1.5, \"eos_token_id\": [1, 2], \"max_new_tokens\": 7}");
    assert_int_equal(load("auto", ""), 0);
    assert_printed("\"temperature\":0.6,\"repetition_penalty\":1.5,\"top_p\":0.95,\"top_k\":20,"
                   "\"max_new_tokens\":7");
    assert_int_equal(load("none", NULL), 0);
    assert_printed("");
    assert_int_equal(load("vllm", "{\"top_k\": 3}"), 0);
    assert_printed("\"top_k\":3");
    assert_int_equal(load(dir, "{\"temperature\": 0, \"presence_penalty\": 0.5, \"top_k\": -1}"),
                     0);
    assert_printed(
        "\"temperature\":0,\"repetition_penalty\":1.5,\"presence_penalty\":0.5,\"top_p\":0.95,"
        "\"top_k\":0,\"max_new_tokens\":7");
    assert_int_equal(load("/nowhere/at/all", NULL), -1);
    assert_int_equal(load("auto", "{\"forced_bos_token_id\": 9}"), 0);
    assert_true(d.forced_bos_token_id.set && d.forced_bos_token_id.v == 9);
    assert_int_equal(load("auto", NULL), 0);
    assert_false(d.forced_bos_token_id.set);
    assert_int_equal(load("auto", "{\"forced_bos_token_id\": -1}"), -1);
}

TEST(what_is_wrong_is_named)
{
    static const char *const rows[][2] = {
        {"{\"temperature\": -1}", "`temperature` must be strictly positive"},
        {"{\"temperature\": \"hot\"}", "`temperature` must be a number"},
        {"{\"top_k\": 1.5}", "`top_k` must be a whole number"},
        {"{\"top_p\": 2}", "`top_p` must be >= 0 and <= 1"},
        {"{\"max_new_tokens\": 0}", "`max_new_tokens` must be strictly positive"},
        {"{\"eos_token_id\": 1}", "`eos_token_id` is no sampling parameter"},
        {"[1]", "expected a JSON object"},
        {"{", "--override-generation-config"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(load("none", rows[i][0]), -1);
        assert_int_equal(e.kind, ERR_VALIDATION);
        if (!strstr(e.msg, rows[i][1]))
            fail_msg("wanted %s, got %s", rows[i][1], e.msg);
    }
    write_config("{\"top_p\": 7}");
    assert_int_equal(load("auto", NULL), -1);
    assert_non_null(strstr(e.msg, "generation_config.json: `top_p`"));
}

TEST(a_request_goes_first)
{
    assert_int_equal(load("none", "{\"temperature\": 0.5, \"top_p\": 0.9, \"top_k\": 5, "
                                  "\"max_new_tokens\": 10}"),
                     0);
    struct ask q = {.style = ASK_OPENAI, .do_sample = true};
    defaults_apply(&d, &q);
    assert_true(q.temperature.v == 0.5f && q.top_p.v == 0.9f && q.top_k.v == 5);
    assert_int_equal(q.max_new_tokens.v, 10);
    q = (struct ask){.top_p = {true, 1}, .top_k = {true, 0}, .temperature = {true, 2}};
    q.max_new_tokens = (struct opt_u64){true, 3};
    defaults_apply(&d, &q);
    assert_true(q.temperature.v == 2 && q.top_p.v == 1 && q.top_k.v == 0);
    assert_int_equal(q.max_new_tokens.v, 3);
    q.max_new_tokens.v = 11; /* a limit, as in vLLM */
    defaults_apply(&d, &q);
    assert_int_equal(q.max_new_tokens.v, 10);
}

TEST(a_temperature_of_0_is_greedy)
{
    assert_int_equal(load("none", "{\"temperature\": 0}"), 0);
    struct ask q = {.do_sample = true};
    defaults_apply(&d, &q);
    assert_true(q.greedy && !q.do_sample && !q.temperature.set);
    q = (struct ask){.do_sample = true, .temperature = {true, 1}};
    defaults_apply(&d, &q);
    assert_true(!q.greedy && q.do_sample && q.temperature.set);
}

/* suppress_tokens and bad_words_ids are read, the rest of what transformers honours is named. */
TEST(tokens_that_never_come)
{
    static const char *const wrong[][2] = {
        {"{\"suppress_tokens\": 3}", "`suppress_tokens` must be a list"},
        {"{\"suppress_tokens\": [[3]]}", "`suppress_tokens` must be a list of up to"},
        {"{\"suppress_tokens\": [-1]}", "`suppress_tokens` must be a list of up to"},
        {"{\"bad_words_ids\": [3]}", "`bad_words_ids` must be up to 10000 lists"},
        {"{\"bad_words_ids\": [[1.5]]}", "`bad_words_ids` must be up to 10000 lists"},
        {"{\"min_new_tokens\": -1}", "`min_new_tokens` must be a number of tokens"},
    };
    static const uint32_t ids[] = {3, 5, 7, 8}, lengths[] = {1, 1, 2};
    write_config("{\"suppress_tokens\": [3, 5], \"bad_words_ids\": [[7, 8], []], \"num_beams\": 4,"
                 "\"min_new_tokens\": 6, \"begin_suppress_tokens\": [220], \"guidance_scale\": 1.0,"
                 "\"no_repeat_ngram_size\": 3, \"epsilon_cutoff\": 0, \"max_length\": 142,"
                 "\"early_stopping\": true, \"forced_eos_token_id\": 2}");
    assert_int_equal(load("auto", NULL), 0);
    assert_int_equal(d.never.n, 3);
    assert_memory_equal(d.never.ids, ids, sizeof(ids));
    assert_memory_equal(d.never.lengths, lengths, sizeof(lengths));
    assert_string_equal(d.ignored, "num_beams, no_repeat_ngram_size, begin_suppress_tokens");
    assert_printed("\"min_new_tokens\":6");
    struct ask q = {.max_new_tokens = {true, 4}};
    defaults_apply(&d, &q);
    assert_true(q.min_new_tokens.set && q.min_new_tokens.v == 4);
    q = (struct ask){.min_new_tokens = {true, 0}};
    defaults_apply(&d, &q);
    assert_int_equal(q.min_new_tokens.v, 0);
    defaults_free(&d);
    assert_int_equal(load("none", NULL), 0);
    assert_true(!d.never.n && !*d.ignored);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        write_config(wrong[i][0]);
        assert_int_equal(load("auto", NULL), -1);
        if (!strstr(e.msg, wrong[i][1]))
            fail_msg("wanted %s, got %s", wrong[i][1], e.msg);
        defaults_free(&d);
    }
}

int main(void)
{
    if (!mkdtemp(dir))
        return 1;
    int rc = tests_run(NULL, NULL);
    char path[64];
    snprintf(path, sizeof(path), "%s/generation_config.json", dir);
    unlink(path);
    rmdir(dir);
    return rc;
}

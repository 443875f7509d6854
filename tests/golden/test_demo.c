/* The bundled model from text to text, against transformers (models/demo/train/expect.py): chat
 * template, tokenizer, forward pass, greedy choice, detokenizer. Needs no other data. */
#include "common/template/template.h"
#include "common/tokenizer/tokenizer.h"
#include "tests/golden/golden.h"

#define DEMO "models/demo"

struct demo {
    cJSON *expected, *config;
    struct tokenizer *tok;
    struct template *chat;
    struct tok_scratch *scratch;
};

static int open_demo(void **state)
{
    static struct demo d;
    struct err e = ERR_INIT;
    *state = &d;
    d.expected = json_load(DEMO "/expected.json", 1 << 24, &e);
    d.config = json_load(DEMO "/tokenizer_config.json", 1 << 20, &e);
    d.tok = tokenizer_load(DEMO, &e);
    const char *chat = json_str(d.config, "chat_template", "");
    d.chat = template_compile(chat, strlen(chat), &e);
    if (!d.expected || !d.config || !d.tok || !d.chat)
        fprintf(stderr, "%s (run from the top of the repository)\n", e.msg);
    return d.expected && d.config && d.tok && d.chat ? 0 : -1;
}

static int close_demo(void **state)
{
    struct demo *d = *state;
    cJSON_Delete(d->expected);
    cJSON_Delete(d->config);
    tokenizer_free(d->tok);
    template_free(d->chat);
    tok_scratch_free(d->scratch);
    return 0;
}

static void chats_become_prompts(void **state)
{
    struct demo *d = *state;
    const cJSON *c;
    int n = 0;
    cJSON_ArrayForEach(c, json_get(d->expected, "cases"))
    {
        struct buf text = BUF_INIT;
        struct err e = ERR_INIT;
        cJSON *vars = cJSON_CreateObject();
        if (json_get(c, "messages")) {
            cJSON_AddItemToObject(vars, "messages", cJSON_Duplicate(json_get(c, "messages"), true));
            cJSON_AddStringToObject(vars, "bos_token", tokenizer_special(d->tok, "bos_token"));
            cJSON_AddTrueToObject(vars, "add_generation_prompt");
            if (template_render(d->chat, vars, NULL, &text, &e))
                fail_msg("%s", e.msg);
            assert_string_equal(text.p, json_str(c, "prompt", ""));
            n++;
        }
        cJSON_Delete(vars);
        buf_free(&text);
    }
    assert_true(n > 0);
}

static void prompts_become_ids(void **state)
{
    struct demo *d = *state;
    const cJSON *c;
    cJSON_ArrayForEach(c, json_get(d->expected, "cases"))
    {
        const char *plain = json_str(c, "inputs", NULL),
                   *text = plain ? plain : json_str(c, "prompt", "");
        uint32_t want[MAX_LEN], n = golden_ids(json_get(c, "input_ids"), want);
        struct tok_ids got = {0};
        struct err e = ERR_INIT;
        if (tokenizer_encode(d->tok, text, strlen(text), plain ? TOK_ADD_SPECIAL : 0, &d->scratch,
                             &got, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(got.n, n);
        assert_memory_equal(got.id, want, n * sizeof(want[0]));
        tok_ids_free(&got);
    }
}

static void greedy_answers_are_transformers_own(void **state)
{
    struct demo *d = *state;
    struct bench b;
    struct err e = ERR_INIT;
    const cJSON *c, *row = json_get(d->expected, "last_logits_of_case_0"), *x;
    struct prompt *p = calloc(1, sizeof(*p));
    float *zero = calloc((size_t)cJSON_GetArraySize(row), sizeof(*zero)), *logits = zero;
    uint32_t n = 0;

    assert_non_null(p);
    assert_non_null(zero);
    if (bench_open(&b, DEMO, comm_solo(), 1, MAX_SEQ_BLOCKS, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(cJSON_GetArraySize(row), b.vocab);
    cJSON_ArrayForEach(x, row) logits[n++] = (float)x->valuedouble;
    cJSON_ArrayForEach(c, json_get(d->expected, "cases"))
    {
        struct verdict v = {0};
        p->n = golden_ids(json_get(c, "input_ids"), p->ids);
        p->n_greedy = golden_ids(json_get(c, "output_ids"), p->greedy);
        p->last = zero; /* only the first case has a row; logprobs are not in the file */
        if (judge_prompt(&b, p, &v, &e))
            fail_msg("%s", e.msg);
        assert_int_equal(v.greedy_right, p->n_greedy);
        if (c == json_get(d->expected, "cases")->child)
            assert_true(v.logits < 1e-4);
    }
    free(zero);
    free(p);
    bench_close(&b);
}

static void ids_become_text(void **state)
{
    struct demo *d = *state;
    const cJSON *c;
    cJSON_ArrayForEach(c, json_get(d->expected, "cases"))
    {
        uint32_t ids[MAX_LEN], n = golden_ids(json_get(c, "output_ids"), ids);
        struct buf text = BUF_INIT;
        tokenizer_decode(d->tok, ids, n, true, &text);
        assert_string_equal(text.p ? text.p : "", json_str(c, "output", ""));
        buf_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chats_become_prompts),
        cmocka_unit_test(prompts_become_ids),
        cmocka_unit_test(greedy_answers_are_transformers_own),
        cmocka_unit_test(ids_become_text),
    };
    return cmocka_run_group_tests(tests, open_demo, close_demo);
}

/* Texts and pairs with the special tokens of encoders around them, cut to the model's length,
 * against Hugging Face's tokenizers. */
#include "common/json/json.h"
#include "common/tokenizer/frame.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { MOST = 1024 };

static struct tok_ids encode(const struct tokenizer *t, const char *text)
{
    struct tok_scratch *scratch = NULL;
    struct tok_ids ids = {0};
    struct err e = ERR_INIT;
    if (tokenizer_encode(t, text, strlen(text), 0, &scratch, &ids, &e))
        fail_msg("%s", e.msg);
    tok_scratch_free(scratch);
    return ids;
}

/* `second` NULL: one text; so is a pair whose second text is empty, as transformers has it. */
static void expect(const struct tokenizer *t, const char *first, const char *second, uint32_t most,
                   const cJSON *want)
{
    second = second && *second ? second : NULL;
    uint32_t ids[MOST], n = tok_frame_special(t, second), i = 0;
    struct tok_ids a = encode(t, first), b = encode(t, second ? second : "");
    struct tok_part x = {a.id, a.n}, y = {b.id, b.n}, *pair = second ? &y : NULL;
    const cJSON *v;
    tok_frame_cut(&x, pair, most - n, false);
    n += x.n + (second ? y.n : 0);
    assert_true(n <= MOST);
    tok_frame(t, &x, pair, ids, NULL);
    assert_int_equal(n, cJSON_GetArraySize(want));
    cJSON_ArrayForEach(v, want) assert_int_equal(ids[i++], (uint32_t)v->valuedouble);
    tok_ids_free(&a), tok_ids_free(&b);
}

static void texts_and_pairs_have_the_ids_of_the_reference(void **state)
{
    static const char *const names[] = {"bert_mean", "bert_cls", "xlm_roberta_cls",
                                        "qwen3_embedding", "xlm_roberta_rerank"};
    (void)state;
    int skipped = 0;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char file[64], dir[1024];
        struct err e = ERR_INIT;
        const cJSON *j;
        snprintf(file, sizeof(file), "embed/%s/golden.json", names[i]);
        const char *path = test_data(file);
        if (!path) {
            skipped++;
            continue;
        }
        cJSON *root = json_load(path, 1 << 24, &e);
        snprintf(dir, sizeof(dir), "%.*s", (int)(strlen(path) - strlen("/golden.json")), path);
        struct tokenizer *t = tokenizer_load(dir, &e);
        if (!root || !t)
            fail_msg("%s", e.msg);
        const uint32_t most = (uint32_t)json_num(root, "max_length", 0);
        cJSON_ArrayForEach(j, json_get(root, "texts"))
            expect(t, json_str(j, "text", NULL), NULL, most, json_get(j, "ids"));
        cJSON_ArrayForEach(j, json_get(root, "pairs")) expect(
            t, json_str(j, "query", NULL), json_str(j, "document", NULL), most, json_get(j, "ids"));
        tokenizer_free(t);
        cJSON_Delete(root);
    }
    if (skipped)
        TEST_SKIPPED(skipped, "no reference data");
}

/* The second segment has type 1, its end as well; the longer text gives way first. */
static void types_and_cuts_of_a_pair(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const char *path = test_data("embed/bert_mean/tokenizer.json");
    if (!path)
        skip();
    struct tokenizer *t = tokenizer_load(path, &e);
    assert_non_null(t);
    const uint32_t a[] = {1, 2, 3, 4, 5, 6, 7}, b[] = {10, 11, 12};
    struct tok_part x = {a, 7}, y = {b, 3};
    uint32_t ids[16];
    uint8_t types[16];
    assert_int_equal(tok_frame_special(t, true), 3);
    assert_int_equal(tok_frame_special(t, false), 2);
    tok_frame_cut(&x, &y, 8, false);
    assert_int_equal(x.n, 5);
    assert_int_equal(y.n, 3);
    tok_frame(t, &x, &y, ids, types);
    const uint32_t want[] = {320, 1, 2, 3, 4, 5, 321, 10, 11, 12, 321};
    const uint8_t segments[] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
    assert_memory_equal(ids, want, sizeof(want));
    assert_memory_equal(types, segments, sizeof(segments));
    tok_frame_cut(&x, &y, 5, true); /* both: the shorter keeps 2, the longer 3, of their ends */
    assert_int_equal(x.n, 3);
    assert_int_equal(x.id[0], 3);
    assert_int_equal(y.n, 2);
    assert_int_equal(y.id[0], 11);
    tok_frame_cut(&x, NULL, 2, false);
    assert_int_equal(x.n, 2);
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_and_pairs_have_the_ids_of_the_reference),
        cmocka_unit_test(types_and_cuts_of_a_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

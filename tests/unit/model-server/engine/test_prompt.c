/* Truncation keeps the special tokens around a text. The fake tokenizer makes one id of each byte,
 * and puts 1 2 before and 3 after it. */
#include "model-server/engine/prompt.h"
#include "tests/unit/test.h"
#include <string.h>

int tokenizer_encode(const struct tokenizer *t, const char *s, size_t n, unsigned flags,
                     struct tok_scratch **scratch, struct tok_ids *out, struct err *e)
{
    (void)t, (void)scratch;
    bool special = flags & TOK_ADD_SPECIAL;
    free(out->id);
    out->n = 0;
    if (!(out->id = malloc((n + 3) * sizeof(*out->id))))
        return err_nomem(e);
    if (special)
        out->id[out->n++] = 1, out->id[out->n++] = 2;
    for (size_t i = 0; i < n; i++)
        out->id[out->n++] = (uint32_t)s[i];
    if (special)
        out->id[out->n++] = 3;
    return 0;
}
void tok_ids_free(struct tok_ids *ids) { free(ids->id); }

static void expect(const char *text, bool special, uint32_t truncate, const char *want)
{
    struct tok_ids ids = {0};
    struct tok_scratch *scratch = NULL;
    struct err e = ERR_INIT;
    char got[64] = "";
    assert_int_equal(prompt_encode(NULL, text, strlen(text), special, truncate, &scratch, &ids, &e),
                     0);
    for (uint32_t i = 0; i < ids.n; i++)
        got[i] = (char)(ids.id[i] < 10 ? '0' + ids.id[i] : ids.id[i]);
    assert_string_equal(got, want);
    tok_ids_free(&ids);
}

TEST(truncation)
{
    expect("abcdef", true, 0, "12abcdef3");
    expect("abcdef", true, 9, "12abcdef3");
    expect("abcdef", true, 6, "12def3");
    expect("abcdef", true, 4, "12f3");
    expect("abcdef", true, 3, "123");
    expect("abcdef", true, 2, "f3"); /* not even the special ones fit: the last ids */
    expect("abcdef", false, 2, "ef");
    expect("", true, 2, "23");
    expect("aaaa", true, 5, "12aa3");
}

int main(void) { return tests_run(NULL, NULL); }

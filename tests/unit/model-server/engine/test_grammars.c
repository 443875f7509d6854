/* Constraints that no request uses stay compiled, but not without limit. */
#include "common/buf.h"
#include "model-server/engine/grammars.h"
#include "tests/unit/test.h"
#include <malloc.h>
#include <stdlib.h>

enum { EACH = 6000, ASKED = 24 };

/* Asks for, uses and leaves the list of values with this number. */
static void use(struct grammars *g, uint32_t vocab, int number)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    for (int i = 0; i < EACH; i++)
        buf_fmt(&b, "%s\"value %d of list %d\"", i ? "," : "{\"enum\":[", i, number);
    buf_str(&b, "]}");
    struct grammar_spec spec = {.text = b.p, .kind = CONSTRAINT_JSON_SCHEMA};
    struct constraint *c = grammars_get(g, &spec, &e);
    uint32_t *mask = calloc(vocab / 32 + 1, sizeof(*mask));
    assert_non_null(c);
    assert_non_null(mask);
    if (constraint_mask(c, CONSTRAINT_START, grammars_tokens(g), mask, &e))
        fail_msg("%s", e.msg);
    constraint_unref(c);
    free(mask);
    buf_free(&b);
}

static void large_ones_that_are_unused_are_dropped(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct tokenizer *tok = tokenizer_load("models/demo", &e);
    if (!tok)
        fail_msg("%s", e.msg);
    const uint32_t vocab = tokenizer_vocab_size(tok), end = 0;
    struct grammars *g = grammars_new(tok, vocab, &end, 1);
    assert_non_null(g);
    use(g, vocab, 0);
    const size_t first = mallinfo2().uordblks + mallinfo2().hblkhd;
    for (int i = 1; i < ASKED; i++)
        use(g, vocab, i);
    const size_t last = mallinfo2().uordblks + mallinfo2().hblkhd;
    print_message("%zu MB more\n", (last - first) >> 20);
    assert_true(last < first + ((size_t)50 << 20));
    grammars_free(g);
    tokenizer_free(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_ones_that_are_unused_are_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

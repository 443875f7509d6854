/* The constraints of all requests share a budget of memory. */
#include "common/buf.h"
#include "model-server/engine/grammars.h"
#include "tests/unit/test.h"
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

enum { EACH = 6000, ASKED = 24, MB = 1 << 20, BUDGET = 16 * MB };

static struct tokenizer *tok;
static uint32_t vocab, *mask;
static struct grammars *g;

static int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const uint32_t end = 0;
    tok = tokenizer_load("models/demo", &e);
    if (!tok)
        fail_msg("%s", e.msg);
    vocab = tokenizer_vocab_size(tok);
    mask = calloc(vocab / 32 + 1, sizeof(*mask));
    g = grammars_new(tok, vocab, &end, 1, BUDGET);
    assert_non_null(mask);
    assert_non_null(g);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    grammars_free(g);
    tokenizer_free(tok);
    free(mask);
    return 0;
}

static struct constraint *get(enum constraint_kind kind, const char *text)
{
    struct err e = ERR_INIT;
    struct grammar_spec spec = {.text = text, .kind = kind};
    struct constraint *c = grammars_get(g, &spec, &e);
    if (!c)
        fail_msg("%s", e.msg);
    return c;
}

/* The mask after `text`; -1: there is none. */
static int mask_after(struct constraint *c, const char *text, struct err *e)
{
    const constraint_state at = constraint_next(c, CONSTRAINT_START, text, strlen(text));
    memset(mask, 0, (vocab / 32 + 1) * sizeof(*mask));
    return constraint_mask(c, at, grammars_tokens(g), mask, e);
}

static size_t taken(void) { return mallinfo2().uordblks + mallinfo2().hblkhd; }

/* Asks for, uses and leaves the list of values with this number. */
static void use(int number)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    for (int i = 0; i < EACH; i++)
        buf_fmt(&b, "%s\"value %d of list %d\"", i ? "," : "{\"enum\":[", i, number);
    buf_str(&b, "]}");
    struct constraint *c = get(CONSTRAINT_JSON_SCHEMA, b.p);
    if (mask_after(c, "", &e))
        fail_msg("%s", e.msg);
    grammars_put(g, c);
    grammars_settle(g);
    buf_free(&b);
}

TEST_WITH(unused_ones_are_dropped, setup, teardown)
{
    use(0);
    const size_t first = taken();
    for (int i = 1; i < ASKED; i++)
        use(i);
    print_message("%zu MB more\n", (taken() - first) / MB);
    assert_true(taken() < first + BUDGET + (size_t)2 * MB);
    assert_in_range(grammars_stats(g).bytes, 1, BUDGET);
    assert_in_range(grammars_stats(g).dropped, 1, ASKED - 1);
    assert_int_equal(grammars_stats(g).closed, 0);
}

TEST_WITH(small_ones_stay, setup, teardown)
{
    struct constraint *of[3];
    char text[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 3; i++) {
            snprintf(text, sizeof(text), "[a-z]{%d}", i + 1);
            struct constraint *c = get(CONSTRAINT_REGEX, text);
            if (round)
                assert_ptr_equal(c, of[i]);
            of[i] = c;
            grammars_put(g, c);
            grammars_settle(g);
        }
    assert_int_equal(grammars_stats(g).dropped, 0);
}

/* Almost every text leads to another state of the pattern. */
#define GROWS "([a-z ]*[a-m][a-z ]{100}){4}[0-9]"

/* The step before its first mask neither waits for its compilation nor counts it. */
TEST_WITH(one_that_is_compiled_is_not_waited_for, setup, teardown)
{
    struct err e = ERR_INIT;
    struct constraint *c = get(CONSTRAINT_REGEX, GROWS);
    grammars_settle(g);
    assert_int_equal(grammars_stats(g).bytes, 0);
    assert_int_equal(mask_after(c, "a", &e), 0);
    grammars_settle(g);
    assert_true(grammars_stats(g).bytes > 0);
    grammars_put(g, c);
}

/* However small they are. */
TEST_WITH(a_list_of_thousands_has_an_end, setup, teardown)
{
    char text[32];
    for (int i = 0; i < 2000; i++) {
        snprintf(text, sizeof(text), "%d", i);
        grammars_put(g, get(CONSTRAINT_REGEX, text));
        grammars_settle(g);
    }
    assert_in_range(grammars_stats(g).dropped, 1000, 2000);
}

/* Random texts until the constraint has grown by this much. */
static void grow(struct constraint *c, size_t by)
{
    static uint64_t draw = 1;
    const size_t was = constraint_bytes(c);
    for (int i = 0; i < 4000 && constraint_bytes(c) < was + by; i++) {
        constraint_state s = CONSTRAINT_START;
        for (int n = 0; n < 300 && s != CONSTRAINT_DEAD; n++) {
            draw = draw * 6364136223846793005 + 1442695040888963407;
            const char letter = (char)('a' + (draw >> 33) % 26);
            s = constraint_next(c, s, &letter, 1);
        }
    }
    assert_true(constraint_bytes(c) >= was + by);
}

/* Few states in relation to their transitions: one for each number of letters. */
TEST_WITH(one_in_use_loses_what_can_be_computed_again, setup, teardown)
{
    struct err e = ERR_INIT;
    const size_t bytes = (vocab + 31) / 32 * sizeof(*mask);
    struct constraint *c = get(CONSTRAINT_REGEX, "[a-z]{1,100000}");
    constraint_state at = constraint_next(c, CONSTRAINT_START, "so", 2);
    assert_int_equal(constraint_mask(c, at, grammars_tokens(g), mask, &e), 0);
    uint32_t *before = malloc(bytes);
    memcpy(before, mask, bytes);
    while (constraint_bytes(c) <= BUDGET)
        assert_int_not_equal(at = constraint_next(c, at, "x", 1), CONSTRAINT_DEAD);
    const constraint_state far = at;
    grammars_settle(g);
    assert_int_equal(grammars_stats(g).trimmed, 1);
    assert_in_range(grammars_stats(g).bytes, 1, BUDGET);
    assert_int_equal(grammars_stats(g).closed, 0);
    at = constraint_next(c, CONSTRAINT_START, "so", 2);
    memset(mask, 0, bytes);
    assert_int_equal(constraint_mask(c, at, grammars_tokens(g), mask, &e), 0);
    assert_memory_equal(mask, before, bytes);
    assert_int_not_equal(constraint_next(c, far, "x", 1), CONSTRAINT_DEAD);
    free(before);
    grammars_put(g, c);
}

TEST_WITH(the_largest_ends_and_others_go_on, setup, teardown)
{
    struct err e = ERR_INIT;
    struct constraint *small = get(CONSTRAINT_REGEX, "[a-z]+"),
                      *large = get(CONSTRAINT_REGEX, GROWS);
    for (int i = 0; i < 200 && !grammars_stats(g).closed; i++) {
        grow(large, MB);
        grammars_settle(g);
    }
    assert_int_equal(grammars_stats(g).closed, 1);
    assert_int_equal(mask_after(small, "abc", &e), 0);
    assert_int_equal(mask_after(large, "a", &e), -1);
    assert_int_equal(e.kind, ERR_VALIDATION);
    assert_string_equal(e.msg, "the constraint needs too much memory");
    grammars_settle(g); /* it is not closed twice */
    assert_int_equal(grammars_stats(g).closed, 1);
    struct constraint *anew = get(CONSTRAINT_REGEX, GROWS);
    assert_ptr_not_equal(anew, large);
    e = (struct err)ERR_INIT;
    assert_int_equal(mask_after(anew, "a", &e), 0);
    grammars_put(g, anew);
    grammars_put(g, large);
    grammars_put(g, small);
    grammars_settle(g);
    assert_in_range(grammars_stats(g).bytes, 1, MB);
}

int main(void) { return tests_run(NULL, NULL); }

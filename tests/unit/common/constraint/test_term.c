/* Terms against a matcher that is too simple to be wrong: random terms, random texts. */
#include "common/constraint/term.h"
#include "tests/unit/test.h"
#include <pthread.h>
#include <string.h>

/* The same language as a tree, matched by trying everything. */
struct tree {
    enum { SET, CAT, ALT, AND, NOT, REPEAT } op;
    char a, b;       /* SET */
    uint32_t lo, hi; /* REPEAT */
    struct tree *x, *y;
};

static bool matches(const struct tree *t, const char *s, size_t n)
{
    switch (t->op) {
    case SET:
        return n == 1 && (s[0] == t->a || s[0] == t->b);
    case CAT:
        for (size_t i = 0; i <= n; i++)
            if (matches(t->x, s, i) && matches(t->y, s + i, n - i))
                return true;
        return false;
    case ALT:
        return matches(t->x, s, n) || matches(t->y, s, n);
    case AND:
        return matches(t->x, s, n) && matches(t->y, s, n);
    case NOT:
        return !matches(t->x, s, n);
    case REPEAT: {
        struct tree less = *t;
        if (!n && (!t->lo || matches(t->x, s, 0)))
            return true;
        if (!t->hi)
            return false;
        less.lo = t->lo ? t->lo - 1 : 0;
        less.hi = t->hi - 1;
        for (size_t i = 1; i <= n; i++)
            if (matches(t->x, s, i) && matches(&less, s + i, n - i))
                return true;
        /* empty rounds use up counts without using up text */
        return t->lo && matches(t->x, s, 0) && matches(&less, s, n);
    }
    }
    return false;
}

/* `logic`: with intersections and complements. */
static struct tree *random_tree(struct tree **next, int depth, bool logic)
{
    static const int plain[] = {SET, CAT, ALT, REPEAT};
    struct tree *t = (*next)++;
    *t = (struct tree){.op = !depth ? SET : logic ? rand() % 6 : plain[rand() % 4]};
    t->a = (char)('a' + rand() % 3), t->b = (char)('a' + rand() % 3);
    t->lo = (uint32_t)rand() % 3, t->hi = t->lo + (uint32_t)rand() % 3;
    if (t->op != SET)
        t->x = random_tree(next, depth - 1, logic);
    if (t->op == CAT || t->op == ALT || t->op == AND)
        t->y = random_tree(next, depth - 1, logic);
    return t;
}

static term term_of(struct term_pool *p, const struct tree *t)
{
    struct byte_set s = {{0}};
    switch (t->op) {
    case SET:
        byte_set_add(&s, (uint8_t)t->a, (uint8_t)t->a);
        byte_set_add(&s, (uint8_t)t->b, (uint8_t)t->b);
        return term_set(p, &s);
    case CAT:
        return term_cat(p, term_of(p, t->x), term_of(p, t->y));
    case ALT:
        return term_alt(p, term_of(p, t->x), term_of(p, t->y));
    case AND:
        return term_and(p, term_of(p, t->x), term_of(p, t->y));
    case NOT:
        return term_not(p, term_of(p, t->x));
    case REPEAT:
        return term_repeat(p, term_of(p, t->x), t->lo, t->hi);
    }
    return TERM_NONE;
}

TEST(derivatives_match_what_the_language_says)
{
    srand(test_seed(7));
    for (int round = 0; round < 300; round++) {
        struct tree nodes[64], *next = nodes;
        struct term_pool *p = term_pool_new(1 << 24);
        struct tree *tree = random_tree(&next, 1 + rand() % 4, true);
        term t = term_of(p, tree);
        for (int i = 0; i < 121; i++) { /* all texts up to 4 letters of 3 */
            char s[5];
            size_t n = 0;
            for (int k = i; k; k = (k - 1) / 3)
                s[n++] = (char)('a' + (k - 1) % 3);
            term end = term_after_all(p, t, s, n);
            assert_int_equal(term_nullable(p, end), matches(tree, s, n));
            for (uint32_t fine = 1; fine < 4; fine++) { /* coarser counts bound it */
                term under, over;
                term_coarse(p, t, 4, fine, &under, &over);
                if (term_after_all(p, under, s, n) != TERM_NONE)
                    assert_int_not_equal(end, TERM_NONE);
                if (end != TERM_NONE)
                    assert_int_not_equal(term_after_all(p, over, s, n), TERM_NONE);
            }
        }
        assert_false(term_full(p));
        term_pool_free(p);
    }
}

TEST(dead_ends_are_seen_before_they_are_entered)
{
    struct term_pool *p = term_pool_new(1 << 24);
    struct byte_set a = {{0}}, ab = {{0}};
    byte_set_add(&a, 'a', 'a');
    byte_set_add(&ab, 'a', 'b');
    term as = term_repeat(p, term_set(p, &a), 3, TERM_UNBOUNDED);
    term two = term_repeat(p, term_set(p, &ab), 0, 2);
    assert_false(term_possible(p, term_and(p, as, two)));
    term three = term_and(p, as, term_repeat(p, term_set(p, &ab), 0, 3));
    assert_true(term_possible(p, three));
    assert_int_equal(term_after(p, three, 'b'), TERM_NONE); /* b could begin two of three */
    assert_int_not_equal(term_after(p, three, 'a'), TERM_NONE);
    term_pool_free(p);
}

enum { LETTERS = 5, TEXTS = 364 }; /* all texts up to 5 letters of 3 */

static size_t nth_text(int i, char s[LETTERS])
{
    size_t n = 0;
    for (; i; i = (i - 1) / 3)
        s[n++] = (char)('a' + (i - 1) % 3);
    return n;
}

/* A text within the bounds that has s[..n) at its beginning. */
static bool can_be_completed(const bool fits[TEXTS], const char *s, size_t n)
{
    for (int i = 0; i < TEXTS; i++) {
        char text[LETTERS];
        if (fits[i] && nth_text(i, text) >= n && memcmp(text, s, n) == 0)
            return true;
    }
    return false;
}

/* One of three letters is a character. */
TEST(lengths_decide_what_can_be_completed)
{
    srand(test_seed(11));
    for (int round = 0; round < 400; round++) {
        struct tree nodes[64], *next = nodes;
        struct term_pool *p = term_pool_new(1 << 24);
        struct tree *tree = random_tree(&next, 1 + rand() % 5, false);
        struct byte_set abc = {{0}};
        byte_set_add(&abc, 'a', 'c');
        const term one = term_set(p, &abc);
        if (round % 2)
            term_character(p, one); /* otherwise by a search */
        const uint32_t hi = (uint32_t)rand() % (LETTERS + 1), lo = (uint32_t)rand() % (hi + 1);
        const term both = term_and(p, term_of(p, tree), term_repeat(p, one, lo, hi));
        bool fits[TEXTS];
        for (int i = 0; i < TEXTS; i++) {
            char s[LETTERS];
            const size_t n = nth_text(i, s);
            fits[i] = n >= lo && n <= hi && matches(tree, s, n);
        }
        assert_int_equal(term_possible(p, both), can_be_completed(fits, "", 0));
        for (int i = 0; i < TEXTS && term_possible(p, both); i++) {
            char s[LETTERS];
            const size_t n = nth_text(i, s);
            assert_int_equal(term_after_all(p, both, s, n) != TERM_NONE,
                             can_be_completed(fits, s, n));
        }
        term_pool_free(p);
    }
}

/* A search for the end would need as many derivatives as the text has letters, for each state. */
TEST(a_length_costs_no_search)
{
    struct term_pool *p = term_pool_new(1 << 24);
    struct byte_set any = {{0}};
    byte_set_add(&any, 'a', 'c');
    const term one = term_set(p, &any), a = term_bytes_of(p, "a", 1), b = term_bytes_of(p, "b", 1);
    term_character(p, one);
    const term t = term_cat(p, term_repeat(p, a, 3000, 3000), term_repeat(p, b, 3000, 3000));
    term_budget(p, 2000);
    assert_true(term_possible(p, term_and(p, t, term_repeat(p, one, 0, 6000))));
    assert_false(term_possible(p, term_and(p, t, term_repeat(p, one, 0, 5999))));
    assert_false(term_possible(p, term_and(p, t, term_repeat(p, one, 6001, 9000))));
    term both = term_and(p, t, term_repeat(p, one, 0, 9000));
    for (int i = 0; i < 100; i++)
        both = term_after(p, both, 'a');
    assert_int_not_equal(both, TERM_NONE);
    assert_int_equal(term_after(p, both, 'b'), TERM_NONE);
    assert_false(term_spent(p));
    term_pool_free(p);
}

TEST(rules_nest_and_those_without_end_disappear)
{
    struct term_pool *p = term_pool_new(1 << 24);
    term open = term_bytes_of(p, "(", 1), close = term_bytes_of(p, ")", 1);
    term nest = term_rule(p, false), endless = term_rule(p, false);
    term inner = term_opt(p, nest);
    term_define(p, nest, term_cat(p, open, term_cat(p, inner, close)));
    term_define(p, endless, term_cat(p, open, term_cat(p, endless, close)));
    assert_int_equal(term_close(p, endless), TERM_NONE);
    term t = term_close(p, term_alt(p, nest, term_cat(p, term_bytes_of(p, "x", 1), endless)));
    assert_int_equal(term_after(p, t, 'x'), TERM_NONE);
    assert_true(term_nullable(p, term_after_all(p, t, "((()))", 6)));
    assert_false(term_nullable(p, term_after_all(p, t, "((())", 5)));
    assert_int_equal(term_after_all(p, t, "())", 3), TERM_NONE);
    term_pool_free(p);
}

TEST(a_full_pool_says_so)
{
    struct term_pool *p = term_pool_new(1 << 16);
    term t = TERM_EMPTY;
    for (int i = 0; i < 100000 && !term_full(p); i++)
        t = term_cat(p, term_bytes_of(p, (char[]){(char)('a' + i % 7), 'x'}, 2), t);
    assert_true(term_full(p));
    assert_true(term_bytes(p) <= 1 << 16);
    term_pool_free(p);
}

enum { CHAIN = 100000 };

static void *make_long_chains(void *arg)
{
    struct term_pool *p = arg;
    struct byte_set a = {{0}};
    static char text[2 * CHAIN];
    memset(text, 'x', sizeof(text));
    term both = term_cat(p, term_bytes_of(p, text, sizeof(text)), term_bytes_of(p, "b", 1));
    assert_int_equal(both, term_cat(p, term_bytes_of(p, text, sizeof(text) / 2),
                                    term_cat(p, term_bytes_of(p, text, sizeof(text) / 2),
                                             term_bytes_of(p, "b", 1))));
    term end = term_after_all(p, both, text, sizeof(text));
    assert_int_equal(end, term_bytes_of(p, "b", 1));
    byte_set_add(&a, 'a', 'a');
    term optional = term_opt(p, term_set(p, &a)), t = end;
    for (int i = 0; i < CHAIN; i++)
        t = term_cat(p, optional, t);
    assert_int_equal(term_after(p, t, 'b'), TERM_EMPTY);
    assert_int_equal(term_after(p, t, 'c'), TERM_NONE);
    term_character(p, term_set(p, &a));
    assert_true(term_possible(p, term_and(p, t, term_repeat(p, term_set(p, &a), 5, 9))));
    assert_false(term_full(p));
    return NULL;
}

/* Neither to join nor to derive: threads of the programs have 8 MiB at most, and this one less. */
TEST(long_chains_need_no_stack)
{
    struct term_pool *p = term_pool_new(1 << 28);
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, make_long_chains, p), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    term_pool_free(p);
}

TEST(a_spent_budget_ends_a_chain)
{
    struct term_pool *p = term_pool_new(1 << 24);
    term a = term_bytes_of(p, "abcdefgh", 8), b = term_bytes_of(p, "x", 1);
    term_budget(p, 0);
    assert_int_equal(term_cat(p, a, b), TERM_NONE);
    term_budget(p, 100);
    term t = term_cat(p, a, b);
    assert_int_equal(t, term_bytes_of(p, "abcdefghx", 9));
    assert_false(term_spent(p));
    term_pool_free(p);
}

/* A budget limits time only if sorting many alternatives costs more steps than there are. */
TEST(sorting_alternatives_is_charged)
{
    enum { WORDS = 4000 };
    static term word[WORDS];
    struct term_pool *p = term_pool_new(1 << 26);
    for (uint32_t i = 0; i < WORDS; i++)
        word[i] = term_bytes_of(p, (uint8_t[]){(uint8_t)(i * 7), (uint8_t)(i * 7 >> 8), 'x'}, 3);
    term_budget(p, 3 * WORDS);
    term_alt_n(p, word, WORDS);
    assert_true(term_spent(p));
    term_budget(p, 20 * WORDS);
    term all = term_alt_n(p, word, WORDS);
    assert_false(term_spent(p));
    term_budget(p, WORDS);
    term_alt(p, all, term_bytes_of(p, "y", 1));
    assert_false(term_spent(p)); /* common heads have made it short */
    term_pool_free(p);
}

int main(void) { return tests_run(NULL, NULL); }

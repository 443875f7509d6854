/* Masks of random patterns beside those of a plain automaton: Thompson's, its counts written out.
 */
#include "common/buf.h"
#include "common/constraint/constraint.h"
#include "tests/unit/test.h"
#include <string.h>

enum { VOCAB = 900, WORDS = (VOCAB + 31) / 32, END = 5, STATES = 6000, PATTERNS = 200 };

static uint32_t below(uint32_t n) { return (uint32_t)rand() % n; }

/* ---------------------------------------------------------------- the plain automaton */

struct state { /* a byte of `set` leads to the next state; or, without one, `a` and `b` follow */
    bool set[256];
    bool takes;
    int a, b; /* -1: none */
};
struct automaton {
    struct state at[STATES];
    int n;
    struct buf text; /* the same as a pattern */
};

static int add(struct automaton *x, int a, int b)
{
    if (x->n == STATES)
        return -1;
    x->at[x->n] = (struct state){.a = a, .b = b};
    return x->n++;
}

static const char letters[] = "abcdkxyzABKZ0179 -_.";

/* A set of letters, as ranges and single ones; then `to`. */
static int random_set(struct automaton *x, int to, bool write)
{
    static const char *const sets[] = {"[a-z]", "[a-d]",       "[A-Z]", "[0-9]",      "[a-zA-Z0-9]",
                                       "[ -]",  "[b-kx]",      "[aZ7]", "[a-z0-9._]", "[A-Za-z ]",
                                       "[yz]",  "[a-ce-zA-Z]", "[k]"};
    const char *text = sets[below(sizeof(sets) / sizeof(*sets))];
    int s = add(x, to, -1);
    if (write)
        buf_str(&x->text, text);
    if (s < 0)
        return s;
    x->at[s].takes = true;
    for (const char *c = text + 1; *c != ']'; c++) {
        unsigned char last = (unsigned char)(c[1] == '-' && c[2] != ']' ? c[2] : c[0]);
        for (unsigned b = (unsigned char)c[0]; b <= last; b++)
            x->at[s].set[b] = true;
        c += last != (unsigned char)c[0] ? 2 : 0;
    }
    return s;
}

/* Letters, now and then one of two bytes; then `to`. */
static int random_text(struct automaton *x, int to, bool write)
{
    char text[8] = "\xc3\xa9";
    size_t n = below(6) ? 1 + below(3) : 0;
    for (size_t i = 0; i < n; i++)
        text[i] = letters[below(16)]; /* no point, no hyphen: they mean something */
    n = n ? n : 2;
    text[n] = '\0';
    if (write)
        buf_str(&x->text, text);
    for (size_t i = n; i-- > 0 && to >= 0;) {
        to = add(x, to, -1);
        if (to < 0)
            return to;
        x->at[to].takes = true;
        x->at[to].set[(unsigned char)text[i]] = true;
    }
    return to;
}

static int random_part(struct automaton *x, int depth, int to, bool write);

/* `lo` to `hi` times (hi < 0: no end), the copies made from one seed. */
static int repeat(struct automaton *x, int depth, int lo, int hi, int to, bool write)
{
    const unsigned seed = (unsigned)rand();
    int end = to, times = hi < 0 ? lo + 1 : hi;
    for (int i = times; i > 0 && to >= 0; i--) {
        int loop = i == times && hi < 0 ? add(x, -1, end) : -1;
        srand(seed);
        int one = random_part(x, depth - 1, loop >= 0 ? loop : to, write && i == times);
        if (loop >= 0)
            x->at[loop].a = one, to = loop;
        else
            to = i > lo ? add(x, one, end) : one;
    }
    return to;
}

static int random_part(struct automaton *x, int depth, int to, bool write)
{
    uint32_t kind = depth > 0 ? below(6) : below(2);
    if (to < 0 || kind == 0)
        return to < 0 ? to : random_set(x, to, write);
    if (kind == 1)
        return random_text(x, to, write);
    if (kind ==
        2) { /* one behind the other: the later one is made first, and its text put behind */
        struct buf before = x->text;
        x->text = (struct buf)BUF_INIT;
        to = random_part(x, depth - 1, to, write);
        struct buf behind = x->text;
        x->text = before;
        to = random_part(x, depth - 1, to, write);
        buf_add(&x->text, behind.p, behind.len);
        buf_free(&behind);
        return to;
    }
    if (write)
        buf_str(&x->text, "(");
    if (kind == 3) {
        int a = random_part(x, depth - 1, to, write);
        if (write)
            buf_str(&x->text, "|");
        int b = random_part(x, depth - 1, to, write);
        to = a < 0 || b < 0 ? -1 : add(x, a, b);
        if (write)
            buf_str(&x->text, ")");
        return to;
    }
    int lo = (int)below(3), hi = kind == 4 ? -1 : lo + 1 + (int)below(below(4) ? 4 : 60);
    to = repeat(x, depth, lo, hi, to, write);
    if (write && hi < 0)
        buf_fmt(&x->text, "){%d,}", lo);
    else if (write)
        buf_fmt(&x->text, "){%d,%d}", lo, hi);
    return to;
}

/* ---------------------------------------------------------------- sets of its states */

struct set {
    bool in[STATES];
    int at[STATES], n;
};

static void enter(const struct automaton *x, struct set *s, int state)
{
    int stack[STATES + 1], n = 0;
    for (stack[n++] = state; n;) {
        int i = stack[--n];
        if (i < 0 || s->in[i])
            continue;
        s->in[i] = true;
        s->at[s->n++] = i;
        if (!x->at[i].takes && n + 2 <= STATES)
            stack[n++] = x->at[i].a, stack[n++] = x->at[i].b;
    }
}

/* What `from` becomes by a text; false: nothing is left. */
static bool read_text(const struct automaton *x, const struct set *from, const char *text, size_t n,
                      struct set *to)
{
    static struct set a, b;
    a = *from;
    for (size_t i = 0; i < n && a.n; i++) {
        memset(b.in, 0, sizeof(b.in));
        b.n = 0;
        for (int k = 0; k < a.n; k++)
            if (x->at[a.at[k]].takes && x->at[a.at[k]].set[(unsigned char)text[i]])
                enter(x, &b, x->at[a.at[k]].a);
        a = b;
    }
    if (to)
        *to = a;
    return a.n > 0;
}

/* ---------------------------------------------------------------- the test */

static char bytes[VOCAB][72];
static struct token_text text[VOCAB];

static void make_vocabulary(void)
{
    for (int i = 0; i < VOCAB; i++) {
        size_t n = 1 + below(6);
        for (size_t k = 0; k < n; k++)
            bytes[i][k] = letters[below(sizeof(letters) - 1)];
        if (i < 256)
            bytes[i][0] = (char)i, n = 1;
        if (i >= VOCAB - 60) /* long runs */
            memset(bytes[i], letters[(i - VOCAB + 60) % 20], n = 8 + (size_t)below(60));
        if (i >= 256 && i % 50 == 49)
            memcpy(bytes[i], "\xc3\xa9", 2), n = n < 2 ? 2 : n;
        text[i] = (struct token_text){bytes[i], (uint32_t)n};
    }
    text[END].n = 0;
}

static void check(const struct automaton *x, const struct set *at, const uint32_t *mask)
{
    for (uint32_t i = 0; i < VOCAB; i++) {
        bool want = i == END ? at->in[0] : text[i].n && read_text(x, at, bytes[i], text[i].n, NULL);
        if (want != (mask[i / 32] >> i % 32 & 1))
            fail_msg("%s: token %u (%.*s) should be %s", x->text.p, i, (int)text[i].n, bytes[i],
                     want ? "allowed" : "refused");
    }
}

/* false: a count of counts was too complex, which is an answer, too. */
static bool walk(const struct automaton *x, struct constraint *c, const struct token_set *set)
{
    static struct set at;
    struct err e = ERR_INIT;
    constraint_state s = CONSTRAINT_START;
    memset(&at, 0, sizeof(at));
    enter(x, &at, x->n - 1);
    for (int k = 0; k < 6; k++) {
        uint32_t mask[WORDS], pick;
        if (constraint_mask(c, s, set, mask, &e)) {
            if (!strstr(e.msg, "too complex"))
                fail_msg("%s: %s", x->text.p, e.msg);
            return false;
        }
        check(x, &at, mask);
        for (pick = below(VOCAB); !(mask[pick / 32] >> pick % 32 & 1);)
            pick = (pick + 1) % VOCAB;
        if (pick == END)
            return true;
        s = constraint_next(c, s, bytes[pick], text[pick].n);
        assert_true(read_text(x, &at, bytes[pick], text[pick].n, &at));
    }
    return true;
}

TEST(masks_are_those_of_the_plain_automaton)
{
    static struct automaton x;
    const unsigned seed = test_seed(11);
    int checked = 0;
    srand(seed);
    make_vocabulary();
    struct token_set *set = token_set_new(text, VOCAB, (uint32_t[]){END}, 1);
    assert_non_null(set);
    for (unsigned i = 0; i < PATTERNS; i++) {
        struct err e = ERR_INIT;
        srand(seed + i);
        x.n = 0;
        x.text = (struct buf)BUF_INIT;
        int end = add(&x, -1, -1), start = random_part(&x, 4, end, true);
        if (start >= 0 && add(&x, start, -1) >= 0) {
            struct constraint *c = constraint_new(CONSTRAINT_REGEX, x.text.p, x.text.len, &e);
            if (!c)
                fail_msg("%s: %s", x.text.p, e.msg);
            bool whole = walk(&x, c, set) && walk(&x, c, set);
            constraint_unref(c);
            checked += whole;
        }
        buf_free(&x.text);
    }
    assert_in_range(checked, PATTERNS * 3 / 4, PATTERNS);
    token_set_free(set);
}

int main(void) { return tests_run(NULL, NULL); }

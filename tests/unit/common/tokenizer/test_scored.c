/* The merges that scores stand for: all of them, in the order of the definition. */
#include "common/tokenizer/scored.h"
#include "common/tokenizer/vocab.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { PIECES = 400, LONGEST = 6 };

struct made {
    char text[PIECES][3 * LONGEST + 1];
    struct scored_piece piece[PIECES];
};

/* Few letters, one of them of three bytes, so that most parts of a piece are pieces, and few
 * scores, so that most are equal. Every seventh piece takes no part. */
static void make(struct made *m, uint32_t seed)
{
    static const char *const letters[] = {"a", "b", "\xE2\x96\x81"};
    uint32_t n = 0;
    while (n < PIECES) {
        char *s = m->text[n];
        s[0] = 0;
        seed = seed * 1664525 + 1013904223;
        const uint32_t chars = 1 + (seed >> 16) % LONGEST;
        for (uint32_t i = 0; i < chars; i++) {
            seed = seed * 1664525 + 1013904223;
            strcat(s, letters[(seed >> 16) % 3]);
        }
        bool again = false;
        for (uint32_t i = 0; i < n; i++)
            again |= strcmp(m->text[i], s) == 0;
        if (again)
            continue;
        m->piece[n] = (struct scored_piece){s, n % 7 ? strlen(s) : 0, -(float)(seed >> 16 & 7)};
        n++;
    }
}

struct wanted {
    float score;
    uint32_t left_chars, right_chars, id, left, right;
};

/* The definition of scored.h. */
static int in_order(const void *a, const void *b)
{
    const struct wanted *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->left_chars != y->left_chars)
        return x->left_chars > y->left_chars ? -1 : 1;
    if (x->right_chars != y->right_chars)
        return x->right_chars > y->right_chars ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

static uint32_t chars_of(const struct scored_piece *p)
{
    uint32_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += (p->p[i] & 0xC0) != 0x80;
    return n;
}

/* Tries every pair of pieces. */
static size_t by_definition(const struct made *m, struct wanted *w)
{
    size_t n = 0;
    for (uint32_t id = 0; id < PIECES; id++)
        for (uint32_t l = 0; l < PIECES; l++)
            for (uint32_t r = 0; r < PIECES; r++) {
                const struct scored_piece *x = &m->piece[id], *a = &m->piece[l], *b = &m->piece[r];
                if (!a->n || !b->n || a->n + b->n != x->n || memcmp(x->p, a->p, a->n) ||
                    memcmp(x->p + a->n, b->p, b->n))
                    continue;
                w[n++] = (struct wanted){x->score, chars_of(a), chars_of(b), id, l, r};
            }
    qsort(w, n, sizeof(*w), in_order);
    return n;
}

static void expect(const struct made *m, const struct vocab *ids)
{
    static struct wanted w[PIECES * LONGEST];
    struct err e = ERR_INIT;
    struct scored_merge *got;
    size_t count;
    const size_t n = by_definition(m, w);
    assert_int_equal(scored_merges(m->piece, PIECES, ids, &got, &count, &e), 0);
    assert_int_equal(count, n);
    assert_true(n > PIECES / 2);
    for (size_t i = 0; i < n; i++)
        if (got[i].id != w[i].id || got[i].left != w[i].left || got[i].right != w[i].right ||
            got[i].cut != m->piece[w[i].left].n)
            fail_msg("merge %zu: %u = %u %u instead of %u = %u %u", i, got[i].id, got[i].left,
                     got[i].right, w[i].id, w[i].left, w[i].right);
    free(got);
}

TEST(all_merges_in_order)
{
    static struct made m;
    struct vocab ids = {0};
    struct err e = ERR_INIT;
    make(&m, 1);
    expect(&m, NULL);
    for (uint32_t id = 0; id < PIECES; id++) /* with those that take no part */
        assert_int_equal(vocab_put(&ids, m.text[id], strlen(m.text[id]), id, &e), 0);
    assert_true(vocab_unique(&ids));
    expect(&m, &ids);
    vocab_free(&ids);
}

/* A score for each piece, ascending with their ids or descending. */
TEST(scores_in_either_direction)
{
    static struct made m;
    make(&m, 2);
    for (int down = 0; down < 2; down++) {
        for (uint32_t id = 0; id < PIECES; id++)
            m.piece[id].score = (float)(down ? PIECES / 2 - (int)id : (int)id - PIECES / 2);
        expect(&m, NULL);
    }
}

TEST(no_pieces_no_merges)
{
    struct err e = ERR_INIT;
    struct scored_merge *got;
    size_t count = 1;
    assert_int_equal(scored_merges(NULL, 0, NULL, &got, &count, &e), 0);
    assert_int_equal(count, 0);
    free(got);
}

int main(void) { return tests_run(NULL, NULL); }

/* A part of a step as a step of its own: nothing lost, nothing twice, spans cut where it ends. */
#include "model-server/model/pass.h"
#include "tests/unit/test.h"

enum { TOKENS = 40, SPANS = 4, OUTS = 3 };
static uint32_t ids[TOKENS], pos[TOKENS], slots[TOKENS];
static const uint32_t out_rows[OUTS] = {9, 10, 39}, blocks[2] = {3, 4};
/* a chunk of a prompt of 30, two decodes, a whole prompt */
static const struct span spans[SPANS] = {{0, 10, 25, blocks, 30, 0, 1, 2},
                                         {10, 1, 7, blocks, 0, 0, 3, 4},
                                         {11, 1, 500, blocks, 500, 0, 5, 6},
                                         {12, 28, 28, blocks, 0, 0, 7, 8}};

static struct ragged step(void)
{
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = 100 + i, pos[i] = 200 + i, slots[i] = 300 + i;
    return (struct ragged){TOKENS, SPANS, OUTS, ids, pos, slots, spans, out_rows};
}

/* The last position of a row, and the length that its rotation sees: by the span it is in. */
static void row_of(const struct ragged *b, uint32_t row, uint32_t *at, uint32_t *length)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i];
        if (row < s->first || row >= s->first + s->n)
            continue;
        found++;
        *at = s->kv_len - s->n + (row - s->first);
        *length = s->seq_len > s->kv_len ? s->seq_len : s->kv_len;
        assert_ptr_equal(s->blocks, blocks);
    }
    assert_int_equal(found, 1);
}

/* A span that was cut goes on from the state that its first part has left. */
static void states_go_on(const struct ragged *b, uint32_t from)
{
    for (uint32_t i = 0; i < b->n_spans; i++) {
        const struct span *s = &b->spans[i], *whole = spans;
        while (whole->state_out != s->state_out)
            whole++;
        const bool cut = from + s->first > whole->first;
        assert_int_equal(s->state_in, cut ? whole->state_out : whole->state_in);
    }
}

TEST(passes_are_the_step)
{
    struct ragged b = step();
    for (uint32_t most = 1; most <= TOKENS; most++) {
        uint32_t outs = 0;
        for (uint32_t from = 0, to; from < TOKENS; from = to) {
            struct span cut[TOKENS];
            uint32_t rows[TOKENS];
            to = from + most < TOKENS ? from + most : TOKENS;
            struct ragged p = pass_cut(&b, from, to, cut, rows);
            assert_int_equal(p.n_tokens, to - from);
            assert_ptr_equal(p.spans, cut);
            states_go_on(&p, from);
            for (uint32_t i = 0; i < p.n_tokens; i++) {
                uint32_t at, length, want_at, want_length;
                assert_int_equal(p.ids[i], ids[from + i]);
                assert_int_equal(p.pos[i], pos[from + i]);
                assert_int_equal(p.slots[i], slots[from + i]);
                row_of(&p, i, &at, &length);
                row_of(&b, from + i, &want_at, &want_length);
                assert_int_equal(at, want_at);
                assert_int_equal(length, want_length);
            }
            for (uint32_t i = 0; i < p.n_out; i++, outs++)
                assert_int_equal(p.out_rows[i] + from, out_rows[outs]);
        }
        assert_int_equal(outs, OUTS);
    }
}

/* Each row of output is a sequence's next token: its position, its length, its adapter's span. */
TEST(rows_of_output_are_a_step)
{
    const struct ragged b = step();
    struct span each[OUTS];
    uint32_t words[PASS_ROW_WORDS * OUTS];
    const struct ragged p = pass_rows(&b, words, each);
    assert_int_equal(p.n_tokens, OUTS);
    assert_int_equal(p.n_spans, OUTS);
    assert_int_equal(p.n_out, OUTS);
    for (uint32_t i = 0; i < OUTS; i++) {
        uint32_t at, length, want_at, want_length;
        assert_int_equal(p.ids[i], ids[out_rows[i]]);
        assert_int_equal(p.pos[i], pos[out_rows[i]]);
        assert_int_equal(p.slots[i], slots[out_rows[i]]);
        assert_int_equal(p.out_rows[i], i);
        assert_int_equal(p.spans[i].first, i);
        assert_int_equal(p.spans[i].n, 1);
        row_of(&p, i, &at, &length);
        row_of(&b, out_rows[i], &want_at, &want_length);
        assert_int_equal(at, want_at);
        assert_int_equal(length, want_length);
    }
}

int main(void) { return tests_run(NULL, NULL); }

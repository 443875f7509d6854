/* The accounting of state cells: by hand, and at random beside a plain list of owners. */
#include "router/scheduler/cells.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(a_sequence_gets_two_cells_or_none)
{
    struct cells *c = cells_new(5, 10);
    uint32_t a[2], b[2], none[2] = {77, 77};
    assert_true(cells_take(c, a) && cells_take(c, b));
    assert_true(a[0] == 0 && a[1] == 1 && b[0] == 2 && b[1] == 3);
    assert_false(cells_room(c, NO_CELL));
    assert_false(cells_take(c, none)); /* one is left */
    assert_int_equal(none[0], 77);
    cells_check(c);
    cells_give(c, a);
    assert_true(cells_take(c, none));
    cells_give(c, none);
    cells_give(c, b);
    assert_int_equal(cells_stats(c).free, 5);
    cells_check(c);
    cells_free(c);
}

TEST(snapshots_are_given_up_coldest_first)
{
    struct cells *c = cells_new(4, 10);
    uint32_t own[2], at[4];
    for (uint32_t b = 0; b < 4; b++)
        at[b] = cells_save(c, b, false);
    assert_true(cells_pending(c, at[0]));
    cells_saved(c);
    assert_false(cells_pending(c, at[0]));
    cells_hold(c, at[0]); /* now the warmest */
    cells_release(c, at[0]);
    assert_true(cells_take(c, own));
    assert_int_equal(cells_of(c, 0), at[0]);
    assert_int_equal(cells_of(c, 1), NO_CELL);
    assert_int_equal(cells_of(c, 2), NO_CELL);
    assert_int_equal(cells_of(c, 3), at[3]);
    assert_int_equal(cells_stats(c).evictions, 2);
    assert_int_equal(cells_save(c, 5, false), at[3]); /* a newer one is worth more */
    assert_int_equal(cells_of(c, 3), NO_CELL);
    cells_check(c);
    cells_free(c);
}

TEST(what_is_held_stays_until_it_is_let_go)
{
    struct cells *c = cells_new(4, 10);
    uint32_t own[2], cell = cells_save(c, 3, false), other = cells_save(c, 4, false);
    cells_saved(c);
    cells_hold(c, cell);
    cells_hold(c, cell);
    assert_true(cells_room(c, other));
    assert_true(cells_take(c, own));
    assert_false(cells_room(c, NO_CELL));
    cells_drop(c, 3); /* its block was evicted, or all is forgotten */
    assert_int_equal(cells_of(c, 3), NO_CELL);
    cells_check(c);
    cells_release(c, cell);
    assert_int_equal(cells_stats(c).free, 0);
    cells_release(c, cell);
    assert_int_equal(cells_stats(c).free, 1);
    cells_check(c);
    cells_free(c);
}

TEST(a_save_that_failed_leaves_nothing)
{
    struct cells *c = cells_new(3, 10);
    uint32_t good = cells_save(c, 1, false);
    cells_saved(c);
    uint32_t bad = cells_save(c, 2, false);
    cells_unsaved(c);
    assert_int_equal(cells_of(c, 1), good);
    assert_int_equal(cells_of(c, 2), NO_CELL);
    assert_false(cells_pending(c, bad));
    assert_int_equal(cells_stats(c).snapshots, 1);
    cells_check(c);
    cells_free(c);
}

TEST(rolling_ones_take_half_of_what_nobody_owns)
{
    struct cells *c = cells_new(8, 10);
    uint32_t own[2];
    assert_true(cells_take(c, own));
    for (uint32_t b = 0; b < 3; b++)
        assert_int_not_equal(cells_save(c, b, true), NO_CELL);
    assert_int_equal(cells_save(c, 3, true), NO_CELL);
    assert_int_not_equal(cells_save(c, 4, false), NO_CELL);
    cells_settle(c, 1); /* that request has ended */
    assert_int_not_equal(cells_save(c, 3, true), NO_CELL);
    cells_check(c);
    cells_free(c);
}

TEST(without_cells_there_are_none)
{
    struct cells *c = cells_new(0, 10);
    uint32_t own[2];
    assert_false(cells_take(c, own));
    assert_int_equal(cells_save(c, 1, false), NO_CELL);
    cells_check(c);
    cells_free(c);
}

/* ------------------------------------------------ at random */
enum { CELLS = 9, BLOCKS = 30, SEQS = 6, HOLDERS = 4, STEPS = 200000 };

struct book { /* what must be so */
    bool owned[SEQS];
    uint32_t own[SEQS][2];
    uint32_t held[HOLDERS]; /* cell + 1 */
    uint32_t n_taken, n_saved, n_refused;
};

static uint32_t rnd_state;
static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(rnd_state >> 4) * n >> 28);
}

/* No sequence has a cell that another one owns or holds. */
static void check_new(struct book *k, uint32_t cell)
{
    assert_true(cell < CELLS);
    for (int i = 0; i < SEQS; i++)
        assert_false(k->owned[i] && (k->own[i][0] == cell || k->own[i][1] == cell));
    for (int i = 0; i < HOLDERS; i++)
        assert_int_not_equal(k->held[i], cell + 1);
}

static void sequences(struct cells *c, struct book *k)
{
    uint32_t i = rnd(SEQS), got[2];
    if (k->owned[i]) {
        k->owned[i] = false;
        cells_give(c, k->own[i]);
        return;
    }
    bool room = cells_room(c, NO_CELL);
    assert_true(cells_take(c, got) == room);
    k->n_refused += !room;
    if (!room)
        return;
    assert_int_not_equal(got[0], got[1]);
    check_new(k, got[0]);
    check_new(k, got[1]);
    k->owned[i] = true;
    memcpy(k->own[i], got, sizeof(got));
    k->n_taken++;
}

static void snapshots(struct cells *c, struct book *k)
{
    uint32_t b = rnd(BLOCKS), cell = cells_of(c, b);
    if (cell == NO_CELL) {
        cell = cells_save(c, b, rnd(2));
        if (cell == NO_CELL)
            return;
        check_new(k, cell);
        assert_int_equal(cells_of(c, b), cell);
        assert_true(cells_pending(c, cell));
        k->n_saved++;
    } else if (rnd(4) == 0) {
        cells_drop(c, b);
        assert_int_equal(cells_of(c, b), NO_CELL);
    } else {
        cells_settle(c, b);
    }
}

static void holders(struct cells *c, struct book *k)
{
    uint32_t i = rnd(HOLDERS), cell = cells_of(c, rnd(BLOCKS));
    if (k->held[i]) {
        cells_release(c, k->held[i] - 1);
        k->held[i] = 0;
    } else if (cell != NO_CELL && !cells_pending(c, cell)) {
        cells_hold(c, cell);
        k->held[i] = cell + 1;
    }
}

TEST(at_random_no_cell_is_lost_or_had_twice)
{
    for (uint32_t seed = 1; seed <= 3; seed++) {
        struct cells *c = cells_new(CELLS, BLOCKS);
        struct book k = {.n_taken = 0};
        rnd_state = seed;
        for (int step = 0; step < STEPS; step++) {
            uint32_t what = rnd(100);
            if (what < 30)
                sequences(c, &k);
            else if (what < 65)
                snapshots(c, &k);
            else if (what < 85)
                holders(c, &k);
            else if (what < 97)
                cells_saved(c);
            else if (what < 99)
                cells_unsaved(c);
            else if (rnd(20) == 0)
                cells_forget(c);
            cells_check(c);
        }
        assert_true(k.n_taken > 1000 && k.n_saved > 1000 && k.n_refused > 100);
        assert_true(cells_stats(c).evictions > 1000);
        for (int i = 0; i < SEQS; i++)
            if (k.owned[i])
                cells_give(c, k.own[i]);
        for (int i = 0; i < HOLDERS; i++)
            if (k.held[i])
                cells_release(c, k.held[i] - 1);
        cells_forget(c);
        cells_check(c);
        assert_int_equal(cells_stats(c).free, CELLS);
        cells_free(c);
    }
}

int main(void) { return tests_run(NULL, NULL); }

/* The accounting of blocks at random, beside a device that records what was computed where: a hit
 * is what its request would have computed, and stays so as long as the request holds it. */
#include "router/scheduler/kv/blocks.h"
#include "tests/unit/test.h"
#include <string.h>

enum { SEQS = 10, LONG = 40, BLOCKS = 48, BT = 4, CELLS = 22, WINDOWS = 26, WINDOW = 9 };
struct walker {
    struct kv_table t;
    uint32_t tok[LONG], n, computed, adapter;
    bool live, fresh;
};
static uint32_t n_copies, n_saves, n_from;
/* What the device holds, per slot: token + 1, and for whom. 0: nothing. */
struct device {
    uint64_t slot[BLOCKS * BT];
    uint64_t state[CELLS]; /* the same hash, of all tokens so far; 0: of none */
    bool owned[CELLS];
    uint64_t window[WINDOWS * BT]; /* the same as slot, in the cache of windows */
};

static uint32_t rnd_state;
static uint32_t rnd(uint32_t n)
{
    rnd_state = rnd_state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(rnd_state >> 4) * n >> 28);
}

static uint64_t content(const struct walker *w, uint32_t pos)
{
    uint64_t h = w->adapter + 1; /* KV depends on the whole prefix, not on the token alone */
    for (uint32_t i = 0; i <= pos; i++)
        h = h * 31 + w->tok[i] + 1;
    return h;
}

static uint64_t *at(struct device *d, const struct walker *w, uint32_t pos)
{
    assert_true(pos / BT < w->t.len);
    return &d->slot[w->t.ids[pos / BT] * BT + pos % BT];
}

static uint64_t *window_at(struct device *d, const struct walker *w, uint32_t pos)
{
    assert_in_range(pos / BT, w->t.windows_from, w->t.windows_to - 1);
    assert_in_range(w->t.windows[pos / BT], 1, WINDOWS - 1);
    return &d->window[w->t.windows[pos / BT] * BT + pos % BT];
}

/* What the next token sees is there. */
static void check_window(struct device *d, const struct walker *w)
{
    for (uint32_t p = w->computed + 1 > WINDOW ? w->computed + 1 - WINDOW : 0; p < w->computed; p++)
        assert_true(*window_at(d, w, p) == content(w, p));
}

/* Its two cells change places with every step. */
static uint64_t *state_of(struct device *d, const struct walker *w)
{
    assert_true(d->owned[w->t.cells[0]] && d->owned[w->t.cells[1]]);
    return &d->state[w->t.cells[0]];
}

static void compute(struct device *d, struct walker *w, uint32_t upto)
{
    if (w->t.stateful && w->computed < upto) {
        assert_true(*state_of(d, w) == (w->computed ? content(w, w->computed - 1) : 0));
        d->state[w->t.cells[1]] = 1; /* of a step that comes to nothing */
        *state_of(d, w) = content(w, upto - 1);
    }
    for (; w->computed < upto; w->computed++) {
        if (w->t.windows) {
            check_window(d, w);
            *window_at(d, w, w->computed) = content(w, w->computed);
        }
        *at(d, w, w->computed) = content(w, w->computed);
    }
}

/* It leaves a snapshot, if it stands where one may be; sometimes the save comes to nothing. */
static void save(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    uint32_t cell = kv_snapshot(kv, &w->t, w->tok, w->computed, rnd(2));
    if (cell == NO_CELL)
        return;
    assert_int_equal(w->computed % BT, 0);
    assert_false(d->owned[cell]);
    if (rnd(8) == 0) {
        cells_unsaved(kv_cells(kv));
        d->state[cell] = 2;
        return;
    }
    d->state[cell] = *state_of(d, w);
    cells_saved(kv_cells(kv));
    n_saves++;
}

static void give_back(struct device *d, struct walker *w)
{
    for (int k = 0; k < 2 && w->t.stateful; k++)
        d->owned[w->t.cells[k]] = false;
    w->live = false;
}

static void begin(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    w->n = 1 + rnd(LONG - 8);
    w->adapter = rnd(2);
    uint32_t family = rnd(3);
    for (uint32_t i = 0; i < w->n; i++)
        w->tok[i] = i < 12 ? family : rnd(2);
    struct kv_key k = {w->tok, w->n, w->adapter};
    uint32_t reserve = w->n + rnd(8);
    struct kv_stats before = kv_stats(kv);
    w->live = kv_admit(kv, &w->t, &k, rnd(8) != 0, reserve);
    if (!w->live) {
        assert_int_equal(w->t.len, 0);
        assert_int_equal(kv_stats(kv).evictions, before.evictions);
        return;
    }
    assert_true(w->t.stateful || kv_may_fit(kv, w->n, 0)); /* that was before */
    assert_true(w->t.n_cached < w->n);
    w->computed = w->t.n_cached;
    w->fresh = true;
    for (int i = 0; i < 2 && w->t.stateful; i++) {
        assert_false(d->owned[w->t.cells[i]]);
        d->owned[w->t.cells[i]] = true;
    }
}

/* The call that begins `w`: the source of its copy was held, and only written behind what was
 * promised. */
static void first_step(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    w->fresh = false;
    if (w->t.stateful) {
        assert_true(!w->t.state_from == !w->computed && !w->t.copy_from);
        assert_true(!w->t.state_from || !d->owned[w->t.state_from - 1]);
        *state_of(d, w) = w->t.state_from ? d->state[w->t.state_from - 1] : 0;
        n_from += w->t.state_from != 0;
        kv_copied(kv, &w->t);
    }
    if (w->t.copy_from) {
        uint32_t to = w->t.ids[w->computed / BT];
        assert_int_not_equal(to, w->t.copy_from);
        memcpy(&d->slot[to * BT], &d->slot[w->t.copy_from * BT], BT * sizeof(d->slot[0]));
        if (w->t.windows)
            memcpy(&d->window[w->t.windows[w->computed / BT] * BT],
                   &d->window[w->t.window_copy * BT], BT * sizeof(d->window[0]));
        n_copies++;
        kv_copied(kv, &w->t);
    }
    for (uint32_t i = 0; i < w->computed; i++) /* a hit is what we would have computed */
        assert_true(*at(d, w, i) == content(w, i));
    if (w->t.windows)
        check_window(d, w);
}

/* How far it can compute, of `upto` tokens, with the blocks of windows that there are. */
static uint32_t room(struct kv_blocks *kv, struct walker *w, uint32_t upto)
{
    if (!w->t.windows || kv_window_grow(kv, &w->t, upto, rnd(3)))
        return upto;
    return w->t.windows_to * BT < upto ? w->t.windows_to * BT : upto;
}

static void pass(struct kv_blocks *kv, struct walker *w)
{
    if (w->t.windows && rnd(4))
        kv_window_pass(kv, &w->t, w->computed);
}

static void go_on(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    if (w->fresh && rnd(8) == 0) { /* nothing came of it */
        give_back(d, w);
        kv_undo(kv, &w->t);
        return;
    }
    if (w->fresh)
        first_step(kv, d, w);
    switch (rnd(6)) {
    case 0: /* a chunk of the prompt, or what is left of it */
    case 1:
        if (w->t.stateful && rnd(2))
            compute(d, w, kv_stop(kv, &w->t, w->n, w->computed, rnd(2)));
        else
            compute(d, w, room(kv, w, w->computed + rnd(w->n - w->computed + 1)));
        kv_commit(kv, &w->t, w->tok, w->computed);
        save(kv, d, w);
        pass(kv, w);
        break;
    case 2: /* a generated token */
        while (w->computed < w->n && room(kv, w, w->computed + 1) > w->computed) {
            compute(d, w, room(kv, w, w->n));
            pass(kv, w);
        }
        if (w->computed == w->n && w->n < LONG && kv_grow(kv, &w->t, w->n + 1) &&
            room(kv, w, w->n + 1) > w->n) {
            w->tok[w->n++] = rnd(2);
            compute(d, w, w->n);
        }
        save(kv, d, w);
        pass(kv, w);
        break;
    case 3:
        give_back(d, w);
        if (w->computed == w->t.n_cached && rnd(2))
            kv_undo(kv, &w->t);
        else
            kv_release(kv, &w->t, w->tok, w->computed);
        break;
    default: /* what was computed stays what it is, whatever else runs */
        for (uint32_t i = 0; i < w->computed; i++)
            assert_true(*at(d, w, i) == content(w, i));
    }
}

static void walk(bool copies, bool stateful, bool windowed)
{
    enum { STEPS = 150000 };
    for (rnd_state = 1; rnd_state <= 3; rnd_state++) {
        uint32_t seed = rnd_state;
        struct kv_blocks *kv = kv_new(BLOCKS, BT, seed);
        kv_copying(kv, copies);
        assert_true(!stateful || kv_stateful(kv, CELLS, true));
        assert_true(!windowed || kv_windowed(kv, WINDOWS, WINDOW, 12));
        n_copies = n_saves = n_from = 0;
        struct device d = {{0}};
        struct walker w[SEQS] = {0};
        for (int step = 0; step < STEPS; step++) {
            struct walker *one = &w[rnd(SEQS)];
            if (!one->live)
                begin(kv, &d, one);
            else
                go_on(kv, &d, one);
            if (step % 50000 == 49999)
                kv_forget(kv); /* running ones go on with what they have */
            kv_check(kv);
        }
        for (int i = 0; i < SEQS; i++)
            kv_release(kv, &w[i].t, NULL, 0);
        kv_check(kv);
        struct kv_stats st = kv_stats(kv);
        assert_int_equal(st.used, 0);
        assert_true(st.hits > 1000 && st.evictions > 1000);
        if (windowed) {
            struct windows_stats ws = windows_stats(kv_windows(kv));
            print_message("%llu of windows evicted\n", (unsigned long long)ws.evictions);
            assert_true(ws.used == 0 && ws.evictions > 1000);
        }
        if (stateful)
            print_message("%u snapshots, %u begun from one\n", n_saves, n_from);
        assert_true(!stateful || (n_saves > 1000 && n_from > 1000));
        assert_true(!stateful || cells_stats(kv_cells(kv)).owned == 0);
        assert_true(copies ? st.begun > n_copies && n_copies > 1000 : st.begun == 0);
        kv_free(kv);
        rnd_state = seed;
    }
}

TEST(a_random_walk_keeps_the_accounting_and_the_contents) { walk(false, false, false); }

TEST(a_random_walk_with_copies_keeps_them_too) { walk(true, false, false); }

TEST(a_random_walk_with_recurrent_state_keeps_that_too) { walk(false, true, false); }

TEST(a_random_walk_with_a_cache_of_windows_keeps_that_too)
{
    walk(false, false, true);
    walk(true, false, true);
}

int main(void) { return tests_run(NULL, NULL); }

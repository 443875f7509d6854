/* The block books at random, beside a device that remembers what was computed where: a hit is what
 * its user would have computed, and stays it as long as he has it. */
#include "router/scheduler/kv_blocks.h"
#include "tests/unit/test.h"
#include <string.h>

enum { SEQS = 10, LONG = 40, BLOCKS = 48, BT = 4 };
struct walker {
    struct kv_table t;
    uint32_t tok[LONG], n, computed, adapter;
    bool live, fresh;
};
static uint32_t n_copies;
/* What the device holds, per slot: token + 1, and for whom. 0: nothing. */
struct device {
    uint64_t slot[BLOCKS * BT];
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

static void compute(struct device *d, struct walker *w, uint32_t upto)
{
    for (; w->computed < upto; w->computed++)
        *at(d, w, w->computed) = content(w, w->computed);
}

static void begin(struct kv_blocks *kv, struct walker *w)
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
    assert_true(kv_may_fit(kv, w->n, 0));
    assert_true(w->t.n_cached < w->n);
    w->computed = w->t.n_cached;
    w->fresh = true;
}

/* The call that begins `w`: the source of its copy was held, and only written behind what was
 * promised. */
static void first_step(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    w->fresh = false;
    if (w->t.copy_from) {
        uint32_t to = w->t.ids[w->computed / BT];
        assert_int_not_equal(to, w->t.copy_from);
        memcpy(&d->slot[to * BT], &d->slot[w->t.copy_from * BT], BT * sizeof(d->slot[0]));
        n_copies++;
        kv_copied(kv, &w->t);
    }
    for (uint32_t i = 0; i < w->computed; i++) /* a hit is what we would have computed */
        assert_true(*at(d, w, i) == content(w, i));
}

static void go_on(struct kv_blocks *kv, struct device *d, struct walker *w)
{
    if (w->fresh && rnd(8) == 0) { /* nothing came of it */
        kv_undo(kv, &w->t);
        w->live = false;
        return;
    }
    if (w->fresh)
        first_step(kv, d, w);
    switch (rnd(6)) {
    case 0: /* a chunk of the prompt, or what is left of it */
    case 1:
        compute(d, w, w->computed + rnd(w->n - w->computed + 1));
        kv_commit(kv, &w->t, w->tok, w->computed);
        break;
    case 2: /* a generated token */
        compute(d, w, w->n);
        if (w->n < LONG && kv_grow(kv, &w->t, w->n + 1)) {
            w->tok[w->n++] = rnd(2);
            compute(d, w, w->n);
        }
        break;
    case 3:
        if (w->computed == w->t.n_cached && rnd(2))
            kv_undo(kv, &w->t);
        else
            kv_release(kv, &w->t, w->tok, w->computed);
        w->live = false;
        break;
    default: /* what was computed stays what it is, whoever else runs */
        for (uint32_t i = 0; i < w->computed; i++)
            assert_true(*at(d, w, i) == content(w, i));
    }
}

static void walk(bool copies)
{
    enum { STEPS = 150000 };
    for (rnd_state = 1; rnd_state <= 3; rnd_state++) {
        uint32_t seed = rnd_state;
        struct kv_blocks *kv = kv_new(BLOCKS, BT, seed);
        kv_copying(kv, copies);
        n_copies = 0;
        struct device d = {{0}};
        struct walker w[SEQS] = {0};
        for (int step = 0; step < STEPS; step++) {
            struct walker *one = &w[rnd(SEQS)];
            if (!one->live)
                begin(kv, one);
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
        assert_true(copies ? st.begun > n_copies && n_copies > 1000 : st.begun == 0);
        kv_free(kv);
        rnd_state = seed;
    }
}

static void a_random_walk_keeps_the_books_and_the_contents(void **state)
{
    (void)state;
    walk(false);
}

static void a_random_walk_with_copies_keeps_them_too(void **state)
{
    (void)state;
    walk(true);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_random_walk_keeps_the_books_and_the_contents),
        cmocka_unit_test(a_random_walk_with_copies_keeps_them_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

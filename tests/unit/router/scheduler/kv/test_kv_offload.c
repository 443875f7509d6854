/* Blocks that leave the prefix tree and come back: keys, what is stored when, where an import ends.
 * A store below the cache is played by a table of what was spilled. */
#include "router/scheduler/kv/offload.h"
#include "tests/unit/test.h"
#include <string.h>

enum { BT = 4, N = 4096, BELOW = 4000 };
static uint32_t P[N], Q[N];
static struct kv_spill below[BELOW];
static uint32_t n_below;

static struct kv_blocks *new_blocks(uint32_t n_blocks, uint32_t n_cells, uint32_t n_windows)
{
    struct kv_blocks *kv = kv_new(n_blocks, BT, n_blocks); /* another seed each: keys do not mind */
    for (uint32_t i = 0; i < N; i++) {
        P[i] = i;
        Q[i] = i < 26 ? i : 9000 + i;
    }
    assert_true(kv_offloading(kv));
    if (n_cells)
        assert_true(kv_stateful(kv, n_cells, true));
    if (n_windows)
        assert_true(kv_windowed(kv, n_windows, 10, 16));
    n_below = 0;
    return kv;
}

/* All that waits is stored, a few blocks at a time. */
static uint32_t spill_all(struct kv_blocks *kv)
{
    uint32_t n, sum = 0;
    while ((n = kv_spill(kv, below + n_below, 3))) {
        kv_spilled(kv, below + n_below, n, n);
        n_below += n;
        sum += n;
        assert_true(n_below < BELOW);
    }
    kv_check(kv);
    return sum;
}

static uint8_t parts_below(const uint8_t *key)
{
    uint8_t parts = 0;
    for (uint32_t i = 0; i < n_below; i++)
        if (memcmp(below[i].key, key, KV_CHAIN) == 0)
            parts |= below[i].parts;
    return parts;
}

static void run(struct kv_blocks *kv, const struct kv_key *key, uint32_t hit)
{
    struct kv_table t = {0};
    assert_true(kv_admit(kv, &t, key, true, key->n + 1));
    assert_int_equal(t.n_cached, hit);
    kv_copied(kv, &t);
    for (uint32_t at = t.n_cached; at < key->n;) {
        at = kv_stop(kv, &t, key->n, at, false);
        kv_commit(kv, &t, key->tokens, at);
        if (at < key->n && kv_snapshot(kv, &t, key->tokens, at, false) != NO_CELL)
            cells_saved(kv_cells(kv));
        if (kv_windows(kv)) {
            kv_window_pass(kv, &t, at);
            const uint32_t next = at + 8 < key->n ? at + 8 : key->n;
            assert_true(kv_window_grow(kv, &t, next, 0));
        }
        kv_check(kv);
    }
    kv_release(kv, &t, key->tokens, key->n);
    kv_check(kv);
}

/* As the scheduler does it; returns the blocks behind which a request goes on. */
static uint32_t import(struct kv_blocks *kv, const struct kv_key *key, bool ok)
{
    uint8_t keys[N / BT][KV_CHAIN], parts[N / BT];
    struct kv_table t = {0};
    const uint32_t most = kv_most_blocks(kv, key), from = kv_resident(kv, key);
    uint32_t n = 0;
    kv_chain_keys(kv, key, most, keys);
    while (from + n < most && (parts[n] = parts_below(keys[from + n])))
        n++;
    const uint32_t end = kv_import(kv, &t, key, from, parts, n);
    for (uint32_t i = 0; i < end; i++) {
        struct kv_spill want;
        if (!kv_import_wants(kv, &t, i, &want))
            continue;
        assert_true(i >= from && (parts[i - from] & want.parts) == want.parts);
        assert_true(!want.block || want.block == t.ids[i]);
    }
    if (end)
        kv_imported(kv, &t, key, ok);
    kv_check(kv);
    return end;
}

TEST(a_key_is_of_the_whole_prefix)
{
    struct kv_blocks *kv = new_blocks(100, 0, 0), *other = new_blocks(50, 0, 0);
    uint8_t a[10][KV_CHAIN], b[10][KV_CHAIN];
    struct kv_key p = {P, 40}, q = {Q, 40}, salted = {P, 40, .salt = UINT64_C(1) << 63 | 5};
    kv_chain_keys(kv, &p, 10, a);
    kv_chain_keys(other, &p, 10, b);
    assert_memory_equal(a, b, sizeof(a));
    kv_chain_keys(kv, &q, 10, b);
    assert_memory_equal(a, b, 6 * KV_CHAIN);
    for (int i = 6; i < 10; i++) /* also where the tokens are the same again */
        assert_memory_not_equal(a[i], b[i], KV_CHAIN);
    kv_chain_keys(kv, &salted, 10, b);
    for (int i = 0; i < 10; i++)
        assert_memory_not_equal(a[i], b[i], KV_CHAIN);
    run(kv, &p, 0);
    assert_int_equal(spill_all(kv), 10);
    for (uint32_t i = 0; i < n_below; i++) { /* the tree has the same keys */
        int at = 0;
        while (at < 10 && memcmp(a[at], below[i].key, KV_CHAIN) != 0)
            at++;
        assert_true(at < 10);
    }
    kv_free(kv);
    kv_free(other);
}

TEST(a_block_is_stored_once)
{
    struct kv_blocks *kv = new_blocks(100, 0, 0);
    struct kv_key p = {P, 42}, q = {Q, 42}, adapted = {P, 42, .adapter = 3};
    struct kv_spill x[4];
    run(kv, &p, 0);
    assert_int_equal(kv_spill(kv, x, 4), 4);
    kv_spilled(kv, x, 4, 1);            /* there was no room for the others */
    assert_int_equal(spill_all(kv), 9); /* the last two tokens are no full block */
    run(kv, &p, 40);
    assert_int_equal(spill_all(kv), 0);
    run(kv, &q, 24);
    assert_int_equal(spill_all(kv), 4);
    run(kv, &adapted, 0);
    assert_int_equal(spill_all(kv), 0);
    kv_forget(kv);
    assert_int_equal(kv_spill(kv, x, 4), 0);
    kv_free(kv);
}

TEST(what_comes_back_is_a_hit)
{
    struct kv_blocks *kv =
        new_blocks(16, 0, 0); /* 15 blocks: the second prompt drives out the first */
    struct kv_key p = {P, 41}, other = {Q + 100, 50}, salted = {P, 41, .salt = UINT64_C(1) << 63};
    struct kv_stats st;
    run(kv, &p, 0);
    spill_all(kv);
    run(kv, &other, 0);
    spill_all(kv);
    assert_true(kv_resident(kv, &p) < 10);
    st = kv_stats(kv);
    assert_int_equal(import(kv, &salted, true), 0);
    assert_int_equal(import(kv, &p, false), 10); /* the shards failed */
    assert_true(kv_resident(kv, &p) < 10);
    assert_int_equal(import(kv, &p, true), 10);
    assert_int_equal(kv_resident(kv, &p), 10);
    assert_int_equal(kv_stats(kv).hits, st.hits);
    assert_int_equal(kv_stats(kv).used, 0);
    run(kv, &p, 40);
    assert_int_equal(spill_all(kv), 0); /* it lies there already */
    assert_int_equal(import(kv, &p, true), 0);
    kv_free(kv);
}

TEST(blocks_that_are_evicted_first_are_lost)
{
    struct kv_blocks *kv = new_blocks(16, 0, 0);
    run(kv, &(struct kv_key){P, 41}, 0);
    run(kv, &(struct kv_key){Q + 100, 50}, 0);
    assert_int_equal(kv_spill_lost(kv), 8);
    spill_all(kv);
    kv_free(kv);
}

/* No room: nothing is taken from those that run. */
TEST(an_import_takes_nothing_from_those_that_run)
{
    struct kv_blocks *kv = new_blocks(16, 0, 0);
    struct kv_key p = {P, 41}, other = {Q + 100, 30};
    struct kv_table t = {0};
    run(kv, &p, 0);
    spill_all(kv);
    kv_forget(kv);
    assert_true(kv_admit(kv, &t, &other, true, 31));
    assert_int_equal(import(kv, &p, true), 0);
    kv_release(kv, &t, other.tokens, 30);
    assert_int_equal(import(kv, &p, true), 10);
    kv_free(kv);
}

TEST(recurrent_state_comes_with_its_block)
{
    struct kv_blocks *kv = new_blocks(100, 8, 0);
    struct kv_key p = {P, 41}, longer = {P, 61};
    run(kv, &p, 0);
    assert_int_equal(spill_all(kv), 10);
    kv_forget(kv);
    assert_int_equal(import(kv, &longer, true), 10); /* what is there of it */
    assert_int_equal(cells_stats(kv_cells(kv)).owned, 0);
    assert_int_equal(cells_stats(kv_cells(kv)).snapshots, 1);
    run(kv, &p, 40);
    run(kv, &longer, 40); /* leaves a state behind 60 */
    assert_int_equal(spill_all(kv), 5);
    kv_forget(kv);
    assert_int_equal(import(kv, &longer, false), 15);
    assert_int_equal(cells_stats(kv_cells(kv)).free, 8);
    assert_int_equal(import(kv, &longer, true), 15);
    run(kv, &longer, 60);
    kv_free(kv);
}

TEST(without_its_state_a_prefix_is_no_import)
{
    struct kv_blocks *kv = new_blocks(100, 8, 0);
    struct kv_key p = {P, 41};
    run(kv, &p, 0);
    spill_all(kv);
    for (uint32_t i = 0; i < n_below; i++)
        below[i].parts &= KV_HAS_BLOCK;
    kv_forget(kv);
    assert_int_equal(import(kv, &p, true), 0);
    assert_int_equal(cells_stats(kv_cells(kv)).free, 8);
    assert_int_equal(kv_stats(kv).used, 0);
    kv_free(kv);
}

TEST(the_last_window_comes_with_a_prefix)
{
    struct kv_blocks *kv = new_blocks(200, 0, 13);
    struct kv_key p = {P, 81};
    run(kv, &p, 0);
    assert_int_equal(spill_all(kv), 20);
    uint32_t windows = 0;
    for (uint32_t i = 0; i < n_below; i++)
        windows += (below[i].parts & KV_HAS_WINDOW) != 0;
    assert_in_range(windows, 3, 12);
    kv_forget(kv);
    assert_int_equal(import(kv, &p, true), 20);
    assert_int_equal(windows_stats(kv_windows(kv)).used, 0);
    run(kv, &p, 80);
    kv_free(kv);
}

int main(void) { return tests_run(NULL, NULL); }

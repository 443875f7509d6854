/* test_sparse.c - models whose indexers select positions or blocks: the same bits in chunks of
 * every size and from blocks that were copied and swapped out; a backend that does not select
 * serves them up to the first selection. */
#include "tests/golden/golden.h"
#include <unistd.h>

enum { PROMPT = 2 /* of 96 tokens */, CHUNKS = 64, BLOCKS = 2 * MAX_SEQ_BLOCKS };

static const char *const dirs[] = {
    "build/golden/arch/deepseek_v32", "build/golden/arch/glm_moe_dsa",
    "build/golden/arch/minimax_m3",   "build/golden/arch/hy_v4",
    "build/golden/arch/glm5_next",    "build/golden/arch/deepseek_v4",
    "build/golden/arch/axk2",         "build/golden/arch/mistral_large4",
    "build/golden/arch/qwen4_exp",    "build/golden/arch/dots3_note"};
static int not_made;

static bool open_made(const char *dir, struct golden *g, struct bench *b)
{
    struct err e = ERR_INIT;
    char file[PATH_LEN];
    snprintf(file, sizeof(file), "%s/golden.json", dir);
    if (access(file, F_OK) != 0) {
        not_made++;
        return false;
    }
    assert_true(golden_load(g, dir, MAX_PROMPTS));
    if (bench_open(b, dir, comm_solo(), 2, BLOCKS, &e))
        fail_msg("%s", e.msg);
    return true;
}

static void start(struct bench_seq *s, struct bench *b, const struct golden *g, uint32_t first)
{
    uint32_t order[MAX_SEQ_BLOCKS];
    for (uint32_t i = 0; i < MAX_SEQ_BLOCKS; i++)
        order[i] = first + i * 7 % MAX_SEQ_BLOCKS;
    seq_init(s, b, &g->prompts[PROMPT], order);
}

static void take(struct bench *b, struct bench_seq *s, uint32_t n)
{
    struct err e = ERR_INIT;
    n = n < s->n - s->done ? n : s->n - s->done;
    if (bench_step(b, &s, &n, 1, &e))
        fail_msg("%s", e.msg);
}

static void assert_same(const struct bench *b, const struct bench_seq *want, struct bench_seq *got)
{
    assert_memory_equal(got->rows, want->rows, (size_t)want->n * b->vocab * sizeof(float));
    free(got->rows);
}

static void chunks_of_every_size_have_the_same_bits(void **state)
{
    static struct bench_seq whole, parts;
    (void)state;
    for (size_t i = 0; i < sizeof(dirs) / sizeof(dirs[0]); i++) {
        struct golden g;
        struct bench b;
        if (!open_made(dirs[i], &g, &b))
            continue;
        start(&whole, &b, &g, 0);
        take(&b, &whole, whole.n);
        for (uint32_t n = 1; n <= CHUNKS; n++) {
            start(&parts, &b, &g, n % 2 * MAX_SEQ_BLOCKS);
            while (parts.done < parts.n)
                take(&b, &parts, n);
            assert_same(&b, &whole, &parts);
        }
        free(whole.rows);
        bench_close(&b);
        golden_free(&g);
    }
}

/* Two blocks of a prefix, as a cached one: copied elsewhere, or swapped out and in again. With
 * recurrent layers also the state after them. */
static void moved_blocks_have_their_index_keys(void **state)
{
    static struct bench_seq whole, parts;
    enum { MOVED = 2 };
    const uint32_t slots[MOVED] = {1, 0};
    (void)state;
    for (size_t i = 0; i < 2 * sizeof(dirs) / sizeof(dirs[0]); i++) {
        struct golden g;
        struct bench b;
        struct err e = ERR_INIT;
        int64_t ns;
        if (!open_made(dirs[i / 2], &g, &b))
            continue;
        start(&whole, &b, &g, 0), start(&parts, &b, &g, MAX_SEQ_BLOCKS);
        take(&b, &whole, MOVED * BLOCK_SIZE);
        if (i % 2 == 0) {
            assert_int_equal(model_kv_copy(b.model, whole.blocks, parts.blocks, MOVED, &e), 0);
        } else {
            assert_int_equal(model_swap_resize(b.model, MOVED, &ns, &e), 0);
            assert_int_equal(model_swap_out(b.model, whole.blocks, slots, MOVED, &e), 0);
            assert_int_equal(model_swap_in(b.model, parts.blocks, slots, MOVED, &e), 0);
        }
        memcpy(parts.rows, whole.rows, (size_t)MOVED * BLOCK_SIZE * b.vocab * sizeof(float));
        parts.done = whole.done;
        assert_int_equal(
            model_state_copy(b.model, &whole.blocks[whole.cell], &parts.blocks[parts.cell], 1, &e),
            0);
        take(&b, &whole, whole.n), take(&b, &parts, parts.n);
        assert_same(&b, &whole, &parts);
        free(whole.rows);
        bench_close(&b);
        golden_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_of_every_size_have_the_same_bits),
        cmocka_unit_test(moved_blocks_have_their_index_keys),
    };
    const int failed = cmocka_run_group_tests_name("sparse", tests, NULL, NULL);
    if (not_made)
        TEST_SKIPPED(not_made, "tests/golden/make_arch.py did not run");
    return failed;
}

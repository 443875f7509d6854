/* Cells of recurrent state: whose they are, what a step leaves in them, and how a request goes on
 * from a state that was saved. */
#include "model-server/engine/engine_impl.h" /* what a row costs, as if it had been measured */
#include "model-server/engine/kv_pool.h"

#include "tests/unit/model-server/engine/rig.h"

static struct asked v[4];

/* With cells 2 i and 2 i + 1, as a router gives them. */
static void ask_with_cells(uint32_t i, uint32_t seed)
{
    static uint32_t cells[4][CELLS_EACH];
    ask(&v[i], i, seed, false);
    v[i].spec.ignore_eos = true;
    cells[i][0] = 2 * i, cells[i][1] = 2 * i + 1;
    v[i].spec.cells = cells[i];
    v[i].spec.n_cells = CELLS_EACH;
}

static void begin(uint64_t batch, uint32_t i, struct answer *a)
{
    struct err e = ERR_INIT;
    assert_int_equal(engine_prefill(g, batch, &v[i].spec, 1, NULL, NULL, a, &e), 0);
}

static void begin_well(uint64_t batch, uint32_t i)
{
    struct answer a;
    begin(batch, i, &a);
    take(&a, v);
}

static void same_as_alone(uint32_t i)
{
    assert_int_equal(v[i].n_got, v[i].n_alone);
    assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
}

static const char *refusal(uint32_t i)
{
    struct answer a;
    static char why[200];
    begin(700, i, &a);
    assert_int_equal(a.out->n_gen, 1);
    snprintf(why, sizeof(why), "%s", a.out->gen[0].seq->error);
    engine_clear(g, NULL);
    return why;
}

/* ---------------------------------------------------------------- whose they are */

TEST_WITH(numbers_from_the_wire_are_not_believed, setup_recurrent, teardown)
{
    ask_with_cells(0, 3), ask_with_cells(1, 9);
    const uint32_t outside[] = {0, fake.n_cells}, twice[] = {4, 4}, three[] = {4, 5, 6},
                   from = fake.n_cells, mine = 1;
    v[0].spec.cells = outside;
    assert_non_null(strstr(refusal(0), "state cell"));
    v[0].spec.cells = twice;
    assert_string_equal(refusal(0), "2 state cells: a request has two");
    v[0].spec.cells = three, v[0].spec.n_cells = 3;
    assert_string_equal(refusal(0), "3 state cells: a request has two");
    ask_with_cells(0, 3);
    v[1].spec.cells = v[0].spec.cells;
    begin_well(1, 0);
    struct answer a;
    begin(2, 1, &a); /* a sequence has them */
    assert_string_equal(a.out->gen[0].seq->error, "state cell 0 belongs to a request");
    ask_with_cells(1, 9);
    v[1].spec.cache_len = 1; /* of which there is no state */
    begin(2, 1, &a);
    assert_string_equal(a.out->gen[0].seq->error,
                        "1 tokens are cached, and their state is not given");
    v[1].spec.state_from = &from;
    begin(2, 1, &a);
    assert_non_null(strstr(a.out->gen[0].seq->error, "there are"));
    v[1].spec.state_from = &mine; /* of a running request: it will change */
    begin(2, 1, &a);
    assert_string_equal(a.out->gen[0].seq->error, "state cell 1 belongs to a request");
    engine_clear(g, NULL);
    v[1].spec.cache_len = 0;
    v[1].spec.state_from = NULL;
    begin_well(3, 1); /* all have given theirs back */
}

/* Who brings none gets cells that the router does not hand out; when they are gone, he is refused
 * and no other one. */
TEST_WITH(requests_without_cells_get_the_engines, setup_recurrent, teardown)
{
    struct err e = ERR_INIT;
    struct state_cells c = {0};
    uint32_t a[2], b[2];
    assert_int_equal(state_cells_resize(&c, 6, &e), 0);
    assert_int_equal(state_cells_claim(&c, (uint32_t[]){3, 0}, 2, a, &e), 0);
    assert_int_equal(state_cells_take(&c, b, &e), 0);
    assert_true(b[0] == 5 && b[1] == 4);
    assert_int_equal(state_cells_take(&c, b, &e), -1);
    state_cells_give(&c, (uint32_t[]){5, 4});
    state_cells_give(&c, a);
    assert_int_equal(state_cells_name(&c, 4, &e), 0); /* a snapshot */
    assert_int_equal(state_cells_take(&c, b, &e), -1);
    state_cells_free(&c);
    for (uint32_t i = 0; i < 2; i++) {
        ask(&v[i], i, 5 * i + 4, false);
        run_alone(&v[i], v);
    }
    begin_well(1, 0), begin_well(2, 1);
    finish(1, v), finish(2, v);
    same_as_alone(0), same_as_alone(1);
}

TEST_WITH(warm_up_shares_the_memory, setup_recurrent, teardown)
{
    struct kv_memory m = {.free = 100000000,
                          .total = 1000000000,
                          .shared = true,
                          .world = 1,
                          .fraction = 1,
                          .block_bytes = 1000,
                          .block_size = 16,
                          .longest = 1 << 22,
                          .cell_bytes = 100000};
    struct kv_plan p = kv_plan(&m);
    assert_int_equal(p.n_cells, 3 * 64 + 2);
    assert_int_equal(p.n_blocks, 50000 - 194 * 100);
    m.requests = 70;
    assert_int_equal(kv_plan(&m).n_cells, 3 * 70 + 2);
    m.cell_bytes = 1000000; /* at most half of what there is */
    p = kv_plan(&m);
    assert_int_equal(p.n_cells, 25);
    assert_int_equal(p.n_blocks, 25000);
    m.cell_bytes = 50000000; /* not even those of one request */
    p = kv_plan(&m);
    assert_true(p.n_cells == 0 && p.n_blocks == 0);
    assert_true(fake.n_cells > 4);
}

/* ---------------------------------------------------------------- what a step leaves */

/* Its tokens, without a run-ahead. */
static void note(const struct answer *a)
{
    for (uint32_t i = 0; i < a->out->n_gen; i++) {
        struct asked *q = &v[a->out->gen[i].seq->id];
        assert_string_equal(a->out->gen[i].seq->error, "");
        q->got[q->n_got++] = a->out->gen[i].token.id;
    }
}

/* A run-ahead of another one takes the place of that before. */
static void run_another_ahead(void)
{
    struct err e = ERR_INIT;
    struct answer a;
    begin(5, 2, &a);
    assert_int_equal(engine_decode(g, (uint64_t[]){5}, 1, NULL, &a, &e), 0);
    assert_int_equal(engine_ahead(g, &e), 0);
    engine_clear(g, (uint64_t[]){5});
}

/* Failed steps, and a run-ahead that was forgotten. */
TEST_WITH(a_step_may_be_repeated, setup_recurrent, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    for (uint32_t i = 0; i < 3; i++) {
        ask_with_cells(i, 6 * i + 8);
        run_alone(&v[i], v);
    }
    fake.fail_in = 1;
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), -1);
    for (uint32_t i = 0; i < 2; i++) {
        begin(i, i, &a);
        note(&a);
    }
    for (int i = 0; i < 3; i++) {
        for (int times = 0; times < 2; times++) {
            fake.fail_in = 1;
            assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), -1);
        }
        assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
        note(&a);
        assert_int_equal(engine_ahead(g, &e), 0);
        run_another_ahead();
    }
    assert_int_equal(engine_decode(g, (uint64_t[]){0, 1}, 2, NULL, &a, &e), 0);
    take(&a, v);
    finish(0, v);
    same_as_alone(0), same_as_alone(1);
}
TEST_ALSO(a_step_may_be_repeated, setup_recurrent_draws, teardown)

/* Log-probabilities of a prompt take passes within one step. */
TEST_WITH(passes_go_on_from_each_other, setup_recurrent, teardown)
{
    ask_with_cells(0, 14);
    run_alone(&v[0], v);
    v[0].spec.prefill_logprobs = true;
    begin_well(0, 0);
    finish(0, v);
    same_as_alone(0);
}

/* ---------------------------------------------------------------- saved and begun from */

enum { SAVED = 100 };

static int decode_saving(const struct state_save *save, struct answer *a)
{
    struct err e = ERR_INIT;
    const struct edits x = {.saves = save, .n_saves = 1};
    const int rc = engine_decode(g, (uint64_t[]){0}, 1, &x, a, &e);
    assert_int_equal(rc ? e.kind : ERR_VALIDATION, ERR_VALIDATION);
    return rc;
}

/* The state after the prompt and some tokens, run ahead or not, serves another request with the
 * same beginning, as often as it is wanted. */
TEST_WITH(a_saved_state_serves_others, setup_recurrent, teardown)
{
    struct answer a;
    const uint32_t from = SAVED;
    for (uint32_t tokens = 0; tokens < 4; tokens++) {
        next_block = 0;
        ask_with_cells(0, 11);
        run_alone(&v[0], v);
        begin_well(0, 0);
        for (uint32_t i = 0; i < tokens; i++) {
            struct err e = ERR_INIT;
            assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, NULL, &a, &e), 0);
            take(&a, v);
        }
        const uint32_t done = v[0].spec.n_prompt + tokens;
        struct state_save save = {0, SAVED, done + 1};
        assert_int_equal(decode_saving(&save, &a), -1); /* so many it has not computed */
        save.tokens = done;
        assert_int_equal(decode_saving(&save, &a), 0);
        take(&a, v);
        finish(0, v);
        same_as_alone(0);
        for (uint32_t i = 1; i < 3; i++) { /* goes on where the first one was */
            ask_with_cells(i, 11);
            v[i].spec.blocks = v[0].spec.blocks;
            memcpy(v[i].prompt + v[0].spec.n_prompt, v[0].alone, sizeof(v[0].alone));
            v[i].spec.n_prompt = done + 1;
            v[i].spec.max_new_tokens = MAX_NEW - tokens - 1;
            v[i].spec.cache_len = done;
            v[i].spec.state_from = &from;
            begin_well(0, i);
            if (!v[i].over)
                finish(0, v);
            assert_memory_equal(v[i].got, v[0].alone + tokens + 1, v[i].n_got * sizeof(uint32_t));
            assert_int_equal(v[i].n_got, MAX_NEW - tokens - 1);
        }
        engine_clear(g, NULL);
    }
}
TEST_ALSO(a_saved_state_serves_others, setup_recurrent_draws, teardown)

TEST_WITH(saves_that_mean_nothing_are_refused, setup_recurrent, teardown)
{
    struct answer a;
    ask_with_cells(0, 11), ask_with_cells(1, 5);
    begin_well(0, 0), begin_well(1, 1);
    const uint32_t n = v[0].spec.n_prompt;
    const struct state_save bad[] = {
        {9, SAVED, n}, {0, fake.n_cells, n}, {0, 0, n}, {0, 2, n}, {0, SAVED, n - 1}};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(decode_saving(&bad[i], &a), -1);
    assert_int_equal(decode_saving(&(struct state_save){0, SAVED, n}, &a), 0);
}

/* ---------------------------------------------------------------- drafts, and no swap region */

/* Right drafts, wrong ones and all between: the same answer. After wrong ones the state stays
 * behind, and what is saved meanwhile is the state that was asked for. */
static void wrong_drafts(const struct backend_ops *which, int wrong)
{
    uint32_t ids[MAX_NEW], lags = 0;
    struct err e = ERR_INIT;
    struct answer a;
    engine_free(g);
    speculate = 4;
    assert_int_equal(setup_on(which), 0);
    speculate = 0;
    assert_int_equal(fake.n_slots, 0);
    g->drafting.cost = 0.02;
    begin_well(0, 0);
    const struct seq *s = NULL;
    do {
        uint32_t n = 0;
        for (uint32_t k = v[0].n_got; k < v[0].n_alone; k++)
            ids[n++] = rand() % 100 < wrong ? (uint32_t)rand() % VOCAB : v[0].alone[k];
        const struct draft_offer offer = {0, v[0].spec.n_prompt + v[0].n_got, ids, n};
        const struct state_save save = {0, SAVED, v[0].spec.n_prompt + v[0].n_got - 1};
        const struct edits x = {
            .offers = &offer, .n_offers = 1, .saves = &save, .n_saves = rand() % 2};
        assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
        assert_true(!x.n_saves || fake.state[SAVED].n == save.tokens);
        take(&a, v);
        if (a.batch) {
            s = a.batch->v[0];
            lags += seq_lag(s) > 0;
        }
        if (rand() % 2)
            assert_int_equal(engine_ahead(g, &e), 0);
    } while (a.batch);
    same_as_alone(0);
    assert_true(wrong ? lags > 0 : lags == 0);
}

static void drafts_that_were_wrong(const struct backend_ops *which)
{
    srand(test_seed(5));
    ask_with_cells(0, 11);
    run_alone(&v[0], v);
    for (int wrong = 0; wrong <= 100; wrong += 25) {
        v[0].n_got = 0, v[0].over = false;
        wrong_drafts(which, wrong);
    }
}
TEST_WITH(a_state_goes_back_behind_wrong_drafts, setup_recurrent, teardown)
{
    drafts_that_were_wrong(&ops);
}
TEST_WITH(and_on_a_device_that_chooses, setup_recurrent_draws, teardown)
{
    drafts_that_were_wrong(&drawing_ops);
}

/* A stop sequence ends within accepted drafts: the state goes back, too, so what is saved of the
 * ended request is the state of its tokens. */
TEST_WITH(a_stop_sequence_within_drafts_takes_the_state_back, setup_recurrent, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    engine_free(g);
    speculate = 4;
    assert_int_equal(setup_on(&ops), 0);
    speculate = 0;
    g->drafting.cost = 0.02;
    ask_with_cells(0, 11), ask_with_cells(1, 8);
    run_alone(&v[0], v), run_alone(&v[1], v);
    char text[16], *const stops[] = {text};
    snprintf(text, sizeof(text), "<%u>", v[0].alone[2]);
    v[0].spec.stops = stops, v[0].spec.n_stops = 1;
    const struct seq_spec both[] = {v[0].spec, v[1].spec};
    assert_int_equal(engine_prefill(g, 0, both, 2, NULL, NULL, &a, &e), 0);
    const struct seq *s = a.batch->v[0];
    const struct draft_offer offer = {0, v[0].spec.n_prompt + 1, v[0].alone + 1, 4};
    struct edits x = {.offers = &offer, .n_offers = 1};
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
    assert_true(s->done && s->n == v[0].spec.n_prompt + 3 && s->cached == s->n - 1);
    const struct state_save save = {0, SAVED, s->cached};
    x = (struct edits){.saves = &save, .n_saves = 1};
    assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
    assert_int_equal(fake.state[SAVED].n, save.tokens);
}

int main(void) { return tests_run(NULL, NULL); }

/* Speculation: whatever is drafted, answers stay what they are without. Model and helpers: rig.h.
 */
#include "model-server/engine/engine_impl.h" /* what a row costs, as if it had been measured */

#include "tests/unit/model-server/engine/rig.h" /* whose `g` would shadow that header's */

enum { N = 36, MOST_DRAFTS = 5 };

static struct asked v[N];
static float logprob[N][MAX_NEW], told[N][MAX_NEW];

static void note(const struct answer *a, float (*into)[MAX_NEW])
{
    for (uint32_t i = 0; i < a->out->n_gen; i++) {
        const struct gen *x = &a->out->gen[i];
        into[x->seq->id][x->end - x->seq->n_prompt - 1] = x->token.logprob;
    }
    take(a, v);
}

/* A new engine, where a row is cheap. */
static void speculate_on(const struct backend_ops *which)
{
    engine_free(g);
    speculate = MOST_DRAFTS;
    assert_int_equal(setup_on(which), 0);
    speculate = 0;
    g->drafting.cost = 0.02;
}

static void answer_alone(struct asked *q)
{
    struct err e = ERR_INIT;
    struct answer a;
    q->n_got = 0, q->over = false;
    assert_int_equal(engine_prefill(g, 1000, &q->spec, 1, NULL, NULL, &a, &e), 0);
    note(&a, logprob);
    while (a.batch) {
        assert_int_equal(engine_decode(g, (uint64_t[]){1000}, 1, NULL, &a, &e), 0);
        note(&a, logprob);
    }
    q->n_alone = q->n_got;
    memcpy(q->alone, q->got, sizeof(q->got));
    q->n_got = 0, q->over = false;
}

/* All kinds of requests, and what each gets alone, without speculation. */
static void ask_all(uint32_t n)
{
    uint32_t avoided = 0;
    next_block = 0;
    for (uint32_t i = 0; i < n; i++) {
        ask(&v[i], i, i * 11 + 1, i % 2);
        struct penalties *p = &v[i].spec.sampling.penalties;
        if (i % 3)
            p->repetition = 1;
        p->openai_frequency = i % 5 ? 0 : 2;
        v[i].spec.top_n = i % 4;
        v[i].spec.min_new_tokens = i % 3 ? 0 : 8;
        v[i].spec.ignore_eos = false;
        if (i % 9 == 4)
            v[i].spec.grammar = (struct grammar_spec){"(<1[0-9]>|<7>){3,9}<8>", CONSTRAINT_REGEX};
        answer_alone(&v[i]);
        if (i % 7 == 6 && v[i].n_alone > 3) {
            avoid(&v[i], i % 2);
            answer_alone(&v[i]);
            assert_false(says_bad_words(v[i].alone, v[i].n_alone, &v[i]));
            avoided++;
        }
    }
    assert_true(n < N || avoided > 2);
}

/* What request i will say from its token `from` on, `wrong` of a hundred tokens not. */
static struct draft_offer offer(uint32_t i, uint32_t from, int wrong, uint32_t ids[MAX_NEW])
{
    uint32_t n = 0;
    for (uint32_t k = from; k < v[i].n_alone; k++)
        ids[n++] = rand() % 100 < wrong ? (uint32_t)rand() % (VOCAB + 3) : v[i].alone[k];
    return (struct draft_offer){v[i].spec.id, v[i].spec.n_prompt + from, ids, n};
}

/* Everybody's answers, six at a time, with offers for most of them at most steps. */
static void answer_all(uint32_t n, int wrong)
{
    static uint32_t ids[N][MAX_NEW];
    struct draft_offer offers[7];
    struct err e = ERR_INIT;
    struct answer a;
    for (uint32_t i = 0; i < n; i += 6) {
        struct seq_spec specs[6];
        for (uint32_t k = 0; k < 6; k++)
            specs[k] = v[i + k].spec;
        assert_int_equal(engine_prefill(g, 9, specs, 6, NULL, NULL, &a, &e), 0);
        note(&a, told);
        while (a.batch) {
            struct edits x = {.offers = offers, .drafting = rand() % 2};
            for (uint32_t k = 0; k < 6; k++) {
                uint32_t from = v[i + k].n_got + (uint32_t)rand() % 3;
                if (rand() % 4)
                    offers[x.n_offers++] = offer(i + k, from ? from - 1 : 0, wrong, ids[i + k]);
            }
            offers[x.n_offers++] = (struct draft_offer){777, 3, ids[0], 2}; /* of no sequence */
            assert_int_equal(engine_decode(g, (uint64_t[]){9}, 1, &x, &a, &e), 0);
            note(&a, told);
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(v[i].n_got, v[i].n_alone);
        assert_memory_equal(v[i].got, v[i].alone, v[i].n_got * sizeof(uint32_t));
        assert_memory_equal(told[i], logprob[i], v[i].n_got * sizeof(float));
        v[i].n_got = 0, v[i].over = false;
    }
}

static int forwards_of(uint32_t n, int wrong)
{
    int before = fake.forwards;
    answer_all(n, wrong);
    return fake.forwards - before;
}

/* Right drafts, wrong ones and all between: the same tokens and log-probabilities, in fewer steps
 * the more of them are right. */
static void drafts_change_nothing_but_the_number_of_steps(const struct backend_ops *which)
{
    srand(test_seed(7));
    ask_all(N);
    int plain = forwards_of(N, 100);
    speculate_on(which);
    int right = forwards_of(N, 0), half = forwards_of(N, 30), wrong = forwards_of(N, 100);
    assert_true(right < half && half < wrong);
    assert_true(3 * right < 2 * plain);
    assert_true(wrong <= plain);
}
TEST_WITH(on_the_host, setup, teardown) { drafts_change_nothing_but_the_number_of_steps(&ops); }
TEST_WITH(on_a_device_that_chooses, setup_draws, teardown)
{
    drafts_change_nothing_but_the_number_of_steps(&drawing_ops);
}

/* Decode request 0 with right drafts at every step; how many steps it takes. */
static int decode_zero(void)
{
    uint32_t ids[MAX_NEW];
    struct err e = ERR_INIT;
    struct answer a;
    int steps = 0;
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    for (take(&a, v); a.batch; steps++) {
        struct draft_offer o = offer(0, v[0].n_got, 0, ids);
        struct edits x = {.offers = &o, .n_offers = 1};
        assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
        take(&a, v);
    }
    assert_int_equal(v[0].n_got, v[0].n_alone);
    assert_memory_equal(v[0].got, v[0].alone, v[0].n_got * sizeof(uint32_t));
    return steps;
}

/* An answer ends inside a run of accepted drafts where it ends without: by a stop sequence, at an
 * end token, at its length; nothing behind that is told, or counted. */
TEST_WITH(an_answer_ends_inside_accepted_drafts, setup, teardown)
{
    char stop[2][16], *stops[2] = {stop[0], stop[1]};
    ask_all(6);
    struct asked plain = v[2]; /* without a least length */
    plain.spec.id = 0;
    for (uint32_t at = 2; at < plain.n_alone; at++) {
        v[0] = plain;
        snprintf(stop[0], sizeof(stop[0]), "%u><%u>", plain.alone[at - 1], plain.alone[at]);
        snprintf(stop[1], sizeof(stop[1]), "no such");
        v[0].spec.stops = stops, v[0].spec.n_stops = 2;
        v[0].n_alone = at + 1;
        memcpy(v[0].alone, plain.alone, sizeof(plain.alone)); /* the whole answer is drafted */
        struct err e = ERR_INIT;
        struct answer a;
        speculate_on(&ops);
        assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
        for (take(&a, v); a.batch;) {
            struct draft_offer o = {0, v[0].spec.n_prompt, plain.alone, plain.n_alone};
            struct edits x = {.offers = &o, .n_offers = 1};
            assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
            take(&a, v);
        }
        const struct gen *last = &a.out->gen[a.out->n_gen - 1];
        assert_true(v[0].n_got <= at + 1); /* the pair may have stood there earlier */
        assert_int_equal(last->reason, at + 1 == MAX_NEW        ? STOP_LENGTH
                                       : plain.alone[at] == EOS ? STOP_EOS
                                                                : STOP_SEQUENCE);
        assert_int_equal(last->seq->stop.generated, v[0].n_got);
        assert_int_equal(last->seq->n, v[0].spec.n_prompt + v[0].n_got);
        assert_memory_equal(v[0].got, plain.alone, v[0].n_got * sizeof(uint32_t));
    }
}

/* Drafts take what room there is in the blocks, and no request fails for want of more. */
TEST_WITH(drafts_make_do_with_the_blocks_there_are, setup, teardown)
{
    uint32_t ids[MAX_NEW];
    struct err e = ERR_INIT;
    struct answer a;
    ask_all(6);
    speculate_on(&ops);
    const uint32_t all = (uint32_t)v[0].spec.n_blocks;
    v[0].spec.n_blocks = v[0].spec.n_prompt / BS + 1;
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    for (take(&a, v); a.batch;) {
        uint32_t known = v[0].spec.n_prompt + v[0].n_got, need = (known + BS - 1) / BS;
        struct kv_more more = {0, 0, v[0].blocks, need < all ? need : all};
        struct draft_offer o = offer(0, v[0].n_got, 0, ids);
        struct edits x = {
            .offers = &o, .n_offers = 1, .more = &more, .n_more = 1, .drafting = v[0].n_got % 2};
        assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
        take(&a, v);
        assert_int_equal(engine_ahead(g, &e), 0);
        if (a.batch) { /* never behind the blocks that were given */
            const struct seq *s = a.batch->v[0];
            assert_true(s->drafted == 0 || s->n + s->drafted <= s->n_blocks * BS);
        }
    }
    assert_int_equal(v[0].n_got, v[0].n_alone);
    assert_memory_equal(v[0].got, v[0].alone, v[0].n_got * sizeof(uint32_t));
}

/* A model whose scores are no numbers cannot be timed; the reason is told. */
TEST_WITH(warm_up_says_why_it_ended_early, setup, teardown)
{
    engine_free(g);
    speculate = MOST_DRAFTS, no_numbers = 2; /* its first trial is fine */
    int rc = setup_on(&ops);
    speculate = 0, no_numbers = 0;
    assert_int_equal(rc, -1);
    assert_int_equal(set_up.kind, ERR_SYSTEM);
    assert_string_equal(set_up.msg, "warm-up: the model's scores are not finite numbers");
}

/* A step that fails with drafts in it leaves everything as it was. */
TEST_WITH(a_failed_step_is_repeated, setup, teardown)
{
    uint32_t ids[MAX_NEW];
    struct err e = ERR_INIT;
    struct answer a;
    ask_all(6);
    speculate_on(&ops);
    assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
    for (take(&a, v); a.batch;) {
        struct draft_offer o = offer(0, v[0].n_got, 0, ids);
        struct edits x = {.offers = &o, .n_offers = 1};
        fake.fail_in = rand() % 2;
        int rc = engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e);
        fake.fail_in = 0;
        if (rc == 0)
            take(&a, v);
        else
            a.batch = batches_find(&g->batches, 0);
    }
    assert_memory_equal(v[0].got, v[0].alone, v[0].n_got * sizeof(uint32_t));
}

/* So many drafts as rows are worth: none where a row costs a step, few that are often wrong. */
TEST_WITH(drafts_are_planned_by_their_worth, setup, teardown)
{
    ask_all(6);
    speculate_on(&ops);
    g->drafting.cost = 0.01;
    int cheap = decode_zero();
    v[0].n_got = 0, v[0].over = false;
    g->drafting.cost = 1;
    int dear = decode_zero();
    assert_true(cheap < dear);
    assert_int_equal(dear, v[0].n_alone - 1);
    v[0].n_got = 0, v[0].over = false;
    g->drafting.cost = 0.01;
    g->drafting.most_rows = 1;
    int one = decode_zero();
    assert_true(cheap < one && one < dear);
}

/* Each step once, whether it is run ahead or waits for offers: a plan that verifies none of what it
 * finds fades what is thought of that, which counts them here. */
TEST_WITH(a_step_is_planned_once, setup, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    ask_all(6);
    for (int wait = 0; wait < 2; wait++) {
        struct draft_offer o = {0, v[0].spec.n_prompt, v[0].alone, v[0].n_alone};
        struct edits x = {.offers = &o, .n_offers = 1, .drafting = wait};
        struct acceptance want = {0};
        speculate_on(&ops);
        g->drafting.cost = 1; /* none is worth it */
        v[0].n_got = 0, v[0].over = false;
        assert_int_equal(engine_prefill(g, 0, &v[0].spec, 1, NULL, NULL, &a, &e), 0);
        a.batch->v[0]->acceptance = want;
        for (take(&a, v); a.batch; take(&a, v)) {
            if (v[0].n_got + 1 < v[0].spec.max_new_tokens) /* the last token needs no drafts */
                acceptance_fade(&want, DRAFT_OFFERED);
            assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
            assert_int_equal(engine_ahead(g, &e), 0);
        }
        assert_true(v[0].n_got > 3);
        assert_true(a.out->gen[0].seq->acceptance.rate[DRAFT_OFFERED] == want.rate[DRAFT_OFFERED]);
    }
}

/* Garbage is verified less and less. */
TEST_WITH(wrong_drafts_are_given_up, setup, teardown)
{
    struct err e = ERR_INIT;
    struct answer a;
    uint32_t early = 0, late = 0;
    speculate_on(&ops);
    static uint32_t blocks[64];
    for (uint32_t i = 0; i < 64; i++)
        blocks[i] = i;
    struct seq_spec s = {.prompt = (uint32_t[]){1, 2, 3},
                         .n_prompt = 3,
                         .max_new_tokens = 200,
                         .blocks = blocks,
                         .n_blocks = 64,
                         .ignore_eos = true,
                         .sampling = sampling_neutral()};
    g->drafting.cost = 0.1;
    assert_int_equal(engine_prefill(g, 0, &s, 1, NULL, NULL, &a, &e), 0);
    for (int i = 0; a.batch; i++) {
        const struct seq *q = a.batch->v[0];
        uint32_t ids[MOST_DRAFTS] = {(uint32_t)rand() % VOCAB, 1, 2, 3, 4};
        struct draft_offer o = {0, q->n, ids, MOST_DRAFTS};
        struct edits x = {.offers = &o, .n_offers = 1};
        const uint32_t before = fake.tokens;
        assert_int_equal(engine_decode(g, (uint64_t[]){0}, 1, &x, &a, &e), 0);
        *(i < 20 ? &early : &late) += fake.tokens - before - 1;
    }
    assert_true(early > 0 && late > 0); /* it never gives up for good */
    assert_true(late / 9.0 < early / 2.0);
}

int main(void) { return tests_run(NULL, NULL); }

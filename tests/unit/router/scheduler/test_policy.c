/* Who joins a step: order, budget, chunks, passing, and that nobody is passed forever. */
#include "router/scheduler/policy.h"
#include "tests/unit/test.h"
#include <stdlib.h>
#include <string.h>

enum { MAX = 64, SEC = 1000000000 };
static uint32_t
    tokens[4096]; /* all prompts are prefixes of nothing: sharing is off but where said */

struct one {
    struct waiter w;
    struct kv_table t;
};

/* "two" and "also two" of two pages, "one" of one; to be released. */
static struct served_adapters *three(void)
{
    static const struct served_adapter listed[] = {
        {.name = "two", .pages = 2, .number = 1},
        {.name = "also two", .pages = 2, .number = 2},
        {.name = "one", .path = "/from", .pages = 1, .number = 3}};
    struct served_adapters *s = served_adapters_none(), *more;
    for (int i = 0; i < 3; i++, s = more) {
        assert_non_null(more = served_adapters_with(s, &listed[i]));
        served_adapters_release(s);
    }
    return s;
}

static bool init_books(struct adapter_accounts *b)
{
    struct served_adapters *s = three();
    const bool ok = adapters_init(b, s, 3);
    served_adapters_release(s);
    return ok;
}

struct rig {
    struct kv_blocks *kv;
    struct adapter_accounts adapters;
    struct policy p;
    struct joiner out[MAX];
    uint64_t next_order;
};

static void rig_init(struct rig *g, struct policy_limits l, uint32_t blocks)
{
    g->kv = kv_new(blocks + 1, 4, 1);
    assert_true(init_books(&g->adapters));
    policy_init(&g->p, &l, g->kv, &g->adapters);
    g->next_order = 1;
    for (uint32_t i = 0; i < 4096; i++)
        tokens[i] = i;
}

static void add_for(struct rig *g, struct one *o, uint32_t n_prompt, uint32_t n_reserve,
                    uint64_t tenant)
{
    *o =
        (struct one){.w = {.key = {tokens, n_prompt, 0}, .n_reserve = n_reserve, .tenant = tenant}};
    o->w.kv = &o->t;
    o->w.fair.order = g->next_order++;
    assert_true(policy_add(&g->p, &o->w));
}

static void add(struct rig *g, struct one *o, uint32_t n_prompt, uint32_t n_reserve)
{
    add_for(g, o, n_prompt, n_reserve, 0);
}

static uint32_t join(struct rig *g, struct load l, int64_t now)
{
    uint32_t n = policy_join(&g->p, &l, now, g->out, MAX);
    kv_check(g->kv);
    return n;
}

static void done(struct rig *g, struct one *o)
{
    kv_release(g->kv, &o->t, NULL, 0);
    policy_leaves(&g->p, &o->w);
    policy_forget(&g->p, &o->w);
}

static void rig_fini(struct rig *g, struct one *o, uint32_t n)
{
    for (struct waiter *w; (w = policy_any(&g->p));) {
        policy_remove(&g->p, w);
        policy_forget(&g->p, w);
    }
    for (uint32_t i = 0; i < n; i++)
        done(g, &o[i]);
    assert_int_equal(kv_stats(g->kv).used, 0);
    policy_free(&g->p);
    kv_free(g->kv);
    adapters_free(&g->adapters);
}

static void first_come_first_served_within_the_budget(void **state)
{
    struct rig g;
    struct one o[4];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 100);
    for (int i = 0; i < 4; i++)
        add(&g, &o[i], 8, 10);
    assert_int_equal(join(&g, (struct load){0}, 0), 3);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    assert_ptr_equal(g.out[2].w, &o[2].w);
    assert_int_equal(g.out[0].n_tokens, 8);
    assert_false(g.out[1].cut);
    assert_int_equal(g.out[2].n_tokens, 4); /* the rest of the step */
    assert_true(g.out[2].cut);
    assert_int_equal(policy_waiting(&g.p), 1);
    rig_fini(&g, o, 4);
}

static void running_requests_take_their_share_of_the_step(void **state)
{
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 100);
    add(&g, &o[0], 8, 10);
    add(&g, &o[1], 8, 10);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 20}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 3, .n_tokens = 12}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 8);
    rig_fini(&g, o, 2);
}

static void the_batch_size_holds_for_every_step(void **state)
{
    struct rig g;
    struct one o[6];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 99, .batch_size = 4, .chunking = true},
             100);
    for (int i = 0; i < 6; i++)
        add(&g, &o[i], 2, 4);
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 3);
    assert_int_equal(join(&g, (struct load){.n_running = 4, .n_tokens = 4}, 0), 0);
    assert_int_equal(join(&g, (struct load){.n_running = 9, .n_tokens = 9}, 0), 0);
    rig_fini(&g, o, 6);
}

/* A chunk of no tokens would stand for the whole prompt. */
static void a_prompt_that_is_cut_gets_a_token_of_the_smallest_step(void **state)
{
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 20, .chunking = true}, 1000);
    add(&g, &o[0], 1000, 1010);
    add(&g, &o[1], 1, 10);
    assert_int_equal(join(&g, (struct load){.n_running = 19, .n_tokens = 19}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_int_equal(g.out[0].n_tokens, 1);
    assert_true(g.out[0].cut);
    rig_fini(&g, o, 2);
}

static void a_long_prompt_leaves_half_of_the_step_to_short_ones(void **state)
{
    struct rig g;
    struct one o[4];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 1000);
    add(&g, &o[0], 1000, 1010);
    add(&g, &o[1], 30, 40);
    add(&g, &o[2], 30, 40); /* 60 would be more than half */
    add(&g, &o[3], 1000, 1010);
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    assert_ptr_equal(g.out[1].w, &o[0].w); /* the cut one comes last */
    assert_true(g.out[1].cut);
    assert_int_equal(g.out[1].n_tokens, 70);
    assert_int_equal(policy_waiting(&g.p), 2);
    rig_fini(&g, o, 4);
}

static void one_that_does_not_fit_is_passed_but_not_forever(void **state)
{
    struct rig g;
    struct one big, o[10];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 500, .chunking = true, .max_passed = 3},
             20);
    add(&g, &o[0], 20, 40); /* half of the blocks */
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    add(&g, &big, 20, 80); /* needs all of them */
    for (int i = 1; i <= 3; i++) {
        add(&g, &o[i], 4, 4);
        assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 1);
        assert_ptr_equal(g.out[0].w, &o[i].w);
        assert_int_equal(big.w.passed, i);
    }
    add(&g, &o[4], 4, 4); /* would fit, but has to wait for its turn now */
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 0);
    for (int i = 0; i <= 3; i++)
        done(&g, &o[i]);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &big.w);
    done(&g, &big);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    rig_fini(&g, &o[4], 1);
}

static void being_passed_has_a_time_limit_too(void **state)
{
    struct rig g;
    struct one big, o[3];
    (void)state;
    rig_init(&g,
             (struct policy_limits){
                 .prefill_tokens = 500, .chunking = true, .max_passed_ns = 2 * (int64_t)SEC},
             20);
    add(&g, &o[0], 20, 40);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    add(&g, &big, 20, 80);
    add(&g, &o[1], 4, 4);
    /* waiting alone does not count: a queue that is long everywhere stays first come, first served
     */
    assert_int_equal(join(&g, (struct load){0}, 100 * (int64_t)SEC), 1);
    add(&g, &o[2], 4, 4);
    assert_int_equal(join(&g, (struct load){0}, 102 * (int64_t)SEC), 0);
    done(&g, &o[0]);
    done(&g, &o[1]);
    assert_int_equal(join(&g, (struct load){0}, 103 * (int64_t)SEC), 1);
    assert_ptr_equal(g.out[0].w, &big.w);
    done(&g, &big);
    assert_int_equal(join(&g, (struct load){0}, 104 * (int64_t)SEC), 1);
    rig_fini(&g, &o[2], 1);
}

static void one_that_waits_can_leave(void **state)
{
    struct rig g;
    struct one o[3];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 500, .chunking = true}, 20);
    for (int i = 0; i < 3; i++)
        add(&g, &o[i], 4, 4);
    policy_remove(&g.p, &o[1].w);
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_ptr_equal(g.out[1].w, &o[2].w);
    rig_fini(&g, o, 3);
}

static void without_chunking_prompts_come_whole_and_wait_until_enough_do(void **state)
{
    struct rig g;
    struct one o[4];
    struct load busy = {.n_running = 4};
    (void)state;
    rig_init(&g,
             (struct policy_limits){
                 .prefill_tokens = 20, .waiting_served_ratio = 0.5, .max_waiting_tokens = 10},
             100);
    add(&g, &o[0], 30, 32); /* more than a step holds: alone, when nothing runs */
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 30);
    assert_false(g.out[0].cut);
    add(&g, &o[1], 8, 10);
    assert_int_equal(join(&g, busy, 0), 0); /* 4 * 0.5: two have to wait */
    busy.steps_since_join = 10;
    add(&g, &o[2], 15, 16);
    assert_int_equal(join(&g, busy, 0), 1); /* long enough; the second is too much */
    assert_ptr_equal(g.out[0].w, &o[1].w);
    add(&g, &o[3], 5, 6);
    busy.steps_since_join = 0;
    assert_int_equal(join(&g, busy, 0), 2);
    rig_fini(&g, o, 4);
}

static void cached_tokens_cost_no_budget(void **state)
{
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 10, .chunking = true}, 100);
    add(&g, &o[0], 8, 8);
    o[0].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    kv_release(g.kv, &o[0].t, tokens, 8);
    policy_forget(&g.p, &o[0].w);
    add(&g, &o[1], 18, 20);
    o[1].w.share = true;
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_int_equal(g.out[0].n_tokens, 10);
    assert_false(g.out[0].cut);
    rig_fini(&g, &o[1], 1);
}

static void prompts_in_progress_and_newcomers_share_a_bounded_step(void **state)
{
    struct rig g;
    struct one o[4];
    struct started st[2] = {{.left = 1000}, {.left = 30}};
    struct load l = {.n_running = 8,
                     .n_tokens = 6,
                     .prompt_tokens = 80, /* of the 4096: the streams keep their pace */
                     .started = st,
                     .n_started = 2};
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 4096, .chunking = true}, 10000);
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[1].n_now, 30); /* the shortest rest goes first */
    assert_int_equal(st[0].n_now, 50);
    add(&g, &o[0], 2000, 2001); /* not now: longer than those */
    add(&g, &o[1], 25, 30);
    add(&g, &o[2], 15, 30);
    add(&g, &o[3], 15, 30); /* half of the step is full */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    assert_ptr_equal(g.out[1].w, &o[2].w);
    assert_int_equal(st[1].n_now + st[0].n_now, 40);
    assert_int_equal(st[0].n_now, 11); /* a quarter is the oldest one's, come what may */
    st[1].left = 0;
    l.n_started = 1;
    done(&g, &o[1]);
    add(&g, &o[1], 400, 401); /* less than half of what the long one has left: it goes between */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &o[3].w);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    assert_true(g.out[1].cut);
    assert_int_equal(g.out[0].n_tokens + g.out[1].n_tokens + st[0].n_now, 80);
    st[0].left = 20; /* ends in this step: the rest is for whoever is next */
    assert_int_equal(join(&g, l, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    assert_int_equal(g.out[0].n_tokens, 60);
    rig_fini(&g, o, 4);
}

/* Many may be cut at once, and what they leave of the step is the others'. */
static void prompts_stop_where_their_state_is_kept(void **state)
{
    struct rig g;
    struct one o[3];
    struct started st[2] = {{.left = 1000, .stop = 24}, {.left = 30, .stop = 7}};
    struct load l = {
        .n_running = 2, .n_tokens = 0, .prompt_tokens = 200, .started = st, .n_started = 2};
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 4096, .chunking = true}, 1000);
    assert_true(kv_stateful(g.kv, 8, true));
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 50 + (uint32_t)i, 60);
        o[i].w.share = true;
    }
    assert_int_equal(join(&g, l, 0), 3);
    for (uint32_t i = 0; i < 3; i++) {
        assert_ptr_equal(g.out[i].w, &o[i].w);
        assert_int_equal(g.out[i].n_tokens, 48); /* of 50, 51, 52 */
        assert_true(g.out[i].cut);
    }
    assert_int_equal(st[0].n_now, 24);
    assert_int_equal(st[1].n_now, 7);
    rig_fini(&g, o, 3);
}

static void a_key_with_one_request_does_not_wait_for_a_key_with_many(void **state)
{
    struct rig g;
    struct one many[20], one, second, fresh[3];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 1000);
    for (int i = 0; i < 20; i++)
        add_for(&g, &many[i], 40, 41, 1);
    assert_int_equal(join(&g, (struct load){0}, 0), 3);
    add(&g, &one, 40, 41); /* another's: a step with its prompt and as much of a cut one */
    struct started cut = {.left = 500};
    const struct load l = {.n_running = 3, .n_tokens = 2, .started = &cut, .n_started = 1};
    assert_int_equal(join(&g, l, 0), 1);
    assert_ptr_equal(g.out[0].w, &one.w);
    assert_int_equal(cut.n_now, 40);
    fair_charge(&many[0].w.fair, 1000); /* tokens that it was given meanwhile */
    add(&g, &second, 40, 41);           /* runs one now: its next joins beside the others */
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &second.w);
    assert_int_equal(cut.n_now, 98 - 49);
    for (int i = 0; i < 3; i++) { /* new accounts with every step: others join in every second */
        add_for(&g, &fresh[i], 4, 5, 10 + (uint64_t)i);
        assert_int_equal(join(&g, l, 0) > 1, i == 1);
        assert_ptr_equal(g.out[0].w, &fresh[i].w);
        assert_true(cut.n_now >= 98 / 4);
        done(&g, &fresh[i]);
    }
    done(&g, &one);
    done(&g, &second);
    rig_fini(&g, many, 20);
}

static void priorities_rule_within_a_key(void **state)
{
    struct rig g;
    struct one o[3];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 8, .chunking = true}, 1000);
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 8, 9);
        policy_remove(&g.p, &o[i].w);
        o[i].w.fair.priority = i == 2 ? -1 : 0;
        assert_true(policy_add(&g.p, &o[i].w));
    }
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[2].w);
    assert_int_equal(join(&g, (struct load){0}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[0].w);
    rig_fini(&g, o, 3);
}

static void a_picture_that_stays_whole_is_never_cut(void **state)
{
    static const struct kv_medium one_picture = {4, 30, 7};
    const struct kv_media media = {.v = &one_picture, .n = 1, .whole = true};
    struct rig g;
    struct one o[2];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 32, .chunking = true}, 1000);
    add(&g, &o[0], 40, 50);
    o[0].w.key.media = media;
    add(&g, &o[1], 4, 9);
    assert_int_equal(join(&g, (struct load){.n_running = 1, .n_tokens = 1}, 0), 2);
    assert_int_equal(g.out[0].n_tokens, 4); /* up to the picture */
    assert_true(g.out[0].cut);
    assert_ptr_equal(g.out[1].w, &o[1].w);
    /* one row of the step is another's: the picture gets its 30 all the same */
    struct started st[2] = {{.left = 36, .at = 4, .media = media}, {.left = 5}};
    struct load l = {
        .n_running = 9, .n_tokens = 7, .prompt_tokens = 8, .started = st, .n_started = 2};
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[0].n_now, 30);
    assert_int_equal(st[1].n_now, 0);
    st[0] = (struct started){.left = 6, .at = 34, .media = media};
    assert_int_equal(join(&g, l, 0), 0);
    assert_int_equal(st[0].n_now + st[1].n_now, 8);
    rig_fini(&g, o, 2);
}

static void a_step_carries_so_many_bytes_of_pictures(void **state)
{
    struct rig g;
    struct one o[3];
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 64, .chunking = true}, 100);
    for (int i = 0; i < 3; i++) {
        add(&g, &o[i], 8, 10);
        o[i].w.n_bytes = i == 0 ? POLICY_MAX_BYTES + 1 : i == 1 ? 1 : 0;
    }
    assert_int_equal(join(&g, (struct load){0}, 0), 1); /* one alone may always */
    assert_int_equal(join(&g, (struct load){0}, 0), 2);
    rig_fini(&g, o, 3);
}

/* A day in the life: keys, priorities, lengths, pictures, memory, cancels and paces at random, with
 * chunks that are planned here and computed as planned. Nobody is lost, no block leaks, no step is
 * too large, no picture is cut, and whoever waits has not been overtaken by more tokens than the
 * rules allow. */
struct life {
    struct one one;
    struct kv_medium pictures[3];
    uint32_t tok[600], computed, new_left, n;
    uint64_t in_step;
    enum { OUTSIDE, WAITS, RUNS, OVER } state;
};

enum { MOST_OF_A_PICTURE = 16 };

static struct kv_media draw_pictures(struct life *v)
{
    struct kv_media m = {.v = v->pictures, .whole = true};
    for (uint32_t at = (uint32_t)rand() % 40; m.n < 3; m.n++) {
        const struct kv_medium p = {at, 1 + (uint32_t)rand() % MOST_OF_A_PICTURE,
                                    (uint64_t)rand() % 3};
        if (p.first + p.n > v->n || rand() % 3 == 0)
            break;
        v->pictures[m.n] = p;
        at = p.first + p.n + (uint32_t)rand() % 40 * (rand() % 2);
    }
    return m;
}

static bool cuts_a_picture(const struct life *v)
{
    for (uint32_t i = 0; i < v->one.w.key.media.n; i++)
        if (v->computed > v->pictures[i].first &&
            v->computed < v->pictures[i].first + v->pictures[i].n)
            return true;
    return false;
}

static void begin_life(struct rig *g, struct life *v, uint64_t step)
{
    v->n = 1 + (rand() % 8 ? (uint32_t)rand() % 40 : (uint32_t)rand() % 500);
    for (uint32_t i = 0; i < v->n; i++)
        v->tok[i] = i < 30 ? (uint32_t)rand() % 2 * (i % 7 == 0) : (uint32_t)rand() % 1000;
    v->new_left = 1 + (uint32_t)rand() % 20;
    v->one.w = (struct waiter){.key = {v->tok, v->n, 0},
                               .share = rand() % 8,
                               .n_reserve = v->n + v->new_left,
                               .kv = &v->one.t,
                               .tenant = (uint64_t)(rand() % 4 ? 0 : rand() % 4),
                               .fair = {.priority = rand() % 3 - 1, .order = g->next_order++}};
    v->one.w.key.media = draw_pictures(v);
    v->in_step = step;
    v->computed = 0;
    v->state = WAITS;
    assert_true(policy_add(&g->p, &v->one.w));
}

static void end_life(struct rig *g, struct life *v)
{
    if (v->state == WAITS)
        policy_remove(&g->p, &v->one.w);
    kv_release(g->kv, &v->one.t, v->tok, v->computed < v->n ? v->computed : v->n);
    policy_forget(&g->p, &v->one.w);
    v->state = OVER;
}

static void any_traffic_is_served_within_the_rules(void **state)
{
    enum { N = 2500, AT_ONCE = 40 };
    struct life *v = calloc(N, sizeof(*v));
    (void)state;
    for (int round = 0; round < 3; round++) {
        struct rig g;
        uint32_t in = 0, over = 0, prefill = 16 << 2 * round, batch = round == 1 ? 7 : 0;
        uint64_t longest = 0, step = 0;
        srand(test_seed((unsigned)round + 1));
        memset(v, 0, N * sizeof(*v));
        rig_init(&g,
                 (struct policy_limits){
                     .prefill_tokens = prefill, .batch_size = batch, .chunking = true},
                 150 + 100 * (uint32_t)round);
        kv_copying(g.kv, true);
        for (; over < N; step++) {
            struct started st[N];
            struct life *of[N];
            struct load l = {.started = st, .prompt_tokens = (uint32_t)rand() % 3 ? 0 : 9};
            while (in < N && in - over < AT_ONCE && rand() % 3)
                begin_life(&g, &v[in++], step);
            for (uint32_t i = 0; i < in; i++) {
                if (v[i].state < WAITS || v[i].state > RUNS)
                    continue;
                if (rand() % 500 == 0) {
                    end_life(&g, &v[i]);
                    over++;
                } else if (v[i].state == RUNS && v[i].computed < v[i].n) {
                    l.n_running++;
                    of[l.n_started] = &v[i];
                    st[l.n_started++] = (struct started){.left = v[i].n - v[i].computed,
                                                         .at = v[i].computed,
                                                         .media = v[i].one.w.key.media};
                } else if (v[i].state == RUNS) {
                    l.n_running++;
                    l.n_tokens++;
                }
            }
            uint32_t n = join(&g, l, (int64_t)step * SEC / 50), used = 0;
            uint32_t most = prefill > l.n_tokens ? prefill - l.n_tokens : 0;
            most = l.prompt_tokens && l.prompt_tokens < most ? l.prompt_tokens : most;
            for (uint32_t i = 0; i < l.n_started; i++) {
                assert_true(st[i].n_now <= st[i].left);
                used += st[i].n_now;
                of[i]->computed += st[i].n_now;
                assert_false(st[i].n_now && cuts_a_picture(of[i]));
                kv_commit(g.kv, &of[i]->one.t, of[i]->tok, of[i]->computed);
            }
            assert_true(l.n_started == 0 || st[0].n_now > 0); /* the oldest goes on */
            for (uint32_t i = 0; i < in; i++)
                if (v[i].state == RUNS && v[i].computed == v[i].n && v[i].new_left-- == 0) {
                    end_life(&g, &v[i]);
                    over++;
                }
            for (uint32_t i = 0; i < n; i++) {
                struct life *w = (struct life *)g.out[i].w;
                assert_int_equal(w->state, WAITS);
                assert_int_equal(g.out[i].cut, w->one.t.n_cached + g.out[i].n_tokens < w->n);
                w->state = RUNS;
                kv_copied(g.kv, &w->one.t);
                w->computed = w->one.t.n_cached + g.out[i].n_tokens;
                used += g.out[i].n_tokens;
                assert_false(cuts_a_picture(w));
                kv_commit(g.kv, &w->one.t, w->tok, w->computed);
                longest = step - w->in_step > longest ? step - w->in_step : longest;
            }
            assert_true(used <= most || used <= MOST_OF_A_PICTURE);
            assert_true(!batch || l.n_running + n <= batch || n == 0);
            assert_true(step < 200000); /* somebody waits forever */
        }
        /* 40 at once, of at most 500 + 20 tokens, in steps of at least nine prompt tokens in three:
         * all of those before one, eight times */
        assert_true(longest < 8 * 40 * 60);
        kv_check(g.kv);
        assert_int_equal(policy_waiting(&g.p), 0);
        rig_fini(&g, NULL, 0);
    }
    free(v);
}

/* Random traffic, random lengths: everybody gets in, and nobody waits longer than the rule says. */
static void nobody_starves(void **state)
{
    enum { N = 3000 };
    static struct one o[N];
    static uint32_t left[N];
    struct rig g;
    uint32_t r = 7, next = 0, over = 0, running[MAX], n_running = 0;
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 64, .batch_size = 16, .chunking = true},
             60);
    for (int64_t step = 0; over < N; step++) {
        assert_true(step < 200000);
        for (int k = 0; k < 2 && next < N; k++, next++) {
            r = r * 1664525u + 1013904223u;
            bool huge = (r >> 20) % 10 == 0;
            uint32_t n = huge ? 200 : 1 + (r >> 10) % 30;
            add(&g, &o[next], n, n + 1 + (r >> 5) % 30);
            left[next] = 1 + (r >> 8) % 12;
        }
        uint32_t n = join(&g, (struct load){.n_running = n_running, .n_tokens = n_running},
                          step * SEC / 100);
        for (uint32_t i = 0; i < n; i++) {
            struct one *in = (struct one *)g.out[i].w;
            assert_true(in->w.passed <= POLICY_MAX_PASSED);
            running[n_running++] = (uint32_t)(in - o);
        }
        assert_true(n_running <= 16);
        for (uint32_t i = n_running; i-- > 0;)
            if (--left[running[i]] == 0) {
                done(&g, &o[running[i]]);
                running[i] = running[--n_running];
                over++;
            }
    }
    rig_fini(&g, o, 0);
}

static void adapters_run_while_there_is_room_for_them(void **state)
{
    struct rig g;
    struct one o[6] = {0};
    (void)state;
    rig_init(&g, (struct policy_limits){.prefill_tokens = 100, .chunking = true}, 100);
    const uint32_t wants[6] = {1, 2, 1, 0, 3, ADAPTER_UNNUMBERED};
    for (int i = 0; i < 6; i++) {
        add(&g, &o[i], 4, 5);
        o[i].w.key.adapter = wants[i];
    }
    /* two pages, then two that are too many, the same two again, none, one, and an unknown */
    assert_int_equal(join(&g, (struct load){.n_running = 0}, 0), 5);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(g.out[i].w, &o[i < 1 ? 0 : i + 1].w);
    assert_int_equal(g.adapters.pages, 3);
    done(&g, &o[2]);
    assert_int_equal(join(&g, (struct load){.n_running = 4}, 0), 0);
    done(&g, &o[0]); /* the last that used it */
    assert_int_equal(g.adapters.pages, 1);
    assert_int_equal(join(&g, (struct load){.n_running = 3}, 0), 1);
    assert_ptr_equal(g.out[0].w, &o[1].w);
    done(&g, &o[1]), done(&g, &o[3]), done(&g, &o[4]), done(&g, &o[5]);
    assert_int_equal(g.adapters.pages, 0);
    rig_fini(&g, o, 0);
}

static void names_of_adapters_get_numbers(void **state)
{
    struct adapter_accounts b;
    char name[16];
    (void)state;
    assert_true(init_books(&b));
    assert_int_equal(adapters_number(&b, NULL), 0);
    assert_int_equal(adapters_number(&b, ""), 0);
    assert_int_equal(adapters_number(&b, "one"), 3);
    for (uint32_t i = 0; i < ADAPTERS_MAX_UNLISTED; i++) {
        snprintf(name, sizeof(name), "peer %u", i);
        assert_int_equal(adapters_number(&b, name), ADAPTER_FIRST_UNLISTED + i);
    }
    const uint32_t peer = adapters_number(&b, "peer 7");
    assert_int_equal(peer, ADAPTER_FIRST_UNLISTED + 7);
    assert_int_equal(adapters_number(&b, "one more"), ADAPTER_UNNUMBERED);
    assert_true(adapters_fit(&b, ADAPTER_UNNUMBERED) && adapters_fit(&b, peer));
    adapters_activate(&b, ADAPTER_UNNUMBERED), adapters_deactivate(&b, ADAPTER_UNNUMBERED);
    adapters_free(&b);
}

static void a_list_is_replaced_and_the_counts_stay(void **state)
{
    struct adapter_accounts b;
    struct adapter_shelf shelf;
    struct served_adapter again = {.name = "two", .path = "/other", .pages = 3};
    (void)state;
    assert_true(init_books(&b));
    adapter_shelf_init(&shelf);
    assert_null(adapter_shelf_hold(&shelf));
    adapter_shelf_put(&shelf, b.list);
    struct served_adapters *old = adapter_shelf_hold(&shelf);
    adapters_retain(&b, 3), adapters_retain(&b, 3), adapters_activate(&b, 3);
    assert_int_equal(b.pages, 1);
    /* one that leaves is not for new requests, and counts on for those that it has */
    struct served_adapters *marked = served_adapters_marked(b.list, 3, true);
    assert_true(adapters_replace(&b, marked));
    adapter_shelf_put(&shelf, marked);
    served_adapters_release(marked);
    assert_false(adapter_shelf_has(&shelf, "one"));
    assert_true(adapter_shelf_has(&shelf, "two"));
    assert_int_equal(adapters_known(&b, 3), 2);
    assert_int_equal(b.pages, 1);
    adapters_deactivate(&b, 3), adapters_release(&b, 3), adapters_release(&b, 3);
    assert_int_equal(adapters_known(&b, 3), 0);
    /* a name that is loaded again has another number */
    struct served_adapters *less = served_adapters_without(b.list, 1);
    assert_true(adapters_replace(&b, less));
    assert_int_equal(b.next_number, 4);
    again.number = b.next_number;
    struct served_adapters *more = served_adapters_with(less, &again);
    assert_true(adapters_replace(&b, more));
    adapter_shelf_put(&shelf, more);
    assert_int_equal(adapters_number(&b, "two"), 4);
    assert_int_equal(b.next_number, 5);
    served_adapters_release(less), served_adapters_release(more);
    adapters_activate(&b, 1), adapters_retain(&b, 1); /* of one that is not there: nothing */
    assert_int_equal(b.pages, 0);
    assert_true(adapters_fit(&b, 4));
    adapters_retain(&b, 2), adapters_activate(&b, 2);
    assert_false(adapters_fit(&b, 4));
    /* who held the first list reads it still */
    assert_string_equal(served_adapters_find(old, "one")->path, "/from");
    assert_int_equal(served_adapters_find(old, "two")->number, 1);
    served_adapters_release(old);
    adapters_deactivate(&b, 2), adapters_release(&b, 2);
    adapters_free(&b);
    adapter_shelf_fini(&shelf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_come_first_served_within_the_budget),
        cmocka_unit_test(running_requests_take_their_share_of_the_step),
        cmocka_unit_test(the_batch_size_holds_for_every_step),
        cmocka_unit_test(a_prompt_that_is_cut_gets_a_token_of_the_smallest_step),
        cmocka_unit_test(a_long_prompt_leaves_half_of_the_step_to_short_ones),
        cmocka_unit_test(one_that_does_not_fit_is_passed_but_not_forever),
        cmocka_unit_test(being_passed_has_a_time_limit_too),
        cmocka_unit_test(one_that_waits_can_leave),
        cmocka_unit_test(without_chunking_prompts_come_whole_and_wait_until_enough_do),
        cmocka_unit_test(cached_tokens_cost_no_budget),
        cmocka_unit_test(prompts_stop_where_their_state_is_kept),
        cmocka_unit_test(prompts_in_progress_and_newcomers_share_a_bounded_step),
        cmocka_unit_test(a_key_with_one_request_does_not_wait_for_a_key_with_many),
        cmocka_unit_test(priorities_rule_within_a_key),
        cmocka_unit_test(a_picture_that_stays_whole_is_never_cut),
        cmocka_unit_test(a_step_carries_so_many_bytes_of_pictures),
        cmocka_unit_test(any_traffic_is_served_within_the_rules),
        cmocka_unit_test(nobody_starves),
        cmocka_unit_test(adapters_run_while_there_is_room_for_them),
        cmocka_unit_test(names_of_adapters_get_numbers),
        cmocka_unit_test(a_list_is_replaced_and_the_counts_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

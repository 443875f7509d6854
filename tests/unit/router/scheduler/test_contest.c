/* Accounts that compete: bounds of a step, and traffic of two accounts on a machine with a given
 * pace. */
#include "router/scheduler/contest.h"
#include "tests/unit/router/scheduler/policy_rig.h"

struct machine {
    double a, b, c; /* seconds: of a step, of a row, of a prompt token */
};

static struct pace pace_of_machine(struct machine m)
{
    struct pace p = {.a = m.a, .b = m.b, .c = m.c, .n_decode = 100, .n_prompt = 100};
    return p;
}

/* Steps with one row and with many were seen. */
static void see(struct contest *c, struct machine m)
{
    contest_step(c, 1, 0, m.a + m.b);
    contest_step(c, 100, 0, m.a + m.b * 100);
    contest_step(c, 3, 40, 99); /* has prompts: it says nothing about rows */
}

TEST(only_a_contest_has_bounds)
{
    struct contest c = {0}, young = {0};
    const struct machine m = {0.010, 0.001, 0.0001}, cheap = {0.010, 0, 0.0001};
    struct pace p = pace_of_machine(m);
    const struct pace unknown = {0};
    struct load l = {.n_tokens = 4, .prompt_tokens = 4096};
    see(&c, m);
    contest_bound(&c, &p, SEC, &l);
    assert_int_equal(l.rows_most + l.shared_tokens, 0);
    contest_note(&c, 2000, SEC); /* alone it takes 210 ms: a step may take 84, its rows 42 */
    contest_bound(&c, &unknown, SEC, &l);
    assert_int_equal(l.rows_most + l.shared_tokens, 0);
    contest_bound(&c, &p, SEC, &l);
    assert_in_range(l.rows_most, 31, 33);
    assert_in_range(l.shared_tokens, 699, 701); /* 84 ms, of which four rows take 14 */
    contest_note(&c, 10, SEC);
    contest_note(&c, 10, SEC);
    for (int i = 0; i < 40; i++)
        contest_note(&c, 10, SEC); /* the average follows: half of the time stays the rows' own */
    contest_bound(&c, &p, SEC, &l);
    assert_in_range(l.rows_most, 14, 16);
    assert_in_range(l.shared_tokens, 359, 361); /* five times the fixed cost */
    l = (struct load){.n_tokens = 4, .prompt_tokens = 4096};
    contest_bound(&c, &p, SEC + CONTEST_NS, &l); /* over */
    assert_int_equal(l.rows_most + l.shared_tokens, 0);
    for (int i = 0; i < 4; i++)
        contest_step(&young, 100, 0, 0.110);
    contest_note(&young, 2000, SEC);
    contest_bound(&young, &p, SEC, &l); /* what a row costs is unknown: half of them will tell */
    assert_int_equal(l.rows_most, 50);
    assert_int_equal(l.shared_tokens, 4096 / 5); /* a part of what prompts get otherwise */
    young = (struct contest){0};
    see(&young, cheap);
    contest_note(&young, 2000, SEC);
    contest_bound(&young, &p, SEC, &l);
    assert_true(l.rows_most == UINT32_MAX);
}

TEST(a_full_step_takes_newcomers_only)
{
    struct rig g;
    struct one a[3], b[2], c;
    struct load l = {.n_running = 8, .n_tokens = 8, .prompt_tokens = 400, .shared_tokens = 100};
    rig_init(&g, (struct policy_limits){.prefill_tokens = 4096, .chunking = true}, 10000);
    for (int i = 0; i < 3; i++)
        add_for(&g, &a[i], 40, 50, 1);
    l.rows_most = 9;
    assert_int_equal(join(&g, l, 0), 3); /* its first requests: they come together */
    assert_true(g.out[0].newcomer && g.out[2].newcomer);
    done(&g, &a[2]);
    add_for(&g, &a[2], 40, 50, 1);
    assert_int_equal(join(&g, l, 0), 1);
    assert_false(g.out[0].newcomer);
    done(&g, &a[2]);
    add_for(&g, &a[2], 40, 50, 1);
    l.rows_most = 8;
    assert_int_equal(join(&g, l, 0), 0); /* full */
    add_for(&g, &b[0], 300, 310, 2);     /* its account is larger than that of A, which waits */
    fair_charge(&b[0].w.fair, 5000);
    add_for(&g, &b[1], 60, 70, 2);
    assert_int_equal(join(&g, l, 0), 2);
    assert_ptr_equal(g.out[0].w, &b[0].w);
    assert_int_equal(g.out[0].n_tokens, 300); /* not bounded by what the others may share */
    assert_int_equal(g.out[1].n_tokens, 60);
    l.rows_most = 20;
    add_for(&g, &c, 300, 310, 1);
    assert_int_equal(join(&g, l, 0), 2); /* A's, within 100 tokens */
    assert_int_equal(g.out[0].n_tokens + g.out[1].n_tokens, 100);
    done(&g, &c);
    for (int i = 0; i < 3; i++)
        done(&g, &a[i]);
    rig_fini(&g, b, 2);
}

/* ---------------------------------------------------------------- traffic */

enum { CLIENTS = 128, ANSWER = 40, SHORT = 4, PROMPT = 600 };

struct request {
    struct one one; /* first, and its waiter is the first of that */
    uint32_t computed, generated;
    double sent; /* by the account that asks now and then */
    bool runs;
};

struct world {
    struct rig g;
    struct machine m;
    struct pace pace;
    struct contest contest;
    bool bounded;      /* with the bounds of contest.h */
    double now, ahead; /* ahead: the end of a forward pass that was run ahead; 0: none */
    struct request many[CLIENTS], one;
    double firsts[512]; /* of the one: seconds to the first token, without its first requests */
    uint32_t n_firsts;
    uint64_t served; /* tokens of the many */
};

static void ask(struct world *w, struct request *r, uint64_t tenant)
{
    *r = (struct request){.sent = w->now};
    add_for(&w->g, &r->one, PROMPT, PROMPT + ANSWER, tenant);
}

static struct request *each(struct world *w, uint32_t i)
{
    return i < CLIENTS ? &w->many[i] : &w->one;
}

static void finish(struct world *w, struct request *r)
{
    done(&w->g, &r->one);
    if (r == &w->one)
        r->runs = false;
    else
        ask(w, r, 1);
}

/* A token of it, or the end of its answer. */
static void advance(struct world *w, struct request *r)
{
    if (r == &w->one && r->generated == 0 && w->n_firsts < 512 && w->now > 20)
        w->firsts[w->n_firsts++] = w->now - r->sent;
    w->served += r != &w->one;
    fair_charge(&r->one.w.fair, FAIR_NEW_TOKEN);
    if (++r->generated == (r == &w->one ? SHORT : ANSWER))
        finish(w, r);
}

/* Plans a step as the scheduler does; marks joiners. Returns the number of prompt tokens. */
static uint32_t plan(struct world *w, struct load *l, struct started *st, uint32_t *n_now)
{
    uint32_t prompt = 0;
    const int64_t now = (int64_t)(w->now * SEC);
    *l = (struct load){.started = st};
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        const struct request *r = each(w, i);
        l->n_running += r->runs;
        if (r->runs && r->computed < PROMPT)
            st[l->n_started++] = (struct started){.left = PROMPT - r->computed, .at = r->computed};
    }
    l->n_tokens = l->n_running - l->n_started;
    l->prompt_tokens = pace_budget(&w->pace, l->n_tokens, 0.2, 4096);
    if (w->bounded)
        contest_bound(&w->contest, &w->pace, now, l);
    const uint32_t n = policy_join(&w->g.p, l, now, w->g.out, MAX);
    for (uint32_t i = 0, k = 0; i <= CLIENTS; i++) {
        const struct request *r = each(w, i);
        n_now[i] = r->runs && r->computed < PROMPT ? st[k++].n_now : 0;
        prompt += n_now[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = (struct request *)w->g.out[i].w;
        if (w->g.out[i].newcomer)
            contest_note(&w->contest, w->g.out[i].w->left, now);
        n_now[r == &w->one ? CLIENTS : (uint32_t)(r - w->many)] = w->g.out[i].n_tokens;
        prompt += w->g.out[i].n_tokens;
        r->runs = true;
    }
    return prompt;
}

/* The shards compute the step. Without prompts they run the next one ahead; a prompt that comes
 * then waits for that, and only its own tokens are computed after it. */
static void step(struct world *w)
{
    static struct started st[CLIENTS + 1];
    static uint32_t n_now[CLIENTS + 1];
    bool decodes[CLIENTS + 1];
    struct load l;
    for (uint32_t i = 0; i <= CLIENTS; i++)
        decodes[i] = each(w, i)->runs && each(w, i)->computed == PROMPT;
    const uint32_t prompt = plan(w, &l, st, n_now);
    const double rows = w->m.a + w->m.b * l.n_tokens, begun = w->now;
    const bool ahead = w->ahead > w->now;
    const double took = prompt == 0 ? rows : w->m.c * prompt + (ahead ? w->m.a : rows);
    w->now = (ahead ? w->ahead : w->now) + (prompt == 0 && ahead ? 0 : took);
    w->ahead = prompt == 0 ? w->now + rows : 0;
    const double seconds = ahead && prompt ? took + rows - w->m.a : took;
    pace_note(&w->pace, l.n_tokens, prompt, seconds);
    contest_step(&w->contest, l.n_tokens, prompt, seconds);
    assert_true(w->now > begun);
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        struct request *r = each(w, i);
        r->computed += n_now[i];
        assert_true(r->computed <= PROMPT);
        if (decodes[i] || (n_now[i] && r->computed == PROMPT))
            advance(w, r);
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 128 clients of one account; another account sends a request now and then. Returns the 95th
 * percentile of its time to the first token, as a multiple of that alone. */
static double flood(struct world *w, struct machine m, bool bounded)
{
    *w = (struct world){.m = m, .bounded = bounded};
    srand(3);
    rig_init(&w->g,
             (struct policy_limits){.prefill_tokens = 4096, .batch_size = 128, .chunking = true},
             40000);
    for (uint32_t i = 0; i < CLIENTS; i++)
        ask(w, &w->many[i], 1);
    double next = 1;
    bool out = false;
    while (w->now < 80) {
        if (!out && w->now >= next) {
            ask(w, &w->one, 2);
            w->one.sent = next; /* while the last step ran */
            out = true;
        }
        step(w);
        if (out && !w->one.runs && w->one.generated == SHORT) {
            out = false;
            next = w->now + 0.3 * rand() / RAND_MAX;
        }
    }
    for (uint32_t i = 0; i <= CLIENTS; i++) {
        struct request *r = each(w, i);
        if (!r->one.w.fair.key)
            continue;
        if (!r->runs)
            policy_remove(&w->g.p, &r->one.w);
        done(&w->g, &r->one);
    }
    rig_fini(&w->g, NULL, 0);
    assert_true(w->n_firsts > 20);
    qsort(w->firsts, w->n_firsts, sizeof(*w->firsts), ascending);
    return w->firsts[w->n_firsts * 95 / 100] / (m.a + m.c * PROMPT + m.b);
}

TEST(a_flood_at_most_doubles_the_time_to_anothers_first_token)
{
    static struct world w;
    static const struct machine like[] = {
        {0.0005, 0.0008, 0.000035}, /* a small model: rows cost most */
        {0.0020, 0.0004, 0.000200},
        {0.0100, 0.0001, 0.000100}, /* a large one on a GPU: a step costs most */
    };
    for (size_t i = 0; i < sizeof(like) / sizeof(*like); i++) {
        const double without = flood(&w, like[i], false);
        const uint64_t all = w.served;
        const double with = flood(&w, like[i], true);
        printf("# %.1f times without bounds, %.2f with; %.2f of the tokens\n", without, with,
               (double)w.served / (double)all);
        assert_true(with <= 2);
        assert_true((double)w.served >= (double)all * 0.7);
    }
}

int main(void) { return tests_run(NULL, NULL); }

/* Random traffic: every request is served, and none waits longer than the rules allow. */
#include "tests/unit/router/scheduler/policy_rig.h"

/* Random keys, priorities, lengths, images, memory, cancels and step times, with chunks that are
 * computed as planned. No request is lost, no block leaks, no step is too large, no image is
 * divided, and no waiting request is overtaken by more tokens than the rules allow. */
struct life {
    struct one one;
    struct kv_medium images[3];
    uint32_t tok[600], computed, new_left, n;
    uint64_t in_step;
    enum { OUTSIDE, WAITS, RUNS, OVER } state;
};

enum { MOST_OF_AN_IMAGE = 16 };

static struct kv_media draw_images(struct life *v)
{
    struct kv_media m = {.v = v->images, .whole = true};
    for (uint32_t at = (uint32_t)rand() % 40; m.n < 3; m.n++) {
        const struct kv_medium p = {at, 1 + (uint32_t)rand() % MOST_OF_AN_IMAGE,
                                    (uint64_t)rand() % 3};
        if (p.first + p.n > v->n || rand() % 3 == 0)
            break;
        v->images[m.n] = p;
        at = p.first + p.n + (uint32_t)rand() % 40 * (rand() % 2);
    }
    return m;
}

static bool divides_an_image(const struct life *v)
{
    for (uint32_t i = 0; i < v->one.w.key.media.n; i++)
        if (v->computed > v->images[i].first && v->computed < v->images[i].first + v->images[i].n)
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
    v->one.w.key.media = draw_images(v);
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

TEST(any_traffic_is_served_within_the_rules)
{
    enum { N = 2500, AT_ONCE = 40 };
    struct life *v = calloc(N, sizeof(*v));
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
                assert_false(st[i].n_now && divides_an_image(of[i]));
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
                assert_false(divides_an_image(w));
                kv_commit(g.kv, &w->one.t, w->tok, w->computed);
                longest = step - w->in_step > longest ? step - w->in_step : longest;
            }
            assert_true(used <= most || used <= MOST_OF_AN_IMAGE);
            assert_true(!batch || l.n_running + n <= batch || n == 0);
            assert_true(step < 200000); /* a request waits forever */
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

/* Random lengths: every request joins, and none waits longer than the rule allows. */
TEST(no_request_starves)
{
    enum { N = 3000 };
    static struct one o[N];
    static uint32_t left[N];
    struct rig g;
    uint32_t r = 7, next = 0, over = 0, running[MAX], n_running = 0;
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

int main(void) { return tests_run(NULL, NULL); }

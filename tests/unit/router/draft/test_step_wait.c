/* The wait of a step for drafts: each wait ends once, a missed deadline turns waits off for some
 * calls, and a timer that outlives its wait is reported. */
#include "router/draft/step_wait.h"
#include "tests/unit/test.h"

#define MS 1000000

struct seen {
    struct rpc_loop *loop;
    struct step_wait wait;
    uint32_t ready, idle;
};

static void on_ready(void *arg) { ((struct seen *)arg)->ready++; }

static void on_idle(void *arg)
{
    struct seen *s = arg;
    s->idle++;
    rpc_loop_stop(s->loop);
}

/* A draft model 16 times as fast as a step, and right in 9 of 10 cases. */
static struct draft_wait_case fast(void)
{
    return (struct draft_wait_case){.acceptance = 0.9, .running = 1, .lacking = 1, .most = 16};
}

static int up(void **state)
{
    static struct seen s;
    grpc_init();
    s = (struct seen){.loop = rpc_loop_new()};
    assert_non_null(s.loop);
    step_wait_init(&s.wait, &(struct step_wait_options){s.loop, NULL, on_idle, &s});
    step_wait_on_ready(&s.wait, on_ready, &s);
    draft_duration_note(&s.wait.step, 64 * MS);
    step_wait_answered(&s.wait, 4 * MS);
    *state = &s;
    return 0;
}

static int down(void **state)
{
    struct seen *s = *state;
    rpc_loop_free(s->loop);
    grpc_shutdown();
    return 0;
}

TEST_WITH(a_met_wait_ends_before_its_timer, up, down)
{
    struct seen *s = *state;
    struct draft_wait_case c = fast();
    assert_true(step_wait_allowed(&s->wait));
    assert_true(step_wait_begin(&s->wait, &c));
    assert_true(s->wait.count > 0 && s->wait.pending && c.step_ns > c.draft_ns);
    step_wait_met(&s->wait);
    assert_int_equal(s->ready, 1);
    assert_true(s->wait.count == 0 && s->wait.pending);
    assert_false(step_wait_allowed(&s->wait)); /* its timer is pending */
    rpc_loop_run(s->loop);
    assert_true(s->idle == 1 && s->ready == 1 && step_wait_allowed(&s->wait));
}

TEST_WITH(a_lost_wait_is_no_miss, up, down)
{
    struct seen *s = *state;
    struct draft_wait_case c = fast();
    assert_true(step_wait_begin(&s->wait, &c));
    step_wait_lost(&s->wait);
    rpc_loop_run(s->loop);
    assert_true(s->idle == 1 && s->ready == 1 && s->wait.trust.misses == 0);
}

/* On the loop: the first wait was missed. The draft model answers until waits are allowed again,
 * and the second wait is met. */
static void on_missed(void *arg)
{
    struct seen *s = arg;
    struct draft_wait_case c = fast();
    uint32_t calls = 0;
    assert_true(s->wait.trust.misses == 1 && !s->wait.pending && s->wait.count == 0);
    for (; !step_wait_allowed(&s->wait); calls++)
        step_wait_answered(&s->wait, 4 * MS);
    assert_true(calls > 0);
    step_wait_on_ready(&s->wait, on_ready, s);
    assert_true(step_wait_begin(&s->wait, &c));
    step_wait_met(&s->wait);
    assert_int_equal(s->wait.trust.misses, 0);
}

TEST_WITH(a_missed_deadline_turns_waits_off_until_calls_return, up, down)
{
    struct seen *s = *state;
    struct draft_wait_case c = fast();
    step_wait_on_ready(&s->wait, on_missed, s);
    assert_true(step_wait_begin(&s->wait, &c));
    rpc_loop_run(s->loop); /* until the second timer has passed */
    assert_true(s->ready == 1 && s->idle == 1);
}

static struct seen *posted_to;
static void on_posted(struct rpc_op *op, bool ok)
{
    (void)op;
    (void)ok;
    rpc_loop_stop(posted_to->loop);
}

TEST_WITH(new_shards_are_unknown, up, down)
{
    struct seen *s = *state;
    struct draft_wait_case c = fast();
    posted_to = s;
    step_wait_new_shards(&s->wait);
    assert_false(step_wait_begin(&s->wait, &c)); /* the duration of a call is not known */
    assert_true(s->wait.step.ns > 0);
    step_wait_answered(&s->wait, 0);
    assert_true(s->wait.call.ns == 0);
    struct rpc_op op = {on_posted, "end"};
    rpc_post(s->loop, &op);
    rpc_loop_run(s->loop);
}

int main(void) { return tests_run(NULL, NULL); }

/* Trace contexts as the specification reads them, and a queue that never blocks. What arrives at a
 * collector is checked with another reader of the protocol (integration/network/test_traces.py). */
#include "common/clock.h"
#include "common/rpc/trace.h"
#include "tests/unit/test.h"
#include <stdatomic.h>
#include <string.h>

#define ID   "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN "00f067aa0ba902b7"

TEST(contexts_are_read_and_written)
{
    struct trace_context c;
    char text[TRACE_PARENT_LEN + 1];
    assert_true(trace_parse("00-" ID "-" SPAN "-01", &c) && c.sampled);
    trace_print(&c, text);
    assert_string_equal(text, "00-" ID "-" SPAN "-01");
    assert_true(trace_parse("00-" ID "-" SPAN "-fe", &c) && !c.sampled);
    trace_print(&c, text);
    assert_string_equal(text, "00-" ID "-" SPAN "-00");
    assert_true(trace_parse("cc-" ID "-" SPAN "-01-what-the-future-brings", &c));
}

TEST(what_is_no_context_is_none)
{
    static const char *const bad[] = {
        "",
        "00",
        "00-" ID "-" SPAN,
        "00-" ID "-" SPAN "-1",
        "00-" ID "-" SPAN "-01-more",
        "cc-" ID "-" SPAN "-01.more",
        "ff-" ID "-" SPAN "-01",
        "0x-" ID "-" SPAN "-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
        "00-00000000000000000000000000000000-" SPAN "-01",
        "00-" ID "-0000000000000000-01",
        "00_" ID "-" SPAN "-01",
        "00-" ID "-" SPAN "-0g",
    };
    struct trace_context c, none = {.sampled = false};
    assert_false(trace_parse(NULL, &c));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        memset(&c, 1, sizeof(c));
        if (trace_parse(bad[i], &c) || memcmp(c.trace_id, none.trace_id, 16) != 0 || c.sampled)
            fail_msg("%s was read", bad[i]);
    }
}

TEST(what_may_be_passed_on)
{
    static const char *const good[] = {
        "congo=t61rcWkgMzE",
        "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE",
        " a=1 ,\t, tenant@system=x y ,",
        "*_-/0=~!",
        "a=1, , b=2",
    };
    static const char *const bad[] = {
        "",      " ",      ",",          "a",     "a=",    "=1",    "A=1",
        "a=1=2", "a=\x7f", "a=\xc3\xa4", "a b=1", "a=1,b", "a=\n1",
    };
    char text[TRACE_STATE_MAX + 2];
    assert_false(trace_state_valid(NULL));
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!trace_state_valid(good[i]))
            fail_msg("%s is fine", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (trace_state_valid(bad[i]))
            fail_msg("%s is not", bad[i]);
    memset(text, 'v', sizeof(text));
    memcpy(text, "k=", 2);
    text[TRACE_STATE_MAX] = 0;
    assert_true(trace_state_valid(text));
    text[TRACE_STATE_MAX] = 'v', text[TRACE_STATE_MAX + 1] = 0;
    assert_false(trace_state_valid(text));
    for (int n = 32; n <= 33; n++) {
        *text = 0;
        for (int i = 0; i < n; i++)
            strcat(text, "a=1,");
        assert_int_equal(trace_state_valid(text), n == 32);
    }
}

TEST(children_stay_in_the_trace)
{
    struct trace_context p, a, b;
    assert_true(trace_parse("00-" ID "-" SPAN "-00", &p));
    a = trace_child(&p);
    assert_memory_equal(a.trace_id, p.trace_id, 16);
    assert_memory_not_equal(a.span_id, p.span_id, 8);
    assert_false(a.sampled);
    a = trace_child(NULL);
    b = trace_child(&(struct trace_context){.sampled = false});
    assert_true(a.sampled && b.sampled);
    assert_memory_not_equal(a.trace_id, b.trace_id, 16);
}

static _Atomic uint64_t fates[3];
static void count(void *arg, enum trace_fate f, uint64_t n)
{
    (void)arg;
    atomic_fetch_add(&fates[f], n);
}

/* No server listens at the endpoint. */
TEST(a_full_queue_drops_and_does_not_block)
{
    struct err e = ERR_INIT;
    struct tracer_options o = {.endpoint = "unix:/tmp/no-such-collector",
                               .service_name = "t",
                               .queue = 100,
                               .count = count};
    struct tracer *t = tracer_new(&o, &e);
    assert_non_null(t);
    struct trace_span s = {.self = trace_child(NULL), .name = "x", .kind = TRACE_SERVER};
    s.attr[s.n_attrs++] = TRACE_S("bad", "\xff");
    int64_t start = clock_ns();
    for (int i = 0; i < 1000; i++)
        tracer_add(t, &s);
    int64_t took = clock_ns() - start;
    assert_true(took < 1000000000); /* the exporter waits for seconds */
    assert_true(atomic_load(&fates[TRACE_FULL]) >= 900 - 100);
    s.self.sampled = false;
    tracer_add(t, &s);
    tracer_add(NULL, &s);
    tracer_free(t);
    assert_int_equal(fates[TRACE_SENT], 0);
    assert_int_equal(fates[TRACE_FULL] + fates[TRACE_LOST], 1000);
}

TEST(endpoints)
{
    struct err e = ERR_INIT;
    struct tracer_options o = {.endpoint = "https://collector:4317", .service_name = "t"};
    assert_null(tracer_new(&o, &e));
    assert_non_null(strstr(e.msg, "without TLS"));
    o.endpoint = "http://";
    assert_null(tracer_new(&o, &e));
    assert_non_null(strstr(e.msg, "no host"));
    static const char *const good[] = {"http://127.0.0.1:4317/", "collector", "[::1]", "[::1]:1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        o.endpoint = good[i];
        struct tracer *t = tracer_new(&o, &e);
        assert_non_null(t);
        tracer_free(t);
    }
}

int main(void) { return tests_run(NULL, NULL); }

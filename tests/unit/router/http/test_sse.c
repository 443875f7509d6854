/* The stream's state machine: bounded, in order, ended once. */
#include "router/http/sse.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(what_goes_in_comes_out)
{
    struct sse s;
    char out[8];
    sse_init(&s, 100, 0);
    assert_int_equal(sse_push(&s, "hello", 5, 0), SSE_WAKE);
    assert_int_equal(sse_push(&s, " you", 4, 0), SSE_WAKE);
    assert_int_equal(sse_read(&s, out, 7), 7);
    assert_memory_equal(out, "hello y", 7);
    assert_int_equal(sse_end(&s), SSE_WAKE);
    assert_int_equal(s.state, SSE_DRAINING);
    assert_int_equal(sse_read(&s, out, 8), 2);
    assert_int_equal(s.state, SSE_DONE);
    assert_int_equal(sse_push(&s, "late", 4, 0), 0);
    assert_int_equal(sse_gone(&s), 0);
    sse_free(&s);
}

TEST(a_full_stream_dies_and_cancels)
{
    struct sse s;
    char event[64] = {0};
    int pushed = 0;
    sse_init(&s, 1000, 0);
    while (sse_push(&s, event, sizeof(event), 0) == SSE_WAKE)
        pushed++;
    assert_int_equal(pushed, 1000 / 64 + 1); /* the limit and one event */
    assert_int_equal(s.state, SSE_DEAD);
    assert_null(s.p);
    sse_init(&s, 10, 0); /* one event may be larger than the limit */
    assert_int_equal(sse_push(&s, event, sizeof(event), 0), SSE_WAKE);
    assert_int_equal(sse_push(&s, event, sizeof(event), 0), SSE_CANCEL | SSE_CLOSE);
    sse_free(&s);
}

TEST(leaving_cancels_only_what_runs)
{
    struct sse s;
    sse_init(&s, 100, 0);
    assert_int_equal(sse_gone(&s), SSE_CANCEL | SSE_CLOSE);
    assert_int_equal(sse_gone(&s), 0);
    sse_init(&s, 100, 0);
    sse_push(&s, "x", 1, 0);
    sse_end(&s);
    assert_int_equal(sse_gone(&s), SSE_CLOSE);
}

TEST(silence_is_filled)
{
    struct sse s;
    char out[16];
    sse_init(&s, 100, 1000);
    assert_int_equal(sse_tick(&s, 15999), 0);
    assert_int_equal(sse_tick(&s, 16000), SSE_WAKE);
    assert_int_equal(sse_tick(&s, 99000), 0); /* it was not even read */
    assert_int_equal(sse_read(&s, out, sizeof(out)), 3);
    assert_memory_equal(out, ":\n\n", 3);
    assert_int_equal(sse_tick(&s, 16001), 0);
    sse_end(&s);
    assert_int_equal(sse_tick(&s, 99000), 0);
    sse_free(&s);
}

/* 20,000 random steps against a model: the bytes read are the bytes pushed. */
TEST(random_walk)
{
    struct sse s;
    uint64_t in = 0, out = 0;
    unsigned char buf[300];
    srand(test_seed(7));
    sse_init(&s, 5000, 0);
    for (int i = 0; i < 20000; i++) {
        size_t n = (size_t)rand() % sizeof(buf);
        if (rand() % 2 && s.len - s.off <= 5000) {
            for (size_t k = 0; k < n; k++)
                buf[k] = (unsigned char)(in + k);
            assert_int_equal(sse_push(&s, (char *)buf, n, i), n ? SSE_WAKE : 0);
            in += n;
        } else {
            size_t got = sse_read(&s, (char *)buf, n);
            for (size_t k = 0; k < got; k++)
                assert_int_equal(buf[k], (unsigned char)(out + k));
            out += got;
        }
        assert_int_equal(s.len - s.off, in - out);
        assert_true(s.cap <= 16384);
    }
    sse_free(&s);
}

int main(void) { return tests_run(NULL, NULL); }

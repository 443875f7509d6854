// TGI's stopping cases, and what its end-of-text regular expression misses.
#include "common/clock.h"
#include "model-server/sample/stop.h"
#include "tests/unit/test.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static struct stop make(const char *const *texts, size_t n, uint32_t max, bool ignore_eos)
{
    static const uint32_t eos[] = {2, 7};
    struct stop s;
    struct err e = ERR_INIT;
    struct stop_rules r = {max, ignore_eos, eos, 2};
    assert_int_equal(stop_init(&s, &r, (char *const *)texts, n, &e), 0);
    return s;
}

static enum stop_reason push(struct stop *s, uint32_t id, const char *text, size_t *len)
{
    *len = strlen(text);
    return stop_push(s, id, text, len);
}

TEST(order)
{
    size_t len;
    struct stop s = make((const char *[]){"/test;"}, 1, 5, false);
    assert_int_equal(push(&s, 65, "/test", &len), STOP_NOT);
    assert_int_equal(push(&s, 65, ";", &len), STOP_SEQUENCE);
    stop_free(&s);
    s = make(NULL, 0, 5, false);
    assert_int_equal(push(&s, 1, "", &len), STOP_NOT);
    assert_int_equal(push(&s, 7, "", &len), STOP_EOS);
    stop_free(&s);
    s = make(NULL, 0, 5, true);
    for (int i = 0; i < 4; i++)
        assert_int_equal(push(&s, 2, "", &len), STOP_NOT);
    assert_int_equal(push(&s, 2, "", &len), STOP_LENGTH);
    stop_free(&s);
    s = make((const char *[]){"x"}, 1, 1, false);
    assert_int_equal(push(&s, 2, "x", &len), STOP_LENGTH); /* the budget comes first */
    stop_free(&s);
}

TEST(inside_and_across)
{
    size_t len;
    struct stop s = make((const char *[]){"", "END", "aab", "b!"}, 4, 100, false);
    assert_int_equal(s.n, 3);
    assert_int_equal(push(&s, 9, "the E", &len), STOP_NOT);
    assert_int_equal(push(&s, 9, "", &len), STOP_NOT);
    assert_int_equal(push(&s, 9, "N", &len), STOP_NOT);
    assert_int_equal(push(&s, 9, "D of it", &len), STOP_SEQUENCE);
    assert_int_equal(len, 1);
    stop_free(&s);
    s = make((const char *[]){"aab", "b!"}, 2, 100, false);
    assert_int_equal(push(&s, 9, "aaaab!", &len),
                     STOP_SEQUENCE); /* needs the border, and the earliest */
    assert_int_equal(len, 5);
    stop_free(&s);
    s = make((const char *[]){".*"}, 1, 100, false);
    assert_int_equal(push(&s, 9, "no pattern.", &len), STOP_NOT);
    assert_int_equal(push(&s, 9, "*", &len), STOP_SEQUENCE);
    stop_free(&s);
}

/* Against strstr() over the whole text, for every way to cut it into tokens of 1 to 3 bytes. */
TEST(agrees_with_search)
{
    const char *text = "abaababaabaababaababaabaababaabaab",
               *stops[] = {"abaabab", "babaab", "aabaaba"};
    for (int step = 1; step <= 3; step++)
        for (int k = 0; k < 3; k++) {
            struct stop s = make(&stops[k], 1, 1000, false);
            size_t want = (size_t)(strstr(text, stops[k]) - text) + strlen(stops[k]), at = 0, len;
            for (enum stop_reason r = STOP_NOT; r == STOP_NOT; at += len) {
                len = strlen(text + at) < (size_t)step ? strlen(text + at) : (size_t)step;
                assert_true(len > 0);
                r = stop_push(&s, 9, text + at, &len);
            }
            assert_int_equal(at, want);
            stop_free(&s);
        }
}

TEST(linear)
{
    enum { N = 1 << 20 };
    char *text = malloc(N + 1), *stop = malloc(N / 2 + 1);
    memset(text, 'a', N), memset(stop, 'a', N / 2);
    text[N] = 0, stop[N / 2] = 0, stop[N / 2 - 1] = 'b';
    struct stop s = make((const char *[]){stop}, 1, 1000, false);
    size_t len;
    int64_t t0 = clock_ms();
    assert_int_equal(push(&s, 9, text, &len), STOP_NOT);
    assert_true(clock_ms() - t0 < 2000);
    stop_free(&s);
    free(text), free(stop);
}

/* Stop tokens of the request end it and leave their text out; before the least length nothing does.
 */
TEST(least_length_and_stop_tokens)
{
    static const uint32_t eos[] = {2, 7}, own[] = {4};
    float row[6] = {0};
    size_t len;
    struct err e = ERR_INIT;
    struct stop s;
    struct stop_rules r = {100, false, eos, 2, .min_new_tokens = 2, .tokens = own, .n_tokens = 1};
    char *const texts[] = {"x"};
    assert_int_equal(stop_init(&s, &r, texts, 1, &e), 0);
    stop_forbid(&s, s.generated, row, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(isinf(row[i]) != 0, i == 2 || i == 4);
    assert_int_equal(push(&s, 1, "x", &len), STOP_NOT);
    assert_int_equal(push(&s, 1, "x", &len), STOP_SEQUENCE);
    assert_int_equal(push(&s, 4, "end", &len), STOP_TOKEN);
    assert_int_equal(len, 0);
    memset(row, 0, sizeof(row));
    stop_forbid(&s, s.generated, row, 6);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(row[i] == 0);
    stop_free(&s);
    r.ignore_eos = true; /* it would not end the answer, so that nothing forbids it */
    assert_int_equal(stop_init(&s, &r, texts, 1, &e), 0);
    stop_forbid(&s, s.generated, row, 6);
    assert_true(row[2] == 0 && isinf(row[4]));
    stop_free(&s);
}

int main(void) { return tests_run(NULL, NULL); }

/* err, arena, buf, utf8, json: the vocabulary of everything else. */
#include "common/arena.h"
#include "common/buf.h"
#include "common/err.h"
#include "common/json/json.h"
#include "common/utf8.h"
#include "tests/unit/test.h"
#include <errno.h>
#include <math.h>
#include <string.h>

TEST(errors_read_outside_in)
{
    struct err e = ERR_INIT;
    errno = ENOENT;
    assert_int_equal(err_sys(&e, "open %s", "m/model.safetensors"), -1);
    err_wrap(&e, "weights of %s", "m");
    assert_string_equal(e.msg, "weights of m: open m/model.safetensors: No such file or directory");
    assert_int_equal(e.sys, ENOENT);
    assert_int_equal(err_status(ERR_VALIDATION), 422);
    assert_string_equal(err_wire(ERR_OVERLOADED), "overloaded");
}

TEST(long_errors_are_cut_not_overrun)
{
    struct err e = ERR_INIT;
    char big[2000];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    err_set(&e, ERR_SYSTEM, "%s", big);
    for (int i = 0; i < 5; i++)
        err_wrap(&e, "%s", i & 1 ? "context" : big);
    assert_true(strlen(e.msg) < sizeof(e.msg));
}

/* What a message quotes comes from a client; a log and a text/plain answer do not. */
TEST(errors_are_one_line_of_whole_characters)
{
    struct err e = ERR_INIT;
    err_set(&e, ERR_SYSTEM, "`%.4s`", "a\n\xc3\xa9\xc3\xa9");
    assert_string_equal(e.msg, "`a \xc3\xa9`");
    err_set(&e, ERR_SYSTEM, "`%.3s`", "\x7f\xe2\x82\xac");
    assert_string_equal(e.msg, "` ??`");
    err_wrap(&e, "at\r\n%.1s", "\xf0\x9f\x98\x80");
    assert_string_equal(e.msg, "at  ?: ` ??`");
    char big[2001]; /* cut in the middle of a character */
    for (size_t i = 0; i + 1 < sizeof(big); i += 2)
        memcpy(big + i, "\xc3\xa9", 3);
    err_set(&e, ERR_SYSTEM, "%s", big);
    assert_true(utf8_valid(e.msg, strlen(e.msg)));
}

static void count_reset(void *arg) { ++*(int *)arg; }

TEST(an_arena_is_bounded_and_runs_its_hooks)
{
    struct arena a;
    int resets = 0;
    arena_init(&a, 100000);
    assert_int_equal(arena_defer(&a, count_reset, &resets), 0);
    size_t got = 0;
    for (char *p; (p = arena_alloc(&a, 333, 8)); got += 333) {
        assert_int_equal((uintptr_t)p % 8, 0);
        for (int i = 0; i < 333; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0x5a, 333);
    }
    assert_in_range(got, 80000, 100000);
    assert_null(arena_alloc(&a, SIZE_MAX - 8, 8));
    arena_reset(&a);
    assert_int_equal(resets, 1);
    assert_non_null(arena_alloc(&a, 333, 8));
    arena_reset(&a);
}

TEST(floats_print_as_the_shortest_that_reads_back)
{
    static const struct {
        float v;
        const char *text;
    } cases[] = {{-0.1f, "-0.1"},
                 {1, "1.0"},
                 {0, "0.0"},
                 {-1.5f, "-1.5"},
                 {16777216.f, "1.67772e+07"},
                 {NAN, "null"},
                 {INFINITY, "null"},
                 {-0.00012345679f, "-0.00012345679"}};
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buf_reset(&b);
        buf_json_f32(&b, cases[i].v);
        if (i != 4)
            assert_string_equal(b.p, cases[i].text);
        if (isfinite(cases[i].v))
            assert_true(strtof(b.p, NULL) == cases[i].v);
    }
    for (uint32_t bits = 1; bits < 0x7f800000u; bits += 99991) { /* a walk over all magnitudes */
        float v;
        memcpy(&v, &bits, 4);
        buf_reset(&b);
        buf_json_f32(&b, v);
        assert_true(strtof(b.p, NULL) == v);
    }
    buf_free(&b);
}

TEST(strings_are_escaped_and_always_valid_json)
{
    struct buf b = BUF_INIT;
    buf_json_str(&b, "a\"b\\c\n\x01\xff\xe2\x82\xac\xf0\x9f\x98", 14);
    assert_string_equal(
        b.p,
        "\"a\\\"b\\\\c\\n\\u0001\xEF\xBF\xBD\xe2\x82\xac\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    buf_free(&b);
}

/* At every distance from a run of ASCII, which is checked eight bytes at a time. */
TEST(utf8_finds_one_bad_byte)
{
    char s[40];
    for (size_t n = 1; n < sizeof(s); n++)
        for (size_t at = 0; at < n; at++) {
            memset(s, 'a', sizeof(s));
            assert_true(utf8_valid(s, n));
            s[at] = (char)0xFF;
            assert_false(utf8_valid(s, n));
            assert_true(utf8_valid(s, at));
        }
}

TEST(utf8_knows_the_borders)
{
    static const struct {
        const char *s;
        size_t n, valid, tail;
    } cases[] = {
        {"a", 1, 1, 0},
        {"\xc3\xa9", 2, 2, 0},
        {"\xc3", 1, 0, 1},
        {"\xe2\x82", 2, 0, 2},
        {"\xf0\x9f\x98", 3, 0, 3},
        {"\xc0\x80", 2, 0, 0},
        {"\xed\xa0\x80", 3, 0, 0},
        {"\xf5\x80\x80\x80", 4, 0, 0},
        {"\xe0\x80", 2, 0, 0},
        {"\xf4\x8f\xbf\xbf", 4, 4, 0},
        {"\x80", 1, 0, 0},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(utf8_valid_len(cases[i].s, cases[i].n), cases[i].valid);
        assert_int_equal(utf8_incomplete_tail(cases[i].s, cases[i].n), cases[i].tail);
    }
    for (uint32_t cp = 1; cp < 0x110000; cp += 7) {
        char out[4];
        size_t n = utf8_encode(cp, out), len;
        if (cp >= 0xD800 && cp < 0xE000) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_int_equal(utf8_decode(out, n, &len), cp);
        assert_int_equal(len, n);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(utf8_incomplete_tail(out, cut), cut);
    }
}

TEST(json_refuses_what_cjson_lets_through)
{
    static const struct {
        const char *s;
        size_t n;
        const char *why;
    } bad[] = {
        {"{} x", 4, "trailing characters at line 1 column 4"},
        {"{\"a\":\n\xff}", 8, "invalid unicode code point at line 2 column 1"},
        {"{\"a\0\":1}", 8, "control character (\\u0000-\\u001F) found at line 1 column 4"},
        {"{\"a\":", 5, "EOF while parsing a value at line 1 column 6"},
        {"", 0, "EOF while parsing a value at line 1 column 1"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = ERR_INIT;
        assert_null(json_parse(bad[i].s, bad[i].n, &e));
        assert_string_equal(e.msg, bad[i].why);
    }
}

TEST(json_readers_treat_null_and_wrong_types_as_absent)
{
    struct err e = ERR_INIT;
    const char *s = "{\"a\":null,\"A\":7,\"f\":1.5,\"s\":\"x\",\"t\":true,\"big\":1e300}";
    cJSON *j = json_parse(s, strlen(s), &e);
    assert_non_null(j);
    assert_null(json_get(j, "a"));
    assert_int_equal(json_int(j, "A", -1), 7);
    assert_int_equal(json_int(j, "f", -1), -1);
    assert_int_equal(json_int(j, "big", -1), -1);
    assert_int_equal(json_int(j, "s", -1), -1);
    assert_string_equal(json_str(j, "s", ""), "x");
    assert_true(json_bool(j, "t", false));
    cJSON_Delete(j);
}

int main(void) { return tests_run(NULL, NULL); }

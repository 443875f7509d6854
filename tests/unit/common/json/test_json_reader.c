/* The reader of JSON: what it takes, what it refuses and where, and its trees beside cJSON's. */
#include "common/json/exact.h"
#include "common/json/reader.h"
#include "tests/unit/test.h"
#include <math.h>
#include <string.h>

/* What RFC 8259 has no rule for. cJSON takes about half of these. */
TEST(what_is_no_json_is_refused)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"01", "invalid number at line 1 column 1"},
        {"[1,\n -01]", "invalid number at line 2 column 2"},
        {"1.", "invalid number"},
        {"-", "invalid number"},
        {"1e", "invalid number"},
        {".5", "expected value at line 1 column 1"},
        {"+1", "expected value"},
        {"[1,]", "expected value at line 1 column 4"},
        {"{\"a\":1,}", "expected value at line 1 column 8"},
        {"{a:1}", "expected value at line 1 column 2"},
        {"{\"a\" 1}", "expected value at line 1 column 6"},
        {"[1 2]", "expected value at line 1 column 4"},
        {"[1}", "expected value at line 1 column 3"},
        {"[", "EOF while parsing a value at line 1 column 2"},
        {"[1", "EOF"},
        {"[1,", "EOF"},
        {"{\"a\"", "EOF"},
        {"tru", "EOF"},
        {"truE", "expected value"},
        {"nul]", "expected value"},
        {"NaN", "expected value"},
        {"\"abc", "EOF while parsing a value at line 1 column 5"},
        {"\"a\tb\"",
         "control character (\\u0000-\\u001F) found while parsing a string at line 1 column 3"},
        {"[1,\v2]", "control character found between values at line 1 column 4"},
        {"\"\\x\"", "expected value"},
        {"\"\\u12g4\"", "expected value"},
        {"\"\\u12", "EOF"},
        {"\"\\ud800\"", "lone surrogate in a string at line 1 column "},
        {"\"\\udc00\\ud800\"", "lone surrogate in a string at line 1 column "},
        {"\"\\ud800\\u0041\"", "lone surrogate in a string at line 1 column "},
        {"{} {}", "trailing characters at line 1 column 4"},
        {"1 x", "trailing characters at line 1 column 3"},
        {"'a'", "expected value"},
        {"/**/1", "expected value"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err e = ERR_INIT;
        cJSON *tree = json_parse(rows[i].text, strlen(rows[i].text), &e);
        if (tree || strncmp(e.msg, rows[i].why, strlen(rows[i].why)) != 0)
            fail_msg("%s: %s", rows[i].text, tree ? "taken" : e.msg);
        struct json_reader j = json_reader(rows[i].text, strlen(rows[i].text));
        bool surrogates = strstr(rows[i].text, "\\ud8") != NULL; /* jr_skip() does not pair them */
        assert_true(surrogates || !jr_skip(&j, NULL, NULL) || !jr_ended(&j));
    }
}

TEST(depth_is_bounded)
{
    char text[2 * JR_MAX_DEPTH + 8];
    for (int extra = 0; extra < 2; extra++) {
        const int n = JR_MAX_DEPTH + extra;
        struct err e = ERR_INIT;
        memset(text, '[', (size_t)n);
        memset(text + n, ']', (size_t)n);
        struct json_reader j = json_reader(text, 2 * (size_t)n);
        assert_int_equal(jr_skip(&j, NULL, NULL), !extra);
        cJSON *tree = json_parse(text, 2 * (size_t)n, &e);
        assert_int_equal(tree != NULL, !extra);
        cJSON_Delete(tree);
    }
}

TEST(numbers_are_exact)
{
    static const struct {
        const char *text;
        bool whole;
        int64_t i;
        double v;
    } rows[] = {
        {"0", true, 0, 0},
        {"-0", true, 0, -0.0},
        {"9223372036854775807", true, INT64_MAX, 0x1p63},
        {"-9223372036854775808", true, INT64_MIN, -0x1p63},
        {"9223372036854775808", false, 0, 0x1p63},
        {"999999999999999999", true, 999999999999999999, 1e18},
        {"1.0", false, 0, 1},
        {"1e2", false, 0, 100},
        {"-2.5E-3", false, 0, -0.0025},
        {"1e400", false, 0, INFINITY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct jr_number x;
        struct json_reader j = json_reader(rows[i].text, strlen(rows[i].text));
        assert_true(jr_number(&j, &x) && jr_ended(&j));
        assert_true(x.whole == rows[i].whole && x.v == rows[i].v);
        assert_true(!x.whole || x.i == rows[i].i);
        assert_true(x.n == strlen(rows[i].text) && x.text == rows[i].text);
    }
}

TEST(strings_are_read_in_three_ways)
{
    static const char text[] = "\"\\u00e9\\ud83d\\ude00\\n\\/x\" \"a\\u0000b\" \"\\ud800.\"";
    struct json_reader j = json_reader(text, strlen(text));
    struct buf b = BUF_INIT;
    struct arena a;
    const char *out;
    size_t n;
    arena_init(&a, 1 << 16);
    assert_true(jr_string(&j, &b));
    assert_string_equal(b.p, "\xc3\xa9\xf0\x9f\x98\x80\n/x");
    struct json_reader nul = j;
    assert_true(jr_string(&j, &b));
    assert_true(b.len == 3 && !memcmp(b.p, "a\0b", 3));
    assert_false(jr_arena_string(&nul, &a, &out, &n)); /* no fault: it was read */
    assert_true(!nul.fault && nul.p == j.p);
    assert_true(jr_arena_string(&nul, &a, &out, &n));
    assert_string_equal(out, "\xef\xbf\xbd.");
    assert_false(jr_string(&j, &b));
    assert_non_null(j.fault);
    assert_int_equal(jr_next(&j), JR_NONE); /* and nothing after it */
    buf_free(&b);
    arena_reset(&a);
}

/* ---------------------------------------------------------------- beside cJSON */

static unsigned rng;
static unsigned roll(unsigned n)
{
    rng = rng * 1664525 + 1013904223;
    return (rng >> 8) % n;
}

static void grow(struct buf *b, int depth)
{
    static const char *const words[] = {"null",         "true",
                                        "false",        "0",
                                        "-17",          "1.5e3",
                                        "\"\"",         "\"é\"",
                                        "\"a\\n\\\"\"", "1e-7",
                                        "[]",           "{}",
                                        "\"\\u00fc\"",  "12345678901234567890",
                                        "-0.25",        "\"\\ud83d\\ude00\""};
    unsigned kind = depth ? roll(4) : 3;
    if (kind >= 2) {
        buf_str(b, words[roll(sizeof(words) / sizeof(*words))]);
        return;
    }
    buf_ch(b, kind ? '{' : '[');
    for (unsigned i = 0, n = roll(5); i < n; i++) {
        buf_str(b, i ? roll(2) ? "," : " ,\n" : "");
        if (kind)
            buf_fmt(b, "\"k%u\"%s", i, roll(2) ? ":" : " : ");
        grow(b, depth - 1);
    }
    buf_ch(b, kind ? '}' : ']');
}

static void same_trees(const char *text, size_t n, bool valid)
{
    struct err e = ERR_INIT;
    const char *end;
    cJSON *ours = json_parse(text, n, &e), *theirs = cJSON_ParseWithLengthOpts(text, n, &end, 0);
    if (valid && (!ours || !theirs))
        fail_msg("%.*s: %s", (int)n, text, ours ? "cJSON refuses it" : e.msg);
    if (ours) { /* cJSON takes all that is JSON */
        char *a = cJSON_PrintUnformatted(ours), *b = theirs ? cJSON_PrintUnformatted(theirs) : NULL;
        if (!theirs || strcmp(a, b) != 0)
            fail_msg("%.*s: %s, not %s", (int)n, text, a, b ? b : "refused");
        cJSON *copy = cJSON_Duplicate(ours, true); /* lists are linked as cJSON's are */
        cJSON_AddItemToArray(copy, cJSON_CreateNull());
        if (cJSON_IsArray(ours))
            assert_int_equal(cJSON_GetArraySize(copy), cJSON_GetArraySize(ours) + 1);
        cJSON_Delete(copy);
        if (cJSON_IsArray(ours))
            assert_true(cJSON_AddItemToArray(ours, cJSON_CreateNull()));
        free(a), free(b);
    }
    cJSON_Delete(ours);
    cJSON_Delete(theirs);
}

TEST(trees_are_those_of_cjson)
{
    static const char bytes[] = "{}[],:\"\\ 0123456789.-+eEutrnfalsx\n";
    rng = test_seed(1);
    for (int round = 0; round < 3000; round++) {
        struct buf b = BUF_INIT;
        grow(&b, 5);
        same_trees(b.p, b.len, true);
        for (int i = 0; i < 8; i++) { /* damaged, mostly no JSON any more */
            b.p[roll((unsigned)b.len)] = bytes[roll(sizeof(bytes) - 1)];
            same_trees(b.p, b.len, false);
        }
        buf_free(&b);
    }
}

int main(void) { return tests_run(NULL, NULL); }

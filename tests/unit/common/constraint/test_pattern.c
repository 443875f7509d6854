/* What looks around in a pattern: anchors, word boundaries, look-ahead; and flags. The texts were
 * checked with Python's re.fullmatch and re.search. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tests/unit/common/constraint/texts.h"
#include <pcre2.h>
#include <pthread.h>
#include <stdlib.h>

#define R CONSTRAINT_REGEX
#define J CONSTRAINT_JSON_SCHEMA

TEST(anchors_stand_anywhere)
{
    static const struct row rows[] = {
        {R, "(^a$)", {"a"}, {"", "aa", "ba"}},
        {R, "(^a|b)c$", {"ac", "bc"}, {"c", "a"}},
        {R, "(?:^|x)a(?:$|y)", {"a", "xa", "ay", "xay"}, {"xx", "ya"}},
        {R, "(^$|a)", {"", "a"}, {"b"}},
        {R, "(a|^b)*c", {"c", "aac", "bc", "baac"}, {"abc", "bbc"}},
        {R, "", {""}, {"a", " "}},
        {J,
         "{\"type\":\"string\",\"pattern\":\"(^a|b$)\"}",
         {"\"a\"", "\"axx\"", "\"xb\"", "\"b\""},
         {"\"xa\"", "\"bx\"", "\"\""}},
        {J, "{\"type\":\"string\",\"pattern\":\"(^(a|b)+$)\"}", {"\"ab\""}, {"\"abc\"", "\"\""}},
        {J, "{\"type\":\"string\",\"pattern\":\"^a|b\"}", {"\"ax\"", "\"xb\""}, {"\"xa\""}},
    };
    check_texts(ROWS(rows));
}

TEST(word_boundaries_look_both_ways)
{
    static const struct row rows[] = {
        {R, "\\bfoo\\b.*", {"foo", "foo bar", "foo!"}, {"foob", "foo_", "foo1 x"}},
        {R, "a\\b!\\Bx?", {"a!"}, {"a", "a!x"}},
        {R,
         "[a-z ]+\\bcat\\b[a-z ]*",
         {"a cat", "the cat sat", "cat cat"},
         {"concat", "a cats", "cat"}},
        {R, "(\\b\\w+\\b ?)+", {"one two", "one"}, {"", " one"}},
        {R, "x\\By", {"xy"}, {"x y"}},
        {R, "\\b", {NULL}, {"", "a"}},
        {J,
         "{\"type\":\"string\",\"pattern\":\"\\\\bcat\\\\b\"}",
         {"\"cat\"", "\"a cat!\"", "\"\\ncat\\n\""},
         {"\"concat\"", "\"cats\"", "\"\""}},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].yes[0])
            check_texts(&rows[i], 1);
    struct err e = ERR_INIT;
    assert_null(constraint_new(R, "\\b", 2, &e)); /* no whole text has it */
}

/* ECMA-262's names: \s has white space and line terminators beyond ASCII, \d and \w have not. */
TEST(sets_and_escapes_of_ecma)
{
    static const struct row rows[] = {
        {R,
         "\\s",
         {" ", "\v", "\xc2\xa0", "\xe1\x9a\x80", "\xe2\x80\x83", "\xe2\x80\xa9", "\xef\xbb\xbf"},
         {"a", "\xc2\x85", "\xe2\x80\x8b"}},
        {R, "\\S", {"a", "\xc2\x85", "\xe2\x80\x8b"}, {" ", "\xc2\xa0", "\xef\xbb\xbf"}},
        {R, "[^\\s]", {"a"}, {"\xe2\x80\xa8", "\t"}},
        {R, "(?u)\\s", {"\xc2\x85", "\xc2\xa0"}, {"\xef\xbb\xbf"}},
        {R, "\\cC[\\cA-\\cc]\\cz", {"\x03\x02\x1a"}, {"C\x02\x1a", "\x03\x04\x1a"}},
        {R, "\\p{Letter}+", {"a\xc3\xa9"}, {"1", ""}},
        {R, "\\P{Letter}", {"1"}, {"a"}},
        {R,
         "\\p{digit}\\p{gc=Nd}\\p{General_Category=Decimal_Number}",
         {"123", "1\xd9\xa0"
                 "3"},
         {"12a"}},
        {R, "[\\p{Lowercase_Letter}\\p{punct}]", {"a", "!"}, {"A", "1"}},
        {R, "\\p{LC}", {"a", "A"}, {"1", "\xd7\x90"}},
        {J, "{\"type\":\"string\",\"pattern\":\"^\\\\S$\"}", {"\"a\""}, {"\"\xc2\xa0\""}},
        {J, "{\"type\":\"string\",\"pattern\":\"^\\\\cC$\"}", {"\"\\u0003\""}, {"\"C\""}},
    };
    check_texts(ROWS(rows));
}

TEST(look_ahead_is_an_intersection)
{
    static const struct row rows[] = {
        {R, "(?=.*\\d)(?=.*[a-z])[a-z0-9]{4,8}", {"abc1", "1abc"}, {"abcd", "1234", "ab1"}},
        {R, "(?!bad)[a-z]+", {"good", "ba"}, {"bad", "badly"}},
        {R, "a(?!b)[a-z]c", {"axc"}, {"abc"}},
        {R, "(?:(?!end).)*end", {"end", "x end", "e en end"}, {"endend", "x"}},
        {R, "(?!.*--)[a-z-]+(?<n>x)", {"a-bx"}, {"a--bx"}},
        {R, "(a(?=b)|b)+", {"b", "ab", "bab"}, {"a", "aab", "ba"}},
        {J, "{\"type\":\"string\",\"pattern\":\"^(?!x)[a-z]+$\"}", {"\"ab\""}, {"\"xa\"", "\"\""}},
        {J, "{\"type\":\"string\",\"pattern\":\"^(?=.{3})a\"}", {"\"abc\""}, {"\"ab\"", "\"bbb\""}},
    };
    check_texts(ROWS(rows));
}

TEST(flags_change_what_characters_mean)
{
    static const struct row rows[] = {
        {R, "(?i)hello [A-C]", {"hello a", "HeLLo B"}, {"hello d"}},
        {R, "(?i:a)b", {"ab", "Ab"}, {"aB"}},
        {R, "((?i)a)b", {"Ab"}, {"aB"}},
        {R, "(?i)\xc3\xa4(?-i)x", {"\xc3\x84x", "\xc3\xa4x"}, {"\xc3\x84X"}},
        {R, "(?i)[^a]", {"b"}, {"a", "A"}},
        {R, "(?s).", {"\n", "a"}, {""}},
        {R, ".", {"a"}, {"\n"}},
        {R,
         "(?u)\\w+",
         {"\xc3\xa4"
          "b1",
          "\xe0\xa4\xb9\xe0\xa4\xbf"},
         {"\xe2\x82\xac", "-"}},
        {R, "\\w+", {"ab1"}, {"\xc3\xa4"}},
        {R, "(?u)\\d\\s", {"5 ", "\xd9\xa3\xe3\x80\x80"}, {"x "}},
        {R, "(?u)(?a)\\d", {"5"}, {"\xd9\xa3"}},
        {R, "(?u)\\W", {"-"}, {"\xc3\xa4", "a"}},
    };
    check_texts(ROWS(rows));
}

TEST(what_is_not_regular_is_refused)
{
    static const struct refused rows[] = {
        {R, "(?<=a)b", "look-behind"},
        {R, "(?<!a)b", "look-behind"},
        {R, "(a)\\1", "back reference"},
        {R, "(?x)a", "unknown kind of group"},
        {R, "(\\b)*a", "endless repetition"},
        {R, "(a\\b){65}", "more than 64"},
        {R, "(?=a", "without end"},
        {R, "a(?!", "without end"},
        {R, "a^b", "no text"},
        {R, "a$b", "no text"},
    };
    check_refused(ROWS(rows));
}

/* Counts within counts: PCRE2 has the same opinion of texts about as long as they allow. */
TEST(nested_counts_mean_what_they_say)
{
    static const char *const patterns[] = {
        "(a{0,5}b{0,4}){0,14}",       "(a{1,6}){1,14}",          "((a?){4}b?){17}",
        "(a{2,5}b{0,1}){3,15}",       "((a{0,4}b){0,5}a?){2,9}", "(a{0,12}(b|a{3}){0,9}){1,4}c",
        "(a{0,5}b{0,5}c{0,5}){2,13}", "(a{5,9}){2,11}",          "((ab{0,9}){0,5}b{3,6}){0,9}"};
    enum { TEXTS = 1000, LONGEST = 110 };
    uint32_t taken = 0, asked = 0;
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(limits, 20000);
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        int code;
        PCRE2_SIZE at;
        struct err e = ERR_INIT;
        pcre2_code *re = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED,
                                       PCRE2_ANCHORED | PCRE2_ENDANCHORED, &code, &at, NULL);
        pcre2_match_data *data = pcre2_match_data_create(1, NULL);
        struct constraint *c = constraint_new(R, patterns[i], strlen(patterns[i]), &e);
        assert_non_null(c);
        pcre2_jit_compile(re, PCRE2_JIT_COMPLETE);
        for (int k = 0; k < TEXTS; k++) {
            char text[LONGEST + 1] = "";
            const int n = rand() % LONGEST, longest = 1 + rand() % 60;
            char letter = 'a';
            for (int m = 0, run = 0; m < n; m++, run--) {
                if (!run) { /* mostly runs of a letter */
                    run = 1 + rand() % longest;
                    letter = "aaabbc"[rand() % 6];
                }
                text[m] = letter;
            }
            const int rc = pcre2_match(re, (PCRE2_SPTR)text, (PCRE2_SIZE)n, 0, 0, data, limits);
            const bool want = rc != PCRE2_ERROR_NOMATCH;
            if (rc < 0 && want) /* too much work */
                continue;
            asked++;
            if (takes(c, text) != want)
                fail_msg("%s %s %s", patterns[i], want ? "refuses" : "takes", text);
            taken += want;
        }
        constraint_unref(c);
        pcre2_match_data_free(data);
        pcre2_code_free(re);
    }
    pcre2_match_context_free(limits);
    assert_true(taken > 800 && asked - taken > 800);
}

/* A token of 64 letters after thousands of them costs no more than its share of work. */
TEST(nested_counts_stay_small)
{
    static const char *const patterns[] = {
        "(a{1,100}){1,100}", "([a-z]{0,100}[0-9]{0,100}){0,1000}", "(((a?){100}){100}){100}",
        "((a{1,1000}b?){1,1000}c?){1,1000}"};
    char text[64];
    memset(text, 'a', sizeof(text));
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++) {
        struct err e = ERR_INIT;
        struct constraint *c = constraint_new(R, patterns[i], strlen(patterns[i]), &e);
        constraint_state s = CONSTRAINT_START;
        assert_non_null(c);
        for (size_t n = sizeof(text); n < 10000; n += sizeof(text)) {
            s = constraint_next(c, s, text, sizeof(text));
            if (s == CONSTRAINT_DEAD)
                fail_msg("%s ends after %zu letters", patterns[i], n);
        }
        constraint_unref(c);
    }
}

static void *compile_deep(void *text)
{
    struct err e = ERR_INIT;
    struct constraint *c = constraint_new(R, text, strlen(text), &e);
    assert_null(c);
    assert_non_null(strstr(e.msg, "nested too deeply"));
    return NULL;
}

/* Groups and quantifiers multiply. A thread has 2 MiB where `ulimit -s` is unlimited. */
TEST(nested_repetitions_need_no_stack)
{
    enum { GROUPS = 199, QUANTIFIERS = 80 };
    char *text = calloc(GROUPS * (size_t)(2 + 2 * QUANTIFIERS) + 8, 1), *to = text;
    pthread_attr_t attr;
    pthread_t thread;
    memset(to, '(', GROUPS);
    to = stpcpy(to + GROUPS, "a\\b");
    for (int i = 0; i < GROUPS; i++) {
        to = stpcpy(to, ")");
        for (int k = 0; k < QUANTIFIERS; k++)
            to = stpcpy(to, "??");
    }
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 1 << 20), 0);
    assert_int_equal(pthread_create(&thread, &attr, compile_deep, text), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attr);
    free(text);
}

/* A text that took too much work is not called a wrong one. */
TEST(too_much_work_is_said)
{
    static const char pattern[] = "(((a|b)?c?){0,60}((a|c)?b?){0,60}){3}(.{0,70}(a|.b)){60}";
    const struct token_text a = {"a", 1};
    struct token_set *tokens = token_set_new(&a, 1, NULL, 0);
    struct err e = ERR_INIT;
    struct constraint *c = constraint_new(R, pattern, strlen(pattern), &e);
    char text[1 << 14];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = "abc"[rand() % 3];
    assert_non_null(c);
    uint32_t mask = 0;
    const constraint_state s = constraint_next(c, CONSTRAINT_START, text, sizeof(text));
    assert_int_equal(s, CONSTRAINT_SPENT);
    assert_int_equal(constraint_next(c, s, text, 1), CONSTRAINT_SPENT);
    assert_false(constraint_may_end(c, s));
    assert_int_equal(constraint_mask(c, s, tokens, &mask, &e), -1);
    assert_non_null(strstr(e.msg, "too complex"));
    constraint_unref(c);
    token_set_free(tokens);
}

int main(void) { return tests_run(NULL, NULL); }

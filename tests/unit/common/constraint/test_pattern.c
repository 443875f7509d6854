/* What looks around in a pattern: anchors, word boundaries, look-ahead; and flags. The texts were
 * checked with Python's re.fullmatch and re.search. */
#include "tests/unit/common/constraint/texts.h"

#define R CONSTRAINT_REGEX
#define J CONSTRAINT_JSON_SCHEMA

static void anchors_stand_anywhere(void **state)
{
    (void)state;
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

static void word_boundaries_look_both_ways(void **state)
{
    (void)state;
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

static void look_ahead_is_an_intersection(void **state)
{
    (void)state;
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

static void flags_change_what_characters_mean(void **state)
{
    (void)state;
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

static void what_is_not_regular_is_refused(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anchors_stand_anywhere),
        cmocka_unit_test(word_boundaries_look_both_ways),
        cmocka_unit_test(look_ahead_is_an_intersection),
        cmocka_unit_test(flags_change_what_characters_mean),
        cmocka_unit_test(what_is_not_regular_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

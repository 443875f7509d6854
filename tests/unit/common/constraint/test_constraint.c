/* Patterns and schemas: texts that must pass, texts that must not, and what is refused. */
#include "common/buf.h"
#include "tests/unit/common/constraint/texts.h"
#include <string.h>

#define FINAL   "<|channel|>final<|message|>"
#define THOUGHT "<|channel|>analysis<|message|>so <| {\"n\" <|en|><|end|><|start|>assistant"

TEST(a_call_is_a_message_to_its_function)
{
    static const char schema[] =
        "{\"$defs\":{\"f\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},"
        "\"required\":[\"n\"]},\"g\":{\"type\":\"object\",\"additionalProperties\":false}},"
        "\"anyOf\":["
        "{\"properties\":{\"name\":{\"const\":\"f\"},\"arguments\":{\"$ref\":\"#/$defs/f\"}}},"
        "{\"properties\":{\"name\":{\"const\":\"g\"},\"arguments\":{\"$ref\":\"#/$defs/g\"}}}]}";
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        {THOUGHT "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"n\": 1}",
         true},
        {" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{\"n\": 1}", true},
        {" to=functions.g<|channel|>commentary json<|message|>{}", true},
        {" to=functions.g<|channel|>commentary json<|message|>{\"n\": 1}", false},
        {" to=functions.f<|channel|>commentary json<|message|>{}", false},
        {" to=functions.h<|channel|>commentary json<|message|>{}", false},
        {FINAL "{}", false},
        {"{\"name\":\"g\",\"arguments\":{}}", false},
    };
    const struct constraint_front channel_calls = {.reasoning = CONSTRAINT_CHANNEL_CALLS};
    struct err e = ERR_INIT;
    struct constraint *c =
        constraint_new_behind(channel_calls, CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &e);
    if (!c)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (takes(c, rows[i].text) != rows[i].good)
            fail_msg("%s", rows[i].text);
    constraint_unref(c);
    static const char *const wrong[] = {
        "{}", "{\"anyOf\":[]}", "{\"anyOf\":[{\"properties\":{}}]}",
        "{\"anyOf\":[{\"properties\":{\"name\":{\"const\":\"f\"}}}]}"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_null(constraint_new_behind(channel_calls, CONSTRAINT_JSON_SCHEMA, wrong[i],
                                          strlen(wrong[i]), &e));
}

TEST(a_constraint_begins_behind_reasoning)
{
    static const struct {
        enum constraint_reasoning reasoning;
        const char *text;
        bool good;
        enum thought_marks marks;
    } rows[] = {
        {CONSTRAINT_REASONS, "so < {\"a\" </thin</think>\n\n{\"n\": 1}", true},
        {CONSTRAINT_REASONS, "</think>{\"n\": 1}", true},
        {CONSTRAINT_REASONS, "\xff\xfe</think>{\"n\": 1}", true},
        {CONSTRAINT_REASONS, "{\"n\": 1}", false},
        {CONSTRAINT_REASONS, "a</think>b</think>{\"n\": 1}", false},
        {CONSTRAINT_REASONS, "a</think>{\"n\": \"1\"}", false},
        {CONSTRAINT_MAY_REASON, "{\"n\": 1}", true},
        {CONSTRAINT_MAY_REASON, "<think>\nso</think>\n{\"n\": 1}", true},
        {CONSTRAINT_MAY_REASON, "\n<think></think>{\"n\": 1}", true},
        {CONSTRAINT_MAY_REASON, "so</think>{\"n\": 1}", false},
        {CONSTRAINT_MAY_REASON, "<think>so{\"n\": 1}", false},
        {CONSTRAINT_MAY_REASON, "[THINK]</think>[/THINK]{\"n\": 1}", true, THOUGHT_BRACKET},
        {CONSTRAINT_MAY_REASON, "<think></think>{\"n\": 1}", false, THOUGHT_BRACKET},
        {CONSTRAINT_REASONS, "\nso<channel|>{\"n\": 1}", true, THOUGHT_CHANNEL},
        {CONSTRAINT_MAY_REASON, "<|think|>so<|end|><|begin|>assistant<|content|>{\"n\": 1}", true,
         THOUGHT_SOLAR},
        {CONSTRAINT_MAY_REASON, "<|think|>so<|end|>{\"n\": 1}", true, THOUGHT_SOLAR},
        {CONSTRAINT_REASONS, "so<|end|><|content|><|begin|>assistant{\"n\": 1}", false,
         THOUGHT_SOLAR},
        {CONSTRAINT_NO_REASONING, "<think></think>{\"n\": 1}", false},
        {CONSTRAINT_CHANNELS, FINAL "{\"n\": 1}", true},
        {CONSTRAINT_CHANNELS, THOUGHT THOUGHT FINAL "{\"n\": 1}", true},
        {CONSTRAINT_CHANNELS, "<|start|>assistant" THOUGHT FINAL "{\"n\": 1}", true},
        {CONSTRAINT_CHANNELS, "<|channel|>final <|constrain|>json<|message|>{\"n\": 1}", true},
        {CONSTRAINT_CHANNELS, "{\"n\": 1}", false},
        {CONSTRAINT_CHANNELS, THOUGHT "{\"n\": 1}", false},
        {CONSTRAINT_CHANNELS, FINAL "{\"n\": \"1\"}", false},
        {CONSTRAINT_CHANNELS, FINAL "{\"n\": 1}<|end|>", false},
        {CONSTRAINT_CHANNELS, "<|channel|>analysis<|message|>a<|start|>b" FINAL "{\"n\": 1}",
         false},
    };
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},"
        "\"required\":[\"n\"]}";
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e = ERR_INIT;
        struct constraint *c =
            constraint_new_behind((struct constraint_front){rows[i].reasoning, rows[i].marks},
                                  CONSTRAINT_JSON_SCHEMA, schema, strlen(schema), &e);
        assert_non_null(c);
        if (takes(c, rows[i].text) != rows[i].good)
            fail_msg("%d %s", (int)rows[i].reasoning, rows[i].text);
        constraint_unref(c);
    }
}

#define R           CONSTRAINT_REGEX
#define J           CONSTRAINT_JSON_SCHEMA
#define CHECK(rows) check_texts(ROWS(rows))

TEST(patterns_describe_the_whole_answer)
{
    static const struct row rows[] = {
        {R, "ab?c+(x|yz)*", {"ac", "abccxyzx"}, {"ab", "abcxy", "xac", ""}},
        {R, "^\\d{3}-\\d{4}$", {"123-4567"}, {"12-4567", "123-45678"}},
        {R, "a{2}b{0,2}c{3,}", {"aaccc", "aabbcccc"}, {"accc", "aabbbccc", "aacc"}},
        {R, "[^\\n]{1,3}", {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}, {"", "\n", "abcd", "\xc3"}},
        {R, "[\\w.-]+@\\w+\\.(?:com|org)", {"a.b-c@x.org"}, {"@x.org", "a@x.net"}},
        {R, "(?P<y>\\d{4})|(?<z>z)", {"2026", "z"}, {"202", "2026z"}},
        {R, "x*?y+?", {"y", "xxyy"}, {"x"}},
        {R, "\\u0041\\x42[\\u00e0-\\u00ff]", {"AB\xc3\xa9"}, {"AB\xc3\x97"}},
        {R, "\\p{Lu}\\p{Ll}*", {"\xc3\x84rger"}, {"\xc3\xa4rger"}},
        {R, "a|", {"", "a"}, {"b"}},
        {R, "a{,2}", {"", "aa"}, {"aaa"}},
        {R, "{a}\\{", {"{a}{"}, {"a"}},
        {R, "[]a]+", {"]a]"}, {"b"}},
        {R,
         "(?:a{0,50}){0,50}b",
         {"b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab"},
         {"a"}},
        {J, "{\"type\":\"string\",\"maxLength\":1e300}", {"\"a\""}, {"1"}},
        {J, /* more than eight that begin alike */
         "{\"enum\":[\"aa\",\"ab\",\"ac\",\"a\",\"abc\",\"abd\",\"b\",\"bb\",\"bbb\",\"\",\"ba\","
         "\"ca\"]}",
         {"\"aa\"", "\"a\"", "\"abd\"", "\"\"", "\"bbb\"", "\"ca\""},
         {"\"abe\"", "\"c\"", "\"bab\"", "\"aaa\""}},
        {R,
         "a|ab|a(b|c)d|ax*|b|bc|b(c)*|bx?|cc|c",
         {"a", "abd", "axx", "bccc", "cc"},
         {"ad", "bxx", "ccc"}},
        {R, ".", {"x", "\xe2\x82\xac"}, {"\n", "\r", "xy"}},
    };
    CHECK(rows);
}

TEST(values_of_each_type)
{
    static const struct row rows[] = {
        {J, "{\"type\":\"null\"}", {"null"}, {"", "nul", "true"}},
        {J, "{\"type\":[\"boolean\",\"null\"]}", {"true", "false", "null"}, {"1"}},
        {J,
         "{\"type\":\"integer\"}",
         {"0", "-12", "123456789012345678"},
         {"01", "1.0", "1e3", "+1"}},
        {J, "{\"type\":\"number\"}", {"0.5", "-1e-9", "12E+3"}, {".5", "1.", "00", "1e"}},
        {J,
         "{\"type\":\"string\"}",
         {"\"\"", "\"a\\n\\u00e9\\ud83d\\ude00\"", "\"\xc3\xa9\""},
         {"\"", "\"a", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\xff\""}},
        {J,
         "{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
         {"[1,2]", "[1, 2, 3]", "[\n  1,\n  2\n]"},
         {"[1]", "[]", "[1,2,3,4]", "[1,]", "[1 2]"}},
        {J,
         "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"string\"},{\"type\":\"null\"}],"
         "\"items\":false}",
         {"[]", "[\"a\"]", "[\"a\",null]"},
         {"[null]", "[\"a\",null,1]"}},
        {J, "true", {"{\"a\":[1,{\"b\":null}]}", "[]", "\"x\""}, {"{a:1}", "[1,]", ""}},
        {J, "{\"type\":\"object\"}", {"{}", "{ \"a\": [ {} ] }"}, {"[]", "1", "{\"a\"}"}},
        {J,
         "{\"enum\":[\"a\",1,null,{\"x\":[1,2]}]}",
         {"\"a\"", "1", "null", "{\"x\":[1,2]}"},
         {"\"b\"", "2"}},
        {J, "{\"const\":\"\\u00e9\\n\"}", {"\"\xc3\xa9\\n\""}, {"\"e\""}},
        {J, "{\"type\":\"string\",\"enum\":[\"red\",3]}", {"\"red\""}, {"3"}},
    };
    CHECK(rows);
}

TEST(numbers_keep_their_bounds)
{
    static const struct row rows[] = {
        {J,
         "{\"type\":\"integer\",\"minimum\":-5,\"maximum\":105}",
         {"-5", "0", "99", "105"},
         {"-6", "106", "1000", "-10"}},
        {J,
         "{\"type\":\"integer\",\"exclusiveMinimum\":-5,\"exclusiveMaximum\":0}",
         {"-4", "-1"},
         {"-5", "0", "1"}},
        {J,
         "{\"type\":\"number\",\"minimum\":-1.25,\"maximum\":3.75}",
         {"-1.25", "-1.2", "3.75", "3.7", "3.7500", "0", "3"},
         {"-1.26", "3.751", "4", "-2", "-1.2501"}},
        {J,
         "{\"type\":\"number\",\"exclusiveMinimum\":0}",
         {"0.001", "1", "0.10"},
         {"0", "0.0", "-1"}},
        {J,
         "{\"type\":\"number\",\"minimum\":100,\"exclusiveMaximum\":101}",
         {"100", "100.999"},
         {"101", "99.9", "101.0"}},
        {J,
         "{\"type\":\"integer\",\"multipleOf\":7,\"minimum\":50}",
         {"56", "700", "7007"},
         {"49", "57", "0"}},
        {J,
         "{\"allOf\":[{\"type\":\"integer\",\"minimum\":3},{\"maximum\":9}]}",
         {"3", "9"},
         {"2", "10"}},
    };
    CHECK(rows);
}

TEST(strings_keep_length_pattern_and_format)
{
    static const struct row rows[] = {
        {J,
         "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
         {"\"ab\"", "\"\xc3\xa9\\u00e9x\"", "\"\\ud83d\\ude00a\""},
         {"\"a\"", "\"abcd\""}},
        {J,
         "{\"type\":\"string\",\"pattern\":\"[0-9]{3}\",\"maxLength\":5}",
         {"\"a123b\"", "\"123\""},
         {"\"12\"", "\"abc123\""}},
        {J, "{\"pattern\":\"^\\\"q\\\\\\\\$\"}", {"\"\\\"q\\\\\""}, {"\"q\"", "\"\\u0022q\\\\\""}},
        {J,
         "{\"type\":\"string\",\"pattern\":\"^[^a-z]$\"}",
         {"\"\\n\"", "\"A\"", "\"\xc3\xa4\""},
         {"\"a\"", "\"AB\""}},
        {J,
         "{\"type\":\"string\",\"format\":\"date\"}",
         {"\"2026-11-21\""},
         {"\"2026-02-30\"", "\"26-1-1\""}},
        {J,
         "{\"type\":\"string\",\"format\":\"uuid\"}",
         {"\"123e4567-e89b-12d3-a456-426614174000\""},
         {"\"123\""}},
        {J,
         "{\"type\":\"string\",\"format\":\"ipv4\"}",
         {"\"255.1.0.9\""},
         {"\"256.1.1.1\"", "\"1.1.1\""}},
    };
    CHECK(rows);
}

TEST(objects_come_in_declared_order)
{
    static const struct row rows[] = {
        {J,
         "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":"
         "\"string\"},\"c\":{\"type\":\"null\"}},\"x-closed\":true,"
         "\"required\":[\"b\"]}",
         {"{\"b\":\"\"}", "{\"a\":1,\"b\":\"x\"}", "{\"b\": \"x\", \"c\": null}",
          "{\n  \"a\": 1,\n  \"b\": \"\"\n}"},
         {"{}", "{\"a\":1}", "{\"b\":\"\",\"a\":1}", "{\"b\":\"\",}", "{\"b\":\"\",\"z\":1}",
          "{,\"b\":\"\"}"}},
        {J,
         "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"null\"}},"
         "\"additionalProperties\":{\"type\":\"integer\"}}",
         {"{}", "{\"ab\":null}", "{\"a\":1,\"abc\":2}", "{\"ab\":null,\"\":3}"},
         {"{\"ab\":1}", "{\"a\":null}", "{\"\\u0061b\":1}"}},
        {J,
         "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"},\"y$\":{"
         "\"type\":\"integer\",\"minimum\":10}},"
         "\"additionalProperties\":false}",
         {"{\"x\":1}", "{\"ay\":10}", "{\"xy\":12}", "{}"},
         {"{\"xy\":1}", "{\"z\":1}", "{\"ay\":9}"}},
        {J,
         "{\"type\":\"object\",\"properties\":{\"a\":{},\"b\":{},\"c\":{}},\"minProperties\":2,"
         "\"maxProperties\":2}",
         {"{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":[]}"},
         {"{\"a\":1}", "{\"a\":1,\"b\":2,\"c\":3}", "{}"}},
        {J,
         "{\"allOf\":[{\"properties\":{\"a\":{\"type\":\"integer\",\"minimum\":3}}},{"
         "\"properties\":{\"a\":{\"maximum\":7}},"
         "\"required\":[\"a\"]}]}",
         {"{\"a\":3}", "{\"a\":7}"},
         {"{\"a\":2}", "{\"a\":8}", "{}"}},
        {J,
         "{\"properties\":{\"a\\\"/\\n\":{\"type\":\"null\"}},\"required\":[\"a\\\"/\\n\"]}",
         {"{\"a\\\"/\\n\":null}"},
         {"{}"}},
        {J, "{\"type\":\"object\",\"required\":[\"zz\"]}", {"{\"zz\":[]}"}, {"{}", "{\"y\":1}"}},
    };
    CHECK(rows);
}

TEST(alternatives_and_references)
{
    static const struct row rows[] = {
        {J,
         "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\",\"maxLength\":1}]}",
         {"5", "\"a\""},
         {"\"ab\"", "null"}},
        {J,
         "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"null\"},\"m\":{\"type\":\"null\"}}"
         ",\"anyOf\":[{\"required\":[\"k\"]},"
         "{\"required\":[\"m\"]}]}",
         {"{\"k\":null}", "{\"m\":null}", "{\"k\":null,\"m\":null}"},
         {"{}"}},
        {J,
         "{\"x-closed\":true,\"oneOf\":[{\"properties\":{\"t\":{\"const\":\"a\"},\"n\":{\"type\":"
         "\"integer\"}},"
         "\"required\":[\"t\"]},"
         "{\"properties\":{\"t\":{\"const\":\"b\"}},\"required\":[\"t\"]}]}",
         {"{\"t\":\"a\",\"n\":1}", "{\"t\":\"b\"}"},
         {"{\"t\":\"b\",\"n\":1}", "{\"t\":\"c\"}"}},
        {J,
         "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},"
         "\"next\":{\"anyOf\":[{\"$ref\":\"#/$defs/n\"},"
         "{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/$defs/n\"}",
         {"{\"v\":1,\"next\":null}",
          "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"},
         {"{\"v\":1}", "{\"v\":1,\"next\":{\"v\":2}}"}},
        {J,
         "{\"$defs\":{\"x\":{\"$anchor\":\"here\",\"type\":\"boolean\"}},\"$ref\":\"#here\"}",
         {"true"},
         {"1"}},
        {J,
         "{\"properties\":{\"a\":{\"type\":\"null\"},\"inf\":{\"$ref\":\"#/$defs/"
         "i\"}},\"$defs\":{\"i\":{\"type\":\"object\",\"properties\":"
         "{\"i\":{\"$ref\":\"#/$defs/i\"}},\"required\":[\"i\"]}}}",
         {"{}", "{\"a\":null}"},
         {"{\"inf\":{}}"}},
    };
    CHECK(rows);
}

TEST(what_cannot_be_promised_is_refused_by_name)
{
    static const struct {
        enum constraint_kind kind;
        const char *text, *says;
    } rows[] = {
        {J, "{\"properties\":{\"a/b\":{\"uniqueItems\":true}}}",
         "`uniqueItems` of items that are not 8 listed values at most at "
         "`#/properties/a~1b/uniqueItems`"},
        {J, "{\"type\":[\"object\",\"null\"],\"properties\":{\"a\":{}},\"minProperties\":6}",
         "`minProperties` of so many unnamed properties at `#/minProperties`"},
        {J, "{\"minProperties\":3,\"propertyNames\":{\"enum\":[\"a\",\"ab\"]}}",
         "`minProperties` of so many unnamed properties"},
        {J, "{\"not\":{}}", "no instance"},
        {J, "{\"not\":{\"format\":\"regex\"}}",
         "`not` of `format` is not supported at `#/not/format`"},
        {J, "{\"not\":{\"format\":\"password\"}}", "no instance"},
        {J, "{\"multipleOf\":0.123456789}", "this `multipleOf` is not supported"},
        {J,
         "{\"$schema\":\"https://json-schema.org/draft/2019-09/schema\",\"$recursiveAnchor\":true,"
         "\"items\":{\"$id\":\"a\",\"$recursiveAnchor\":true,\"items\":{\"$recursiveRef\":\"#\"}}}",
         "`$recursiveRef` with several anchors is not supported at `#/items/items/$recursiveRef`"},
        {J, "{\"$ref\":\"http://x/y\"}", "only references inside"},
        {J, "{\"$ref\":\"#/nope\"}", "an unresolved reference"},
        {J, "{\"type\":\"strin\"}", "an unknown type"},
        {J, "{\"properties\":[7,8]}", "`properties` is not an object"},
        {J, "{\"patternProperties\":[7]}", "`patternProperties` is not an object"},
        {J, "{\"type\":\"integer\",\"minimum\":5,\"maximum\":3}", "no instance"},
        {J, "{\"x-closed\":true,\"properties\":{\"a\":{\"$ref\":\"#\"}},\"required\":[\"a\"]}",
         "no instance"},
        {J, "{\"anyOf\":[{\"$ref\":\"#\"}]}", "alternative to itself"},
        {J, "{\"enum\":[]}", "not a list of values"},
        {J, "false", "no instance"},
        {J, "{\"type\":", "JSON schema: "},
        {R, "(?<=a)b", "look-behind, or an unknown kind of group"},
        {R, "(a)\\1", "a back reference"},
        {R, "a(b", "a group without end"},
        {R, "a)b", "an unmatched closing parenthesis"},
        {R, "[b-a]", "ends before it begins"},
        {R, "*a", "a quantifier without"},
        {R, "a^b", "no text can match"},
        {R, "a++", "possessive"},
        {R, "x{5,2}", "ends before it begins"},
        {R, "\xff", "invalid UTF-8"},
        {J, "{\"maxLength\":1.5}", "`maxLength` is not a non-negative integer at `#/maxLength`"},
        {J, "{\"minItems\":1e300}", "`minItems` above 100000"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err e = ERR_INIT;
        struct constraint *c = constraint_new(rows[i].kind, rows[i].text, strlen(rows[i].text), &e);
        if (c || !strstr(e.msg, rows[i].says))
            fail_msg("%s: %s", rows[i].text, c ? "taken" : e.msg);
        assert_int_equal(e.kind, ERR_VALIDATION);
    }
}

TEST(an_ordered_one_is_waited_for)
{
    struct err e = ERR_INIT;
    uint32_t mask[1];
    struct token_set *set = token_set_new((struct token_text[]){{"a", 1}, {"b", 1}}, 2, NULL, 0);
    struct constraint *c =
        constraint_order((struct constraint_front){0}, CONSTRAINT_REGEX, "b+a", 3, &e);
    assert_int_equal(constraint_mask(c, CONSTRAINT_START, set, mask, &e), 0);
    assert_int_equal(mask[0], 2);
    assert_true(takes(c, "bba") && !takes(c, "ab"));
    constraint_unref(c);
    c = constraint_order((struct constraint_front){0}, CONSTRAINT_REGEX, "(", 1, &e);
    assert_int_equal(constraint_mask(c, CONSTRAINT_START, set, mask, &e), -1);
    assert_string_equal(e.msg, "pattern: a group without end at byte 1");
    constraint_unref(c);
    for (int i = 0; i < 50; i++) /* these have no request */
        constraint_unref(
            constraint_order((struct constraint_front){0}, CONSTRAINT_JSON_SCHEMA, "true", 4, &e));
    token_set_free(set);
}

/* Nesting costs stack; where it is bounded, what is inside the bounds must fit. */
TEST(deep_ones_fit_the_stack_or_are_refused)
{
    static const struct {
        enum constraint_kind kind;
        int times;
        const char *open, *middle, *close;
        bool good;
    } rows[] = {
        {R, 198, "(a", "", ")", true},
        {R, 199, "([^b]", "\\d", "\\w)", true},
        {R, 202, "(", "a", ")", false},
        {J, 400, "{\"items\":", "true", "}", true},
        {J, 600, "{\"items\":", "true", "}", false},
        {J, 80,
         "{\"allOf\":[{\"anyOf\":[{}]},{\"anyOf\":[{}]},{\"anyOf\":[{}]},{\"anyOf\":[{}]},{"
         "\"anyOf\":[{}]},"
         "{\"anyOf\":[{}]}],\"items\":",
         "true", "}", false},
    };
    struct buf b = BUF_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err e = ERR_INIT;
        buf_reset(&b);
        for (int k = 0; k < rows[i].times; k++)
            buf_str(&b, rows[i].open);
        buf_str(&b, rows[i].middle);
        for (int k = 0; k < rows[i].times; k++)
            buf_str(&b, rows[i].close);
        struct constraint *c = constraint_new(rows[i].kind, b.p, b.len, &e);
        if ((c != NULL) != rows[i].good)
            fail_msg("%zu: %s", i, e.msg);
        if (!c)
            assert_non_null(strstr(e.msg, "nested too deeply"));
        constraint_unref(c);
    }
    buf_free(&b);
}

/* Each is small on the wire and would take seconds, were compiling not bounded. */
TEST(large_constraints_are_refused_soon)
{
    static const char *const says[] = {"pattern: too complex at byte",
                                       "too complex at byte 1 at `#/allOf/", "too much memory",
                                       "too complex at `#/anyOf/"};
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    for (int i = 0; i < 5; i++) {
        buf_reset(&b);
        buf_str(&b, i == 1   ? "{\"allOf\":["
                    : i == 2 ? "{\"enum\":["
                    : i == 3 ? "{\"anyOf\":["
                             : "");
        for (int k = 0; k < (i == 0   ? 6000
                             : i == 1 ? 12
                             : i == 2 ? 100000
                             : i == 3 ? 9000
                                      : 0);
             k++) {
            if (i == 0)
                buf_str(&b, "\\p{L}");
            else if (i == 1)
                buf_fmt(&b,
                        "%s{\"anyOf\":[{\"minLength\":1},{\"maxLength\":7},{\"pattern\":\"a\"}]}",
                        k ? "," : "");
            else if (i == 2)
                buf_fmt(&b, "%s\"the value %d\"", k ? "," : "", k);
            else
                buf_fmt(&b, "%s{\"properties\":{\"k%d\":{\"type\":\"integer\",\"minimum\":%d}}}",
                        k ? "," : "", k, k);
        }
        buf_str(&b, i == 0 ? "" : i < 4 ? "]}" : "(a|(b|(c|d)*)+){0,100000}");
        enum constraint_kind kind = i % 4 ? CONSTRAINT_JSON_SCHEMA : CONSTRAINT_REGEX;
        struct constraint *c = constraint_new(kind, b.p, b.len, &e);
        assert_int_equal(c != NULL, i == 4); /* a large count alone is cheap */
        if (!c)
            if (!strstr(e.msg, says[i]))
                fail_msg("%d: %s", i, e.msg);
        constraint_unref(c);
    }
    buf_free(&b);
}

/* The work that is allowed grows with the text. */
TEST(long_lists_are_compiled)
{
    struct buf b = BUF_INIT;
    struct err e = ERR_INIT;
    for (int i = 0; i < 10000; i++)
        buf_fmt(&b, "%s\"the %s value %d\"", i ? "," : "{\"enum\":[", i % 3 ? "other" : "first", i);
    buf_str(&b, "]}");
    struct constraint *c = constraint_new(CONSTRAINT_JSON_SCHEMA, b.p, b.len, &e);
    if (!c)
        fail_msg("%s", e.msg);
    constraint_unref(c);
    buf_reset(&b);
    buf_str(&b, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 2000; i++)
        buf_fmt(&b, "%s\"property_%d\":{\"type\":[\"string\",\"integer\",\"null\"]}", i ? "," : "",
                i);
    buf_str(&b, "}}");
    c = constraint_new(CONSTRAINT_JSON_SCHEMA, b.p, b.len, &e);
    if (!c)
        fail_msg("%s", e.msg);
    constraint_unref(c);
    buf_free(&b);
}

int main(void) { return tests_run(NULL, NULL); }

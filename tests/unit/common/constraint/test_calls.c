/* Texts that may hold calls: free outside the markers, an instance of the schema inside. */
#include "common/constraint/constraint.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char spec[] =
    "{\"open\":\"<tool_call>\",\"close\":\"</tool_call>\",\"schema\":{\"anyOf\":["
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"f\"},\"arguments\":{\"type\":"
    "\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}},\"required\":[\"n\"],"
    "\"additionalProperties\":false}},\"required\":[\"name\",\"arguments\"],"
    "\"additionalProperties\":false},"
    "{\"type\":\"object\",\"properties\":{\"name\":{\"const\":\"any\"},\"arguments\":{\"type\":"
    "\"object\",\"additionalProperties\":true}},\"required\":[\"name\",\"arguments\"],"
    "\"additionalProperties\":false}]}}";

/* 1: may end here, 0: may go on, -1: wrong. */
static int read_text(enum constraint_reasoning reasoning, const char *text)
{
    struct err e = ERR_INIT;
    struct constraint *c =
        constraint_new_behind(reasoning, CONSTRAINT_CALLS, spec, strlen(spec), &e);
    if (!c)
        fail_msg("%s", e.msg);
    const constraint_state at = constraint_next(c, CONSTRAINT_START, text, strlen(text));
    const int rc = at == CONSTRAINT_DEAD ? -1 : constraint_may_end(c, at);
    constraint_unref(c);
    return rc;
}

static int plain(const char *text) { return read_text(CONSTRAINT_NO_REASONING, text); }

#define F1  "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n</tool_call>"
#define ANY "<tool_call>{\"name\":\"any\",\"arguments\":{\"x\":[1,{\"y\":null}]}}</tool_call>"

static void text_is_free(void **state)
{
    (void)state;
    assert_int_equal(plain(""), 1);
    assert_int_equal(plain("Hello {\"name\": 1} </tool_call> <tool <tool_call <<tool_cal"), 1);
    assert_int_equal(plain("gr\xc3\xbc\xc3\x9f\x65\n\n"), 1);
}

static void calls_are_of_the_schema(void **state)
{
    (void)state;
    assert_int_equal(plain(F1), 1);
    assert_int_equal(plain("I look. <" F1 " and " ANY "\n" F1 ". Done <tool"), 1);
    assert_int_equal(plain("I look. <tool_call>"), 0);
    assert_int_equal(plain("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 1}}\n"), 0);
    assert_int_equal(plain("<tool_call>no"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"g\""), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": \"1"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {}"), -1);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}}<"), 0);
    assert_int_equal(plain("<tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 1}} x"), -1);
    assert_int_equal(plain(F1 "<tool_call>x"), -1);
}

static void reasoning_comes_first(void **state)
{
    (void)state;
    assert_int_equal(read_text(CONSTRAINT_REASONS, "<tool_call>or not</think>" F1), 1);
    assert_int_equal(read_text(CONSTRAINT_REASONS, "Hm.</think><tool_call>or not"), -1);
    assert_int_equal(read_text(CONSTRAINT_MAY_REASON, "<think>Hm.</think>Well. " F1), 1);
    assert_int_equal(read_text(CONSTRAINT_MAY_REASON, "<tool_call>or not"), -1);
}

static void what_is_no_such_thing_is_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"open\":\"<\",\"close\":\">\"}",
        "{\"open\":1,\"close\":\">\",\"schema\":{}}",
        "{\"open\":\"\",\"close\":\">\",\"schema\":{}}",
        "{\"open\":\"<\",\"close\":\">\",\"schema\":{\"type\":\"none\"}}"};
    struct err e = ERR_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_null(constraint_new(CONSTRAINT_CALLS, bad[i], strlen(bad[i]), &e));
        assert_true(e.msg[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_free),
        cmocka_unit_test(calls_are_of_the_schema),
        cmocka_unit_test(reasoning_comes_first),
        cmocka_unit_test(what_is_no_such_thing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

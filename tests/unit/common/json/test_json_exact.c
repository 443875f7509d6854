/* Numbers and strings of a tree stay what they were written as. */
#include "common/json/exact.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(texts_come_back)
{
    static const struct {
        const char *in, *out; /* NULL: the same */
    } rows[] = {
        {"[1234567890123456789,-0.12345678901234567890,1e400]", NULL},
        {"{\"a\":[1,2.5,{\"b\":98765432109876543210}],\"1\":true,\"-2\":null}", NULL},
        {"[1.0,2.50,1e3,-0.5,100]", "[1.0,2.50,1000,-0.5,100]"},
        {"\"a\\u0000b\\\\u0000\"", NULL},
        {"{\"k\\u0000\":\"\\u0000\\n\\u001f\\\"\"}", NULL},
        {" [ 12345678901234567 , \"9 \\\" 8\" , 3 ] ", "[12345678901234567,\"9 \\\" 8\",3]"},
        {"[]", NULL},
        {"\"\xc3\xa9\"", NULL},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err e = ERR_INIT;
        struct buf b = BUF_INIT;
        cJSON *tree = json_parse_exact(rows[i].in, strlen(rows[i].in), &e);
        if (!tree)
            fail_msg("%s: %s", rows[i].in, e.msg);
        json_print_exact(&b, tree);
        assert_string_equal(b.p, rows[i].out ? rows[i].out : rows[i].in);
        buf_free(&b);
        cJSON_Delete(tree);
    }
}

TEST(a_nul_is_one_byte_of_a_text)
{
    struct buf b = BUF_INIT;
    json_text_exact(&b, "a\xc0\x80"
                        "b\xc0\x80");
    assert_int_equal(b.len, 4);
    assert_memory_equal(b.p, "a\0b\0", 4);
    buf_free(&b);
}

TEST(what_json_parse_refuses_is_refused)
{
    static const char *const rows[] = {"", "[1", "\"\xc0\x80\"", "{\"a\":}", "[1] 2", "\"\\u00\""};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err e = ERR_INIT;
        assert_null(json_parse_exact(rows[i], strlen(rows[i]), &e));
        assert_int_equal(e.kind, ERR_VALIDATION);
    }
}

int main(void) { return tests_run(NULL, NULL); }

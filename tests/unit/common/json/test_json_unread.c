/* A watched object knows which of its members were looked up. */
#include "common/json/unread.h"
#include "tests/unit/test.h"
#include <string.h>

static cJSON *tree(const char *text)
{
    struct err e = ERR_INIT;
    cJSON *t = json_parse(text, strlen(text), &e);
    assert_non_null(t);
    return t;
}

/* The names of what is unread, joined. */
static const char *unread(const cJSON *o)
{
    static char names[64];
    *names = 0;
    for (const cJSON *v = NULL; (v = json_unread(o, v));)
        strcat(strcat(names, v->string), " ");
    return names;
}

TEST(what_is_looked_up_is_read)
{
    cJSON *t = tree("{\"a\":1,\"b\":{\"c\":2,\"d\":3},\"e\":null,\"f\":\"x\",\"g\":true}");
    assert_string_equal(unread(t), "");
    json_watch(t);
    assert_string_equal(unread(t), "a b f g ");
    assert_int_equal(json_int(t, "a", 0), 1);
    assert_true(json_bool(t, "g", false));
    assert_string_equal(json_str(t, "f", ""), "x");
    assert_null(json_get(t, "A"));
    assert_string_equal(unread(t), "b ");
    const cJSON *inner = json_get(t, "b");
    assert_string_equal(unread(t), "");
    assert_string_equal(unread(inner), "");
    json_watch(inner);
    assert_true(json_num(inner, "d", 0) == 3);
    assert_string_equal(unread(inner), "c ");
    cJSON_Delete(t);
}

/* Look-ups do not write into trees that threads share. */
TEST(what_is_not_watched_stays)
{
    cJSON *t = tree("{\"a\":1}");
    const cJSON before = *t->child;
    json_get(t, "a");
    assert_memory_equal(&before, t->child, sizeof(before));
    json_watch(t->child);
    json_watch(NULL);
    assert_null(json_unread(t->child, NULL));
    assert_null(json_unread(NULL, NULL));
    assert_true(cJSON_IsNumber(t->child));
    cJSON_Delete(t);
}

int main(void) { return tests_run(NULL, NULL); }

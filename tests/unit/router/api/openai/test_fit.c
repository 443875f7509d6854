#include "router/api/openai/fit.h"
#include "tests/unit/test.h"
#include <string.h>

/* A conversation in letters: s, u, a, t for the roles. */
static cJSON *talk(const char *letters)
{
    cJSON *list = cJSON_CreateArray();
    for (; *letters; letters++) {
        cJSON *m = cJSON_CreateObject();
        cJSON_AddStringToObject(m, "role",
                                *letters == 's'   ? "system"
                                : *letters == 'u' ? "user"
                                : *letters == 'a' ? "assistant"
                                                  : "tool");
        cJSON_AddItemToArray(list, m);
    }
    return list;
}

static const char *letters_of(const cJSON *list)
{
    static char out[64];
    size_t n = 0;
    for (const cJSON *m = list->child; m; m = m->next)
        out[n++] = cJSON_GetObjectItem(m, "role")->valuestring[0];
    out[n] = 0;
    return out;
}

/* What is left behind each cut, one after the other. */
static const char *cuts(const char *letters, bool turns)
{
    static char out[256];
    uint32_t at[64];
    cJSON *list = talk(letters);
    uint32_t n = fit_cuts(list, turns, at);
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        cJSON *left = fit_cut(list, at[i]);
        strcat(strcat(out, *out ? " " : ""), letters_of(left));
        cJSON_Delete(left);
    }
    assert_string_equal(letters_of(list), letters); /* it was only looked at */
    cJSON_Delete(list);
    return out;
}

TEST(the_oldest_go_and_the_system_stays)
{
    assert_string_equal(cuts("suauau", true), "suau su");
    assert_string_equal(cuts("uasua", true), "sua");
    assert_string_equal(cuts("suaatu", true), "su");
    assert_string_equal(cuts("suaatu", false), "saatu satu su");
    assert_string_equal(cuts("uatat", true), ""); /* one question, many calls */
    assert_string_equal(cuts("uatat", false), "atat at");
    assert_string_equal(cuts("usau", false), "sau su");
    assert_string_equal(cuts("u", true), "");
    assert_string_equal(cuts("su", false), "");
    assert_string_equal(cuts("", false), "");
}

int main(void) { return tests_run(NULL, NULL); }

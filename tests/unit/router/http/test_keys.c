/* Keys are compared in constant time: how long it takes says nothing of how much of a key was
 * right. test_http_limits.c has what is a key and which routes ask for one. */
#include "common/buf.h"
#include "common/clock.h"
#include "router/http/keys.h"
#include "tests/unit/test.h"
#include <string.h>

enum { LONG = 8000, ROUNDS = 400 };

static int64_t once(const struct keys *k, const char *given, bool want)
{
    char name[KEY_NAME_MAX];
    const int64_t from = clock_ns();
    const bool has = keys_have(k, given, name);
    const int64_t ns = clock_ns() - from;
    assert_int_equal(has, want);
    return ns;
}

/* In turns, and the shortest of many: what else runs on the machine is in neither. A comparison
 * that stops at the first difference would take a thousandth of the time. */
TEST(the_place_of_a_difference_takes_no_time)
{
    static char right[LONG + 1], first[LONG + 1], last[LONG + 1];
    struct keys k;
    struct err e = ERR_INIT;
    int64_t least[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
    memset(right, 'k', LONG);
    memcpy(first, right, sizeof(right));
    memcpy(last, right, sizeof(right));
    first[0] = last[LONG - 1] = 'x';
    assert_int_equal(keys_load(&k, right, NULL, &e), 0);
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t t[] = {once(&k, right, true), once(&k, first, false), once(&k, last, false)};
        for (int j = 0; j < 3; j++)
            least[j] = t[j] < least[j] ? t[j] : least[j];
    }
    for (int j = 1; j < 3; j++) {
        assert_in_range(least[j], least[0] / 2, least[0] * 2);
    }
    keys_free(&k);
}

/* Nor does the place of the key in the list. */
TEST(the_place_of_a_key_takes_no_time)
{
    enum { N = 200 };
    struct buf list = BUF_INIT;
    struct keys k;
    struct err e = ERR_INIT;
    int64_t least[2] = {INT64_MAX, INT64_MAX};
    for (int i = 0; i < N; i++)
        buf_fmt(&list, "api-key-number-of-%04dz,", i);
    assert_int_equal(keys_load(&k, list.p, NULL, &e), 0);
    assert_int_equal(k.n, N);
    for (int i = 0; i < ROUNDS; i++) {
        const int64_t t[] = {once(&k, "api-key-number-of-0000z", true),
                             once(&k, "api-key-number-of-0199z", true)};
        for (int j = 0; j < 2; j++)
            least[j] = t[j] < least[j] ? t[j] : least[j];
    }
    assert_in_range(least[0], least[1] / 2, least[1] * 2);
    keys_free(&k);
    buf_free(&list);
}

/* A list without keys would leave the server open although --api-key was given. */
TEST(a_list_without_a_key_is_refused)
{
    static const char *const lists[] = {",", " ", " , ,", "\t"};
    struct keys k;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_int_equal(keys_load(&k, lists[i], NULL, &e), -1);
        assert_string_equal(e.msg, "--api-key: no key in it");
    }
    assert_int_equal(keys_load(&k, "", NULL, &e), 0); /* as `API_KEY=` in a file of variables */
    assert_int_equal(k.n, 0);
    keys_free(&k);
}

int main(void) { return tests_run(NULL, NULL); }

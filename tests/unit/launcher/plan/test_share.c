/* What of a machine each replica gets. */
#include "launcher/plan/share.h"
#include "tests/unit/test.h"
#include <string.h>

static cpu_set_t set_of(const char *list)
{
    cpu_set_t s;
    assert_true(share_parse_cores(list, &s));
    return s;
}

static void expect(const char *all, const char *const *nodes, uint32_t n_nodes, uint32_t n,
                   const char *const *want)
{
    cpu_set_t of = set_of(all), node[8], got;
    for (uint32_t i = 0; i < n_nodes; i++)
        node[i] = set_of(nodes[i]);
    for (uint32_t k = 0; k < n; k++) {
        cpu_set_t w = set_of(want[k]);
        assert_int_equal(share_cores(&of, node, n_nodes, n, k, &got), CPU_COUNT(&w));
        assert_true(CPU_EQUAL(&got, &w));
    }
}

TEST(cores_are_dealt_out)
{
    static const char *const two[] = {"0-7,16-23", "8-15,24-31"}, *const four[] = {"0-1", "2-3",
                                                                                   "4-5", "6-7"};
    expect("0-31", two, 2, 2, two);
    expect("0-31", two, 2, 4,
           (const char *const[]){"0-7", "8-15", "16-23", "24-31"}); /* not evenly: by number */
    expect("0-7", four, 4, 2, (const char *const[]){"0-3", "4-7"});
    expect("0-7", four, 4, 3, (const char *const[]){"0-2", "3-5", "6-7"});
    expect("2-3,6-7", four, 4, 2, (const char *const[]){"2-3", "6-7"}); /* two of them are ours */
    expect("1,3,5", NULL, 0, 2, (const char *const[]){"1,3", "5"});
    expect("0-3", NULL, 0, 1, (const char *const[]){"0-3"});
    expect("0", NULL, 0, 2, (const char *const[]){"", ""}); /* too few: none is pinned */
}

TEST(lists_of_the_kernel)
{
    static const char *const bad[] = {"a", "1-", "-1", "1,,2", "1-2-3", "99999", "1 2"};
    cpu_set_t s;
    assert_true(share_parse_cores("0-2,5\n", &s));
    assert_int_equal(CPU_COUNT(&s), 4);
    assert_true(share_parse_cores("\n", &s)); /* a node without cores */
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(share_parse_cores(bad[i], &s));
}

TEST(devices_are_dealt_out)
{
    char out[16];
    assert_true(share_devices("0,1,2,3", 2, 0, out, sizeof(out)));
    assert_string_equal(out, "0,1");
    assert_true(share_devices("0,1,2,3", 2, 1, out, sizeof(out)));
    assert_string_equal(out, "2,3");
    assert_true(share_devices("GPU-a,GPU-b", 1, 1, out, sizeof(out)));
    assert_string_equal(out, "GPU-b");
    assert_false(share_devices("0,1,2", 2, 1, out, sizeof(out)));
    assert_false(share_devices("0", 1, 1, out, sizeof(out)));
    assert_false(share_devices("GPU-0123456789abcdef", 1, 0, out, sizeof(out)));
}

int main(void) { return tests_run(NULL, NULL); }

/* Accounting of adapters: numbers, pages, and lists that are replaced while requests run. */
#include "tests/unit/router/scheduler/policy_rig.h"

TEST(names_of_adapters_get_numbers)
{
    struct adapter_accounts b;
    char name[16];
    assert_true(init_adapters(&b));
    assert_int_equal(adapters_number(&b, NULL), 0);
    assert_int_equal(adapters_number(&b, ""), 0);
    assert_int_equal(adapters_number(&b, "one"), 3);
    for (uint32_t i = 0; i < ADAPTERS_MAX_UNLISTED; i++) {
        snprintf(name, sizeof(name), "peer %u", i);
        assert_int_equal(adapters_number(&b, name), ADAPTER_FIRST_UNLISTED + i);
    }
    const uint32_t peer = adapters_number(&b, "peer 7");
    assert_int_equal(peer, ADAPTER_FIRST_UNLISTED + 7);
    assert_int_equal(adapters_number(&b, "one more"), ADAPTER_UNNUMBERED);
    assert_true(adapters_fit(&b, ADAPTER_UNNUMBERED) && adapters_fit(&b, peer));
    adapters_activate(&b, ADAPTER_UNNUMBERED), adapters_deactivate(&b, ADAPTER_UNNUMBERED);
    adapters_free(&b);
}

TEST(a_list_is_replaced_and_the_counts_stay)
{
    struct adapter_accounts b;
    struct adapter_shelf shelf;
    struct served_adapter again = {.name = "two", .path = "/other", .pages = 3};
    assert_true(init_adapters(&b));
    adapter_shelf_init(&shelf);
    assert_null(adapter_shelf_hold(&shelf));
    adapter_shelf_put(&shelf, b.list);
    struct served_adapters *old = adapter_shelf_hold(&shelf);
    adapters_retain(&b, 3), adapters_retain(&b, 3), adapters_activate(&b, 3);
    assert_int_equal(b.pages, 1);
    /* a leaving one gets no new requests, and is still counted for its own */
    struct served_adapters *marked = served_adapters_marked(b.list, 3, true);
    assert_true(adapters_replace(&b, marked));
    adapter_shelf_put(&shelf, marked);
    served_adapters_release(marked);
    assert_false(adapter_shelf_has(&shelf, "one"));
    assert_true(adapter_shelf_has(&shelf, "two"));
    assert_int_equal(adapters_known(&b, 3), 2);
    assert_int_equal(b.pages, 1);
    adapters_deactivate(&b, 3), adapters_release(&b, 3), adapters_release(&b, 3);
    assert_int_equal(adapters_known(&b, 3), 0);
    /* a name that is loaded again has another number */
    struct served_adapters *less = served_adapters_without(b.list, 1);
    assert_true(adapters_replace(&b, less));
    assert_int_equal(b.next_number, 4);
    again.number = b.next_number;
    struct served_adapters *more = served_adapters_with(less, &again);
    assert_true(adapters_replace(&b, more));
    adapter_shelf_put(&shelf, more);
    assert_int_equal(adapters_number(&b, "two"), 4);
    assert_int_equal(b.next_number, 5);
    served_adapters_release(less), served_adapters_release(more);
    adapters_activate(&b, 1), adapters_retain(&b, 1); /* not listed: no effect */
    assert_int_equal(b.pages, 0);
    assert_true(adapters_fit(&b, 4));
    adapters_retain(&b, 2), adapters_activate(&b, 2);
    assert_false(adapters_fit(&b, 4));
    /* holders of the first list still read it */
    assert_string_equal(served_adapters_find(old, "one")->path, "/from");
    assert_int_equal(served_adapters_find(old, "two")->number, 1);
    served_adapters_release(old);
    adapters_deactivate(&b, 2), adapters_release(&b, 2);
    adapters_free(&b);
    adapter_shelf_fini(&shelf);
}

int main(void) { return tests_run(NULL, NULL); }

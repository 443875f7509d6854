/* Hosts and addresses at which services exchange KV blocks. Texts are from clients. */
#include "common/net/peer_address.h"
#include "tests/unit/test.h"
#include <string.h>

TEST(hosts_are_names_or_addresses)
{
    static const char *const good[] = {"localhost", "10.0.0.1", "::1", "a-b_c.d"};
    static const char *const bad[] = {"",      "a b", "/tmp/s", "unix",  "IPv4", "[::1]",
                                      "a:b:c", "a,b", "a@b",    "a%2Fb", "dns"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(peer_host_ok(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(peer_host_ok(bad[i]));
}

TEST(ranks_are_spread_over_the_machines_in_order)
{
    char host[PEER_HOST_MOST + 1];
    for (uint32_t rank = 0; rank < 4; rank++) {
        assert_true(peer_host_of("a,b", rank, 4, host));
        assert_string_equal(host, rank < 2 ? "a" : "b");
        assert_true(peer_host_of("::1", rank, 4, host));
        assert_string_equal(host, "::1");
        assert_true(peer_host_of("a,b,c,d", rank, 4, host));
        assert_int_equal(host[0], 'a' + rank);
        assert_false(peer_host_of("a,b,c", rank, 4, host));
        assert_false(peer_host_of("a,b,c,d,e,f,g,h", rank, 4, host));
    }
}

TEST(lists_are_checked_without_ranks)
{
    char list[PEER_HOSTS_MOST + 2], host[PEER_HOST_MOST + 3];
    static const char *const bad[] = {"", ",", "a,", ",a", "a,,b", "a,unix", "a,b/c", "a, b"};
    assert_true(peer_host_of("a,10.1.2.3,fe80::1", 0, 0, NULL));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(peer_host_of(bad[i], 0, 0, NULL));
    memset(host, 'h', sizeof(host));
    host[PEER_HOST_MOST + 1] = '\0';
    assert_false(peer_host_of(host, 0, 1, host));
    host[PEER_HOST_MOST] = '\0';
    assert_true(peer_host_of(host, 0, 1, list));
    for (size_t i = 0; i < sizeof(list); i++)
        list[i] = i % 2 ? ',' : 'a';
    list[PEER_HOSTS_MOST + 1] = '\0';
    list[PEER_HOSTS_MOST] = 'a';
    assert_false(peer_host_of(list, 0, 0, NULL));
    list[PEER_HOSTS_MOST] = '\0';
    assert_true(list[PEER_HOSTS_MOST - 1] == 'a' && peer_host_of(list, 0, 0, NULL));
}

TEST(addresses_have_ports_for_all_ranks)
{
    struct peer_address a;
    struct err e = ERR_INIT;
    assert_int_equal(peer_address_parse("[::1]:65534", 2, &a, &e), 0);
    assert_string_equal(a.host, "::1");
    assert_int_equal(a.port, 65534);
    assert_int_equal(peer_address_parse("h:65534", 3, &a, &e), -1);
    static const char *const bad[] = {"h", "h:", "h:x", "h:0", ":5", "::1:5", "[h]:5", "a,b:5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        e = (struct err)ERR_INIT;
        assert_int_equal(peer_address_parse(bad[i], 1, &a, &e), -1);
    }
}

int main(void) { return tests_run(NULL, NULL); }

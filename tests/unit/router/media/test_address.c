// Which addresses an image may come from.
#include "router/media/address.h"
#include "tests/unit/test.h"
#include <arpa/inet.h>
#include <string.h>
#include <sys/un.h>

static bool allowed(const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return media_address_allowed((const struct sockaddr *)&v4);
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return media_address_allowed((const struct sockaddr *)&v6);
}

TEST(table)
{
    static const char *const yes[] = {"1.1.1.1",
                                      "8.8.8.8",
                                      "9.255.255.255",
                                      "11.0.0.0",
                                      "100.63.255.255",
                                      "100.128.0.0",
                                      "126.255.255.255",
                                      "128.0.0.0",
                                      "168.63.129.15",
                                      "168.63.129.17",
                                      "169.253.255.255",
                                      "169.255.0.0",
                                      "172.15.255.255",
                                      "172.32.0.0",
                                      "192.0.1.0",
                                      "192.167.255.255",
                                      "192.169.0.0",
                                      "198.17.255.255",
                                      "198.20.0.0",
                                      "203.0.112.255",
                                      "223.255.255.255",
                                      "2606:4700::1111",
                                      "2a00:1450:4001::1",
                                      "2001:200::1",
                                      "2001:4860:4860::8888",
                                      "2000::1",
                                      "3ffd::1",
                                      "2001:db7::1",
                                      "2001:db9::1"};
    static const char *const no[] = {"0.0.0.0",
                                     "0.1.2.3",
                                     "10.0.0.1",
                                     "10.255.255.255",
                                     "100.64.0.0",
                                     "100.100.100.200",
                                     "100.127.255.255",
                                     "127.0.0.1",
                                     "127.255.255.255",
                                     "168.63.129.16",
                                     "169.254.169.254",
                                     "169.254.0.0",
                                     "172.16.0.0",
                                     "172.31.255.255",
                                     "192.0.0.192",
                                     "192.0.2.1",
                                     "192.88.99.1",
                                     "192.168.0.1",
                                     "192.168.255.255",
                                     "198.18.0.0",
                                     "198.19.255.255",
                                     "198.51.100.7",
                                     "203.0.113.9",
                                     "224.0.0.1",
                                     "239.255.255.255",
                                     "240.0.0.1",
                                     "255.255.255.255",
                                     "::",
                                     "::1",
                                     "::127.0.0.1",
                                     "::ffff:127.0.0.1",
                                     "::ffff:8.8.8.8",
                                     "::ffff:0:1.2.3.4",
                                     "64:ff9b::8.8.8.8",
                                     "64:ff9b:1::1",
                                     "100::1",
                                     "2001::1",
                                     "2001:0:4137:9e76::1",
                                     "2001:10::1",
                                     "2001:20::1",
                                     "2001:1ff:ffff::1",
                                     "2001:db8::1",
                                     "2002:7f00:1::1",
                                     "3ffe::1",
                                     "3fff::1",
                                     "3fff:fff::1",
                                     "5f00::1",
                                     "fc00::1",
                                     "fd00:ec2::254",
                                     "fe80::1",
                                     "febf::1",
                                     "fec0::1",
                                     "ff02::1",
                                     "ffff::1",
                                     "4000::1",
                                     "2620:4f:8000::1"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        if (!allowed(yes[i]))
            fail_msg("%s is refused", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (allowed(no[i]))
            fail_msg("%s is allowed", no[i]);
}

TEST(families)
{
    struct sockaddr_un local = {.sun_family = AF_UNIX, .sun_path = "/tmp/x"};
    assert_false(media_address_allowed((const struct sockaddr *)&local));
    assert_false(media_address_is_loopback((const struct sockaddr *)&local));
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f010203)}};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    assert_true(media_address_is_loopback((const struct sockaddr *)&v4));
    assert_true(media_address_is_loopback((const struct sockaddr *)&v6));
    v4.sin_addr.s_addr = htonl(0x0a000001);
    v6.sin6_addr = in6addr_any;
    assert_false(media_address_is_loopback((const struct sockaddr *)&v4));
    assert_false(media_address_is_loopback((const struct sockaddr *)&v6));
}

int main(void) { return tests_run(NULL, NULL); }

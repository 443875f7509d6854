#include "router/media/address.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct range4 {
    uint32_t first; /* in host byte order */
    int bits;
};
#define IP4(a, b, c, d) ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (d))

/* IANA's registry of special-purpose addresses, and a public-looking one of Azure. */
static const struct range4 refused4[] = {
    {IP4(0, 0, 0, 0), 8},        /* this network */
    {IP4(10, 0, 0, 0), 8},       /* private */
    {IP4(100, 64, 0, 0), 10},    /* shared: CGNAT */
    {IP4(127, 0, 0, 0), 8},      /* loopback */
    {IP4(168, 63, 129, 16), 32}, /* Azure's platform, as seen from its machines */
    {IP4(169, 254, 0, 0), 16},   /* link-local: cloud metadata */
    {IP4(172, 16, 0, 0), 12},    /* private */
    {IP4(192, 0, 0, 0), 24},     /* protocol assignments */
    {IP4(192, 0, 2, 0), 24},     /* documentation */
    {IP4(192, 31, 196, 0), 24},  /* AS112 */
    {IP4(192, 52, 193, 0), 24},  /* AMT */
    {IP4(192, 88, 99, 0), 24},   /* 6to4 relays */
    {IP4(192, 168, 0, 0), 16},   /* private */
    {IP4(192, 175, 48, 0), 24},  /* AS112 */
    {IP4(198, 18, 0, 0), 15},    /* benchmarks */
    {IP4(198, 51, 100, 0), 24},  /* documentation */
    {IP4(203, 0, 113, 0), 24},   /* documentation */
    {IP4(224, 0, 0, 0), 4},      /* multicast */
    {IP4(240, 0, 0, 0), 4},      /* reserved, broadcast */
};

static bool allowed4(uint32_t a)
{
    for (size_t i = 0; i < sizeof(refused4) / sizeof(refused4[0]); i++)
        if ((a ^ refused4[i].first) >> (32 - refused4[i].bits) == 0)
            return false;
    return true;
}

struct range6 {
    uint8_t first[16];
    int bits;
};

/* Within 2000::/3, the only routed range. */
static const struct range6 refused6[] = {
    {{0x20, 0x01, 0x00}, 23},             /* protocol assignments, with Teredo */
    {{0x20, 0x01, 0x0d, 0xb8}, 32},       /* documentation */
    {{0x20, 0x02}, 16},                   /* 6to4 */
    {{0x26, 0x20, 0, 0x4f, 0x80, 0}, 48}, /* AS112 */
    {{0x3f, 0xfe}, 16},                   /* 6bone, returned */
    {{0x3f, 0xff}, 20},                   /* documentation */
};

static bool within6(const uint8_t a[16], const struct range6 *r)
{
    const int whole = r->bits / 8, rest = r->bits % 8;
    return memcmp(a, r->first, (size_t)whole) == 0 &&
           (!rest || (a[whole] ^ r->first[whole]) >> (8 - rest) == 0);
}

static bool allowed6(const uint8_t a[16])
{
    if ((a[0] & 0xe0) != 0x20)
        return false;
    for (size_t i = 0; i < sizeof(refused6) / sizeof(refused6[0]); i++)
        if (within6(a, &refused6[i]))
            return false;
    return true;
}

bool media_address_allowed(const struct sockaddr *a)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    switch (a->sa_family) {
    case AF_INET:
        memcpy(&v4, a, sizeof(v4));
        return allowed4(ntohl(v4.sin_addr.s_addr));
    case AF_INET6:
        memcpy(&v6, a, sizeof(v6));
        return allowed6(v6.sin6_addr.s6_addr);
    default:
        return false;
    }
}

bool media_address_is_loopback(const struct sockaddr *a)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    switch (a->sa_family) {
    case AF_INET:
        memcpy(&v4, a, sizeof(v4));
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        memcpy(&v6, a, sizeof(v6));
        return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
    default:
        return false;
    }
}

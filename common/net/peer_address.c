#include "common/net/peer_address.h"
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* gRPC reads these words before a colon as a resolver scheme. */
static bool is_scheme(const char *host)
{
    static const char *const words[] = {"unix", "unix-abstract", "dns", "ipv4",
                                        "ipv6", "vsock",         "xds", "google-c2p"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcasecmp(host, words[i]) == 0)
            return true;
    return false;
}

bool peer_host_ok(const char *host)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._";
    unsigned char v6[sizeof(struct in6_addr)];
    const size_t n = strlen(host);
    if (strchr(host, ':'))
        return inet_pton(AF_INET6, host, v6) == 1;
    return n > 0 && n <= PEER_HOST_MOST && strspn(host, allowed) == n && !is_scheme(host);
}

bool peer_host_of(const char *hosts, uint32_t rank, uint32_t ranks, char out[PEER_HOST_MOST + 1])
{
    char host[PEER_HOST_MOST + 1];
    uint32_t n = 1, i = 0;
    for (const char *p = hosts; (p = strchr(p, ',')); p++)
        n++;
    if (strlen(hosts) > PEER_HOSTS_MOST || ranks % n)
        return false;
    const uint32_t wanted = ranks ? rank / (ranks / n) : n;
    for (const char *p = hosts;; p++, i++) {
        const size_t len = strcspn(p, ",");
        if (len > PEER_HOST_MOST)
            return false;
        memcpy(host, p, len);
        host[len] = '\0';
        if (!peer_host_ok(host))
            return false;
        if (i == wanted)
            memcpy(out, host, len + 1);
        p += len;
        if (!*p)
            return true;
    }
}

int peer_address_parse(const char *text, uint32_t ranks, struct peer_address *out, struct err *e)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    const bool v6 = *text == '[' && colon > text && colon[-1] == ']';
    const char *host = v6 ? text + 1 : text;
    const size_t n = colon ? (size_t)(colon - host) - v6 : 0;
    const unsigned long port =
        colon && colon[1] >= '0' && colon[1] <= '9' ? strtoul(colon + 1, &end, 10) : 0;
    if (!end || *end || n == 0 || n > PEER_HOST_MOST)
        return err_set(e, ERR_VALIDATION, "%s: expected host:port", text);
    memcpy(out->host, host, n);
    out->host[n] = '\0';
    out->port = (uint32_t)port;
    if (!peer_host_ok(out->host) || !v6 != !strchr(out->host, ':'))
        return err_set(e, ERR_VALIDATION, "%s: not a valid host", text);
    if (port == 0 || port + ranks - 1 > UINT16_MAX)
        return err_set(e, ERR_VALIDATION, "%s: %u ports are needed from %lu on", text, ranks, port);
    return 0;
}

/* Checks of the flags of cluster.h that need neither file nor network. */
#include "common/net/cluster.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

static bool given(const char *s) { return s && *s; }

enum cluster_kind cluster_kind_of(const struct cluster_options *o)
{
    return given(o->cert) ? CLUSTER_TLS : given(o->secret_file) ? CLUSTER_SECRET : CLUSTER_OPEN;
}

int cluster_flags_check(const struct cluster_options *o, struct err *e)
{
    const int n = given(o->cert) + given(o->key) + given(o->ca);
    if (n && n < 3)
        return err_set(
            e, ERR_VALIDATION,
            "--cluster-cert, --cluster-key and --cluster-ca: one is missing, all three are needed");
    if (n && given(o->secret_file))
        return err_set(e, ERR_VALIDATION,
                       "--cluster-cert and --cluster-secret-file: give one of them");
    return 0;
}

/* Host of "tcp://host:port", "host:port", "[host]:port" or "host". */
static void host_of(const char *address, char *out, size_t cap)
{
    size_t n;
    if (!strncmp(address, "tcp://", 6))
        address += 6;
    if (*address == '[') {
        n = strcspn(++address, "]");
    } else {
        const char *colon = strchr(address, ':');
        n = colon && !strchr(colon + 1, ':') ? (size_t)(colon - address) : strlen(address);
    }
    snprintf(out, cap, "%.*s", (int)n, address);
}

bool cluster_is_local(const char *address)
{
    struct in_addr v4;
    struct in6_addr v6;
    char host[256];
    if (!strncmp(address, "unix:", 5) || *address == '/' || *address == '.')
        return true;
    host_of(address, host, sizeof(host));
    if (inet_pton(AF_INET, host, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return !strcmp(host, "localhost");
}

int cluster_allows(enum cluster_kind kind, const char *address, struct err *e)
{
    if (kind != CLUSTER_OPEN || cluster_is_local(address))
        return 0;
    return err_set(e, ERR_VALIDATION,
                   "%s is not a loopback address: give --cluster-cert, --cluster-key and "
                   "--cluster-ca, or --cluster-secret-file",
                   address);
}

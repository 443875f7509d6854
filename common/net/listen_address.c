#include "common/net/listen_address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

bool listen_addresses(const char *hostname, struct listen_addresses *out)
{
    unsigned char any[sizeof(struct in6_addr)];
    const size_t n = strlen(hostname);
    const bool brackets = n > 2 && hostname[0] == '[' && hostname[n - 1] == ']';
    const size_t inner = brackets ? n - 2 : n;
    *out = (struct listen_addresses){.n = 1};
    if (!strcmp(hostname, "localhost")) {
        out->n = 2;
        strcpy(out->at[0], "127.0.0.1");
        strcpy(out->at[1], "::1");
        return true;
    }
    if (inner >= LISTEN_TEXT)
        return false;
    memcpy(out->at[0], hostname + brackets, inner);
    return inet_pton(AF_INET6, out->at[0], any) == 1 ||
           (!brackets && inet_pton(AF_INET, out->at[0], any) == 1);
}

bool listen_address_absent(int why) { return why == EAFNOSUPPORT || why == EADDRNOTAVAIL; }

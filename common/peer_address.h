/* peer_address.h - address at which another service's shards exchange KV blocks; rank r uses port +
 * r. Pure. */
#ifndef COMMON_PEER_ADDRESS_H
#define COMMON_PEER_ADDRESS_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { PEER_HOST_MOST = 253 };
struct peer_address {
    char host[PEER_HOST_MOST + 1];
    uint32_t port;
};
/* True for a name of letters, digits, '-', '_' and '.', or an IP address without brackets. The text
 * is from clients: it must be safe wherever it is passed on, such as in a path. */
bool peer_host_ok(const char *host);
/* Parses "host:port" or "[address]:port"; `ranks` ports must be valid from there on.
 * ERR_VALIDATION. */
int peer_address_parse(const char *text, uint32_t ranks, struct peer_address *out, struct err *e);
#endif

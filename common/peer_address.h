/* peer_address.h - where another service's shards exchange KV blocks: rank r on port + r. Pure. */
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
/* A name of letters, digits, '-', '_' and '.', or an address without brackets. From clients: it is
 * nothing else to whom it is handed on, such as a path. */
bool peer_host_ok(const char *host);
/* "host:port" or "[address]:port", with `ranks` ports from that one on; ERR_VALIDATION. */
int peer_address_parse(const char *text, uint32_t ranks, struct peer_address *out, struct err *e);
#endif

/* peer_address.h - address at which another service's shards exchange KV blocks; rank r uses port +
 * r. A service on several machines has a list of hosts, "a,b": the machines in the order of their
 * ranks, each with equally many. Pure. */
#ifndef COMMON_PEER_ADDRESS_H
#define COMMON_PEER_ADDRESS_H
#include "common/err.h"
#include <stdbool.h>
#include <stdint.h>

enum { PEER_HOST_MOST = 253, PEER_HOSTS_MOST = 1023 };
struct peer_address {
    char host[PEER_HOST_MOST + 1];
    uint32_t port;
};
struct peer_hosts {
    char hosts[PEER_HOSTS_MOST + 1]; /* a list; "": none */
    uint32_t port;                   /* of rank 0; rank r uses port + r */
};
/* True for a name of letters, digits, '-', '_' and '.', or an IP address without brackets. The text
 * is from clients: it must be safe wherever it is passed on, such as in a path. */
bool peer_host_ok(const char *host);
/* Copies the host of `rank` of `ranks` from a list. False: a host of it is not valid, or `ranks` is
 * not a multiple of their number. `ranks` 0: the list is checked, and nothing is copied. */
bool peer_host_of(const char *hosts, uint32_t rank, uint32_t ranks, char out[PEER_HOST_MOST + 1]);
/* Parses "host:port" or "[address]:port"; `ranks` ports must be valid from there on.
 * ERR_VALIDATION. */
int peer_address_parse(const char *text, uint32_t ranks, struct peer_address *out, struct err *e);
#endif

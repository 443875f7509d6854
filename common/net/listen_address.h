/* listen_address.h - the addresses at which a server listens for a --hostname. Pure. */
#ifndef COMMON_LISTEN_ADDRESS_H
#define COMMON_LISTEN_ADDRESS_H
#include <stdbool.h>
#include <stdint.h>

enum { LISTEN_MOST = 2, LISTEN_TEXT = 46 };
struct listen_addresses {
    char at[LISTEN_MOST][LISTEN_TEXT]; /* IP addresses without brackets */
    uint32_t n;
};
/* Reads an IP address, with or without brackets, or `localhost`: 127.0.0.1 and ::1, because clients
 * try either first. "::" alone is both families on one socket. False: a name. */
bool listen_addresses(const char *hostname, struct listen_addresses *out);
/* Does errno say that this machine has no such address, as ::1 where IPv6 is off? */
bool listen_address_absent(int why);
#endif

/* address.h - addresses that images may be fetched from: public ones (protection against SSRF). */
#ifndef ROUTER_MEDIA_ADDRESS_H
#define ROUTER_MEDIA_ADDRESS_H
#include <stdbool.h>
#include <sys/socket.h>

/* False for loopback, private, link-local, shared (CGNAT), documentation, benchmark, multicast and
 * reserved ranges, for addresses of cloud platforms, for IPv6 that embeds IPv4 (mapped, compatible,
 * NAT64, 6to4, Teredo), and for families other than IPv4 and IPv6. */
bool media_address_allowed(const struct sockaddr *a);
bool media_address_is_loopback(const struct sockaddr *a); /* 127/8 and ::1 */
#endif

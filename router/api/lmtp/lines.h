/* lines.h - LMTP's messages as lines, for --lmtp-listen. */
#ifndef ROUTER_API_LMTP_LINES_H
#define ROUTER_API_LMTP_LINES_H
#include "router/http/wire.h"

/* A wire whose messages are lines of at most `max` bytes. NULL: out of memory. */
struct wire *lines_new(int fd, size_t max, const struct wire_owner *owner);
#endif

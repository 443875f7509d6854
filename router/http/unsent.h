/* unsent.h - bytes of a connection that the kernel has not delivered yet. */
#ifndef ROUTER_HTTP_UNSENT_H
#define ROUTER_HTTP_UNSENT_H

/* Bytes of a TCP or Unix socket that the peer's kernel has not acknowledged. 0 if the connection is
 * closed or cannot be queried. Any thread. */
int unsent(int fd);
#endif

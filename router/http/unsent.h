/* unsent.h - what the kernel still has to send of a connection. */
#ifndef ROUTER_HTTP_UNSENT_H
#define ROUTER_HTTP_UNSENT_H

/* Bytes of a TCP or Unix socket that the peer's kernel has not acknowledged; 0 where the connection
 * is over or cannot be asked. Any thread. */
int unsent(int fd);
#endif

/* lmtp.h - LMTP, lmql's token protocol, on the router's port.
 *
 * One thread with one epoll serves all connections: WebSockets handed over by the HTTP loop, and
 * lines on a socket of their own (--lmtp-listen). It parses and checks messages and passes token
 * ids directly to the scheduler. The tokens of one step for one connection are sent in one frame.
 * docs/lmtp.md specifies the protocol. */
#ifndef ROUTER_API_LMTP_LMTP_H
#define ROUTER_API_LMTP_LMTP_H
#include "router/models/edge.h"

struct lmtp;

/* Opens the listening socket of g->config. NULL: the address is in use, or another error. */
struct lmtp *lmtp_new(struct edge *g, struct err *e);
int lmtp_start(struct lmtp *l, struct err *e); /* starts the thread */
/* For http_events.socket: takes ownership of a WebSocket; `edge` is the struct edge. Any thread. */
void lmtp_adopt(void *edge, struct http_socket *s);
/* Sends an error item to every open stream and a close frame to every connection, and joins the
 * thread. The HTTP loop must still run, to close the sockets. */
void lmtp_stop(struct lmtp *l);
/* After the HTTP loop and the scheduler have ended, and before http_free(). NULL is allowed. */
void lmtp_free(struct lmtp *l);
uint32_t lmtp_peers(const struct lmtp *l); /* number of connections; any thread */
#endif

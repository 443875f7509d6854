/* lmtp.h - LMTP, lmql's token protocol, beside HTTP on the router's port.
 *
 * One thread and one epoll carry all connections: WebSockets that the HTTP side hands over, and
 * lines on a socket of their own (--lmtp-listen). A message is parsed and checked here, its token
 * ids go straight to the scheduler, and what a step of the model yields for one connection leaves
 * in one frame. docs/lmtp.md is the protocol. */
#ifndef ROUTER_API_LMTP_LMTP_H
#define ROUTER_API_LMTP_LMTP_H
#include "router/models/edge.h"

struct lmtp;

/* Listens where g->config says; an occupied address is reported here. */
struct lmtp *lmtp_new(struct edge *g, struct err *e);
int lmtp_start(struct lmtp *l, struct err *e); /* the thread */
/* http_events.socket: takes over a WebSocket; `edge` is the struct edge. Any thread. */
void lmtp_adopt(void *edge, struct http_socket *s);
/* Every stream that is still open gets an error item and every connection a goodbye; joins the
 * thread. The HTTP loop must still run, to take its sockets back. */
void lmtp_stop(struct lmtp *l);
/* When the HTTP loop and the scheduler have ended, but before http_free(). NULL is fine. */
void lmtp_free(struct lmtp *l);
uint32_t lmtp_peers(const struct lmtp *l); /* connections; any thread */
#endif

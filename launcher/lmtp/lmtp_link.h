/* lmtp_link.h - client side of an LMTP connection: messages over a WebSocket, or lines over a Unix
 * socket. Blocking; one thread. */
#ifndef LAUNCHER_LMTP_LINK_H
#define LAUNCHER_LMTP_LINK_H
#include "common/buf.h"
#include "common/err.h"

struct lmtp_link {
    int fd;
    bool lines;
    struct buf in; /* received, not consumed yet */
};

/* `where`: "host:port" (WebSocket) or "unix:/path" (lines). `key`: NULL, or the API key. */
int lmtp_link_open(struct lmtp_link *l, const char *where, const char *key, struct err *e);
int lmtp_link_send(struct lmtp_link *l, const char *message, size_t n, struct err *e);
/* Receives the next message into `out`, replacing its content. Answers pings. */
int lmtp_link_receive(struct lmtp_link *l, struct buf *out, struct err *e);
void lmtp_link_close(struct lmtp_link *l);
#endif

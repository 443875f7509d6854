/* accept.h - the answer to a WebSocket client's key (RFC 6455, 4.2.2). Pure. */
#ifndef ROUTER_HTTP_ACCEPT_H
#define ROUTER_HTTP_ACCEPT_H
#include <stdbool.h>

enum { WS_ACCEPT_LEN = 28 };

/* `key`: the value of Sec-WebSocket-Key. False: it is not base64 of 16 bytes. */
bool ws_accept(const char *key, char out[WS_ACCEPT_LEN + 1]);
#endif

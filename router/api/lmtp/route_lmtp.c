#include "router/call/call.h"

/* Only for plain HTTP: a WebSocket handshake is handled in router/http/socket.c. */
static void reply(struct call *c)
{
    c->status = 426;
    c->type = "text/plain; charset=utf-8";
    exchange_add(c->x, "upgrade", "websocket");
    buf_str(&c->out, "LMTP is spoken over WebSocket here");
    call_reply(c);
}

const struct route route_lmtp = {
    .method = "GET",
    .paths = {"/lmtp"},
    .summary = "With `Upgrade: websocket`: LMTP, many streams of tokens on one connection "
               "(`lmtp.md`); also on `/`.",
    .refuses = true, /* HTTP; the handshake is no operation of OpenAPI */
    .reply = reply,
};

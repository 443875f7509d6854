#include "router/call/call.h"

extern const struct route route_responses;

/* Only for plain HTTP: the handshake of a WebSocket is handled in router/http/socket.c. */
static void reply(struct call *c)
{
    c->status = 426;
    exchange_add(c->x, "upgrade", "websocket");
    error_refusal(&c->out, c->errors, c->status,
                  "Responses are made by POST here, or over a WebSocket.", c->id);
    call_reply(c);
}

const struct route route_responses_socket = {
    .method = "GET",
    .paths = {"/v1/responses"},
    .errors = ERRORS_OPENAI_MESSAGE,
    .summary =
        "With `Upgrade: websocket`: responses as messages, one after the other. The client sends "
        "`response.create` with the body of the route beside `type`, and receives the events of "
        "its stream. The last response can be continued by `previous_response_id` without a "
        "store; `generate: false` computes the prompt alone.",
    .access = ACCESS_KEY,
    .refuses = true, /* HTTP; messages are no operation of OpenAPI */
    .reply = reply,
    .messages = &route_responses,
};

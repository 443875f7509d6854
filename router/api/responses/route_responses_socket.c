/* Only a handshake: router/http/socket.c takes it, and plain HTTP answers 405. */
#include "router/http/route.h"

extern const struct route route_responses;

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
    .messages = &route_responses,
};

/* render.h - a prompt as the model would read it, without generating: for gateways that choose a
 * replica by the tokens of a prompt. */
#ifndef ROUTER_CALL_RENDER_H
#define ROUTER_CALL_RENDER_H
#include "router/call/call.h"

/* Append {"token_ids":[..],"prompt":text} to c->out: the ids that a generation would be given.
 * What a generation would be refused for is refused. Worker thread. ERR_VALIDATION. */
int render_ask(struct call *c, const struct ask *q, struct err *e);
#endif

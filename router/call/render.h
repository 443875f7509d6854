/* render.h - renders a prompt to token ids without generating, for gateways that route requests by
 * the tokens of a prompt. */
#ifndef ROUTER_CALL_RENDER_H
#define ROUTER_CALL_RENDER_H
#include "router/call/call.h"

/* Appends {"token_ids":[..],"prompt":text} to c->out: the ids a generation would get. Refuses what
 * a generation would be refused for. Worker thread. ERR_VALIDATION. */
int render_ask(struct call *c, const struct ask *q, struct err *e);
#endif

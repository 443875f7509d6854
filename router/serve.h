/* serve.h - starts the router, waits for signals, and stops it in order.
 *
 * Start: model folder, tokenizer, chat template; the port (if it is in use, one log line and exit);
 * HTTP, which answers 503 on /health and 200 on /livez; shards and warm-up; then /health is 200.
 * SIGTERM or SIGINT: /health is 503, new requests are refused, running ones finish, exit 0. A
 * second signal ends them at once. A lost shard: one log line, exit 1. */
#ifndef ROUTER_SERVE_H
#define ROUTER_SERVE_H
#include "router/flags.h"

/* 0: stopped on request; -1: `e` says why it could not start or continue. */
int serve(const struct router_config *c, struct err *e);
#endif

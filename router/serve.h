/* serve.h - build everything, wait for signals, take it down in order.
 *
 * Order of start: model folder, tokenizer, chat template; port (an occupied one is one line and an
 * exit); HTTP, which answers 503 on /health and 200 on /livez; shards, warm-up; then /health is
 * 200. SIGTERM or SIGINT: /health is 503, new requests are refused, running ones finish, exit 0. A
 * second signal: at once. A shard that is lost: one line, exit 1. */
#ifndef ROUTER_SERVE_H
#define ROUTER_SERVE_H
#include "router/flags.h"

/* 0: asked to stop and stopped; -1: `e` says why it could not start or go on. */
int serve(const struct router_config *c, struct err *e);
#endif

/* embed.h - Cohere's embed API, versions 1 and 2, also vLLM's: vectors of several types at once.
 *
 * Follows the public API reference of `POST /v2/embed` and `POST /v1/embed`. int8 and uint8 are
 * refused: no checkpoint has their ranges. */
#ifndef ROUTER_API_COHERE_EMBED_H
#define ROUTER_API_COHERE_EMBED_H
#include "router/call/embed_body.h"

/* Parses the body and starts the computation. In version 1 an answer without `embedding_types` is a
 * list of vectors. Worker thread. */
int cohere_embed(struct call *c, int version, struct err *e);
#endif

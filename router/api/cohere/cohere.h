/* cohere.h - Cohere's rerank, as Jina and vLLM have it too. */
#ifndef ROUTER_API_COHERE_COHERE_H
#define ROUTER_API_COHERE_COHERE_H
#include "router/call/embed_body.h"

/* A body with `documents`. Worker. */
int cohere_rerank(struct call *c, struct body *b, struct err *e);
#endif

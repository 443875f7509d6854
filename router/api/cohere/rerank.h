/* rerank.h - Cohere's rerank API, also used by Jina and vLLM. */
#ifndef ROUTER_API_COHERE_RERANK_H
#define ROUTER_API_COHERE_RERANK_H
#include "router/call/embed_body.h"

/* The tasks of models that rank documents. */
enum { COHERE_RERANKS = 1u << TASK_RERANK | 1u << TASK_EMBED | 1u << TASK_TOKEN_EMBED };
/* Parses a body with `documents` and starts the computation. Worker thread. */
int cohere_rerank(struct call *c, struct body *b, struct err *e);
#endif

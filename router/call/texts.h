/* texts.h - several prompts in, their texts out: what the batch protocols of model servers ask
 * (Vertex AI's predict, KServe's infer). */
#ifndef ROUTER_CALL_TEXTS_H
#define ROUTER_CALL_TEXTS_H
#include "router/body/body.h"
#include "router/call/call.h"

struct texts { /* zero-initialise; in the call's arena */
    struct ask *asks;
    uint32_t n;
    /* Writes the answer: the text of the i-th prompt is c->gen[i].answer.text. */
    void (*write)(struct call *c, const struct texts *t);
    void *state; /* the protocol's own */
};

/* Room for `n` prompts. -1: the body has been failed, as more than --max-client-batch-size of them
 * or none do. */
int texts_begin(struct call *c, struct body *b, const char *key, int n, struct texts *t);
/* Make the generations. */
int texts_generate(struct call *c, struct texts *t, struct err *e);
#endif

/* texts.h - several prompts in, their texts out: the batch protocols of model servers (Vertex AI's
 * predict, KServe's infer). */
#ifndef ROUTER_CALL_TEXTS_H
#define ROUTER_CALL_TEXTS_H
#include "router/body/body.h"
#include "router/call/call.h"

struct texts { /* zero-initialise; in the call's arena */
    struct ask *asks;
    uint32_t n;
    /* Writes the answer; the text of the i-th prompt is c->gen[i].answer.text. */
    void (*write)(struct call *c, const struct texts *t);
    void *state; /* owned by the protocol */
};

/* Allocates `n` prompts. -1: the body was failed, also for none or more than
 * --max-client-batch-size. */
int texts_begin(struct call *c, struct body *b, const char *key, int n, struct texts *t);
/* Creates the generations. */
int texts_generate(struct call *c, struct texts *t, struct err *e);
#endif

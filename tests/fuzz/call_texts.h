/* call_texts.h - in place of router/call/texts.c: keeps what a body asks for, and computes nothing.
 */
#ifndef TESTS_FUZZ_CALL_TEXTS_H
#define TESTS_FUZZ_CALL_TEXTS_H
#include "router/call/embed_impl.h"

static struct texts_ask asked;
static struct call_texts texts;

int call_texts_task(const struct call *c, unsigned tasks, struct err *e)
{
    (void)c, (void)tasks, (void)e;
    return 0;
}
int call_texts(struct call *c, const struct texts_ask *q, unsigned tasks,
               int (*render)(struct call *c, struct err *e), void *state, struct err *e)
{
    (void)tasks, (void)e;
    asked = *q;
    texts = (struct call_texts){.call = c, .render = render, .state = state};
    c->texts = &texts;
    return 0;
}
#endif

/* fit.h - chooses the messages to drop if a conversation exceeds the context. Pure.
 *
 * The oldest are dropped first; system messages and the last message stay. A cut is the index of
 * the first message that is kept: all before it are dropped, except those of the role `system`. */
#ifndef ROUTER_API_OPENAI_FIT_H
#define ROUTER_API_OPENAI_FIT_H
#include "router/api/openai/chat_completion.h"

/* Lists the cuts at which a conversation may begin, in order, without the first message. With
 * `turns` these are user messages, since many templates require one first. Otherwise all but tool
 * results, whose call would be missing. `out` has space for all messages. Returns the count. */
uint32_t fit_cuts(const cJSON *messages, bool turns, uint32_t *out);
/* The kept messages, as references into `messages`, which must outlive it. NULL: out of memory. */
cJSON *fit_cut(const cJSON *messages, uint32_t at);

/* Renders `messages` so that the prompt has at most `most` tokens, with the fewest messages
 * dropped. If no cut is enough, renders all. `render` writes the prompt to r->openai->asks. */
typedef int fit_render(void *of, const cJSON *messages, struct err *e);
int fit_prompt(struct call *c, const cJSON *messages, const struct ask *q, uint32_t most,
               fit_render *render, void *of, struct err *e);
#endif

/* fit.h - which messages go where a conversation is longer than the model can read. Pure.
 *
 * The oldest go first, and the last one never; what the system says stays. A cut is the index of
 * the first message that stays for sure: all before it go, but those of the role `system`. */
#ifndef ROUTER_API_OPENAI_FIT_H
#define ROUTER_API_OPENAI_FIT_H
#include "router/api/openai/chat_completion.h"

/* At which messages a conversation may begin, in order, the first one left out: with `turns` those
 * of users, since many templates know no other beginning; else all but results of tools, whose call
 * would be missing. Into out[], which has room for all messages; returns how many. */
uint32_t fit_cuts(const cJSON *messages, bool turns, uint32_t *out);
/* What is left, as references into `messages`, which must outlive it. NULL without memory. */
cJSON *fit_cut(const cJSON *messages, uint32_t at);

/* Renders `messages` so that the prompt has at most `most` tokens, with as few of them gone as that
 * takes; where nothing helps, with all of them there. `render` makes the prompt in r->openai->asks.
 */
typedef int fit_render(void *of, const cJSON *messages, struct err *e);
int fit_prompt(struct call *c, const cJSON *messages, const struct ask *q, uint32_t most,
               fit_render *render, void *of, struct err *e);
#endif

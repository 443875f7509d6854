/* convert.h - what other bodies share on their way to a body of chat completions, which is what
 * chat templates know. */
#ifndef ROUTER_CHAT_CONVERT_H
#define ROUTER_CHAT_CONVERT_H
#include "router/body.h"

/* `tools` of the body, each turned by `one` (which fails the body for what it cannot turn), as
 * chat's. False: there are none. */
bool convert_tools(struct body *b, struct object root, cJSON *chat,
                   cJSON *(*one)(struct body *b, struct object root, const cJSON *given));
void convert_named_choice(cJSON *chat, const char *function); /* tool_choice: this one */
#endif

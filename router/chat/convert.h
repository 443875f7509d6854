/* convert.h - what other bodies share on their way to a body of chat completions, which is what
 * chat templates know. */
#ifndef ROUTER_CHAT_CONVERT_H
#define ROUTER_CHAT_CONVERT_H
#include "common/buf.h"
#include "router/body/body.h"

/* `tools` of the body, each turned by `one`, as chat's. `one` answers a tool, an array of tools, or
 * NULL for what is to be left out; it fails the body for what it cannot turn. False: none is left.
 */
bool convert_tools(struct body *b, struct object root, cJSON *chat,
                   cJSON *(*one)(struct body *b, struct object root, const cJSON *given));
void convert_named_choice(cJSON *chat, const char *function); /* tool_choice: this one */
/* Append a line "[NAME JSON]": what a tool of another server was asked, or what it gave. Members
 * that only that server can read (`encrypted_*`) are left out. */
void convert_foreign(const char *name, const cJSON *value, struct buf *out);
#endif

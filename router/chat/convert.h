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
/* The content of a message under way: text, and pictures between it. Zero is empty. */
struct convert_content {
    struct buf text; /* behind the last picture */
    cJSON *parts;    /* NULL: there was no picture */
};
/* A picture behind what is there; takes `part` (picture_part()), NULL: out of memory. */
void convert_picture(struct convert_content *c, cJSON *part);
bool convert_empty(const struct convert_content *c);
/* As the `content` of `m`, a string or a list of parts; `c` is empty then. False: no memory. */
bool convert_put(struct convert_content *c, cJSON *m);
void convert_clear(struct convert_content *c);
void convert_named_choice(cJSON *chat, const char *function); /* tool_choice: this one */
/* Append a line "[NAME JSON]": what a tool of another server was asked, or what it gave. Members
 * that only that server can read (`encrypted_*`) are left out. */
void convert_foreign(const char *name, const cJSON *value, struct buf *out);
#endif

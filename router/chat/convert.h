/* convert.h - helpers to convert other protocols' bodies to chat completion bodies, which chat
 * templates read. */
#ifndef ROUTER_CHAT_CONVERT_H
#define ROUTER_CHAT_CONVERT_H
#include "common/buf.h"
#include "router/body/body.h"

/* Converts `tools` of the body with `one`. `one` returns a tool, an array of tools, or NULL to omit
 * it, and fails the body for what it cannot convert. False: none is left. */
bool convert_tools(struct body *b, struct object root, cJSON *chat,
                   cJSON *(*one)(struct body *b, struct object root, const cJSON *given));
/* Accumulates the content of a message: text, with images in between. Zero is empty. */
struct convert_content {
    struct buf text; /* after the last image */
    cJSON *parts;    /* NULL: no image yet */
};
/* Appends an image; takes ownership of `part` (picture_part()). NULL: out of memory. */
void convert_picture(struct convert_content *c, cJSON *part);
bool convert_empty(const struct convert_content *c);
/* Sets the `content` of `m`, a string or a list of parts, and empties `c`. False: out of memory. */
bool convert_put(struct convert_content *c, cJSON *m);
/* Appends a message with this content to `list`, which owns the result, and empties `c`. Fails the
 * body with `key` if it returns NULL. */
cJSON *convert_add(struct body *b, const char *key, cJSON *list, const char *role,
                   struct convert_content *c);
void convert_clear(struct convert_content *c);
/* sets tool_choice to this function */
void convert_named_choice(cJSON *chat, const char *function);
/* Sets the variables by which templates turn reasoning on or off, except those that are set. */
void convert_switch(cJSON *variables, bool on);
/* The same in the `chat_template_kwargs` of `chat`, which has none yet. */
void convert_thinking(cJSON *chat, bool on);
/* Appends a line "[NAME JSON]" for a call, or a result, of another server's tool. Members that only
 * that server can read (`encrypted_*`) are omitted. */
void convert_foreign(const char *name, const cJSON *value, struct buf *out);
#endif

/* tools.h - the functions that a chat request offers, and whether one must be called. */
#ifndef ROUTER_CHAT_TOOLS_H
#define ROUTER_CHAT_TOOLS_H
#include "router/body/body.h"
#include "router/chat/chat.h"
#include "router/chat/reply.h"

struct tools {
    const cJSON *list; /* [n > 0]; NULL: none may be called */
    const char **names;
    uint32_t n;
    bool forced;  /* the answer is a call */
    bool several; /* a forced answer may be several calls */
    bool single;  /* no answer may: parallel_tool_calls is false */
    const char *prompt;
};

/* `tools`, `tool_choice`, `tool_prompt`, `parallel_tool_calls`. ERR_SHAPE in the body; ERR_TOOL: -1
 * with `e` set. */
int tools_read(struct body *b, struct object root, struct tools *t, struct err *e);
/* The schema of an answer that is nothing but calls. Caller deletes; NULL: out of memory. */
cJSON *tools_schema(const struct tools *t, const char *arguments);
/* Are the arguments of this one to be kept to its schema (`strict`)? */
bool tools_strict(const cJSON *tool);
bool tools_any_strict(const struct tools *t);
/* The schema of one call in an answer that may have some: the arguments of those that are strict,
 * any object for the others. Caller deletes. */
cJSON *tools_schema_of_call(const struct tools *t, const char *arguments);
/* What a parameter of a function in `list` (struct tools) may be: REPLY_* bits, 0: not known. */
unsigned tools_types(const void *list, const char *function, const char *parameter);
/* What is said to a model whose template does not show tools: TGI's words, behind the user's last
 * message. */
void tools_text(const struct tools *t, bool template_shows_them, struct buf *out);
#endif

/* tools.h - the functions offered by a chat request, and whether one must be called. */
#ifndef ROUTER_CHAT_TOOLS_H
#define ROUTER_CHAT_TOOLS_H
#include "router/body/body.h"
#include "router/chat/chat.h"
#include "router/chat/custom.h"
#include "router/chat/reply.h"

struct tools {
    const cJSON *list; /* [n > 0]; NULL: no function may be called */
    const char **names;
    uint32_t n;
    bool forced;  /* the answer must be a call */
    bool several; /* a forced answer may be several calls */
    bool single;  /* at most one call: parallel_tool_calls is false */
    const char *prompt;
    /* For each of `list` the grammar of its input; NULL: none that can be enforced. */
    const cJSON **grammars;
    struct custom_tools custom; /* those of `list` that the request declares as custom */
    /* Must be called and has a grammar: the answer is its input, and `list` is NULL. NULL: none */
    const cJSON *answer;
};

/* Reads `tools`, `tool_choice`, `tool_prompt`, `parallel_tool_calls`. Custom tools become functions
 * in t->list. ERR_SHAPE fails the body; ERR_TOOL: -1 with `e` set. */
int tools_read(struct body *b, struct object root, struct tools *t, struct err *e);
/* The schema of an answer that consists of calls only. Caller deletes; NULL: out of memory. */
cJSON *tools_schema(const struct tools *t, const char *arguments);
/* Must its arguments conform to its schema (`strict`)? */
bool tools_strict(const cJSON *tool);
/* Is any of them strict, or a custom one with a grammar? */
bool tools_any_bound(const struct tools *t);
/* Warns of the grammars, which calls of this model cannot be held to. */
void tools_warn_unbound(struct body *b, const struct tools *t);
/* The schema of one call in an answer that may contain calls: strict tools get their own arguments,
 * custom ones with a grammar that of its texts, others any object. Caller deletes. */
cJSON *tools_schema_of_call(const struct tools *t, const char *arguments);
/* The types of a parameter of a function in `list` (struct tools): REPLY_* bits; 0: unknown. */
unsigned tools_types(const void *list, const char *function, const char *parameter);
/* Appends the tools as text for a template that does not render them: TGI's wording, after the
 * user's last message. */
void tools_text(const struct tools *t, bool template_shows_them, struct buf *out);
#endif

/* custom.h - custom tools: they take a text, which may have to follow a grammar.
 *
 * Chat templates know functions only. So a custom tool is rendered as a function with the single
 * argument `input`, and its calls are converted in both directions. `tool` below is an entry of
 * `tools`: {"type": "custom", "custom": {"name", "description", "format"}}, or, as in OpenAI's
 * Responses, with these members in the entry itself. Pure. */
#ifndef ROUTER_CHAT_CUSTOM_H
#define ROUTER_CHAT_CUSTOM_H
#include "common/buf.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

struct custom_tools {
    const char **names; /* [n] */
    uint32_t n;
    const char *forced; /* the answer is the input of this one; NULL: none */
};

/* A tool of type `custom`, whose input is text. */
bool custom_is(const cJSON *tool);
/* The object with the members of a custom tool. */
const cJSON *custom_members(const cJSON *tool);
/* {"syntax", "definition"}; NULL: any text. */
const cJSON *custom_grammar(const cJSON *tool);
/* The fault of the `format` (a static string), or NULL. */
const char *custom_check(const cJSON *tool);
/* The function by which templates render it. NULL: out of memory. The caller deletes it. */
cJSON *custom_as_function(const cJSON *tool);
bool custom_named(const struct custom_tools *t, const char *name);

/* Replaces calls of custom tools in the `tool_calls` of a message by calls of the functions. -1:
 * out of memory. */
int custom_settle_calls(cJSON *message);
/* Asks in the last user message, or in a new one behind the last message, for the input of this
 * tool and nothing else. -1: out of memory. */
int custom_ask(cJSON *messages, const cJSON *tool);

/* Reads the input out of the arguments of a call while these arrive. */
struct custom_reader { /* zero is the start */
    size_t at;         /* bytes read */
    int state;
};
/* Appends to `out` what is new in the arguments [n], which have only grown since the last call. */
void custom_read(struct custom_reader *r, const char *arguments, size_t n, struct buf *out);
/* The same at the end of the call: arguments of another form than {"input": text} are read, too. If
 * they have no such member, they are the input themselves. */
void custom_read_end(struct custom_reader *r, const char *arguments, size_t n, struct buf *out);
#endif

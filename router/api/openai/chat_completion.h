/* chat_completion.h - a chat request read, and a chat answer written. */
#ifndef ROUTER_API_OPENAI_CHAT_COMPLETION_H
#define ROUTER_API_OPENAI_CHAT_COMPLETION_H
#include "router/api/openai/openai.h"
#include "router/chat/reply.h"
#include "router/chat/tools.h"

struct chat_request {
    struct openai *openai;
    struct tools tools;
    const struct chat *chat; /* whose template renders it: the model's, or the request's */
    struct chat_style style;
    struct reply_config reply; /* how the answer is taken apart */
    enum chat_ending ending;
    bool split, hide_reasoning;
    uint32_t fit; /* drop the oldest messages until the prompt has at most so many tokens; 0: no */
    bool old;     /* calls are told as `function_call` */
    /* With tools: the format of an answer that is no call; NULL: none. */
    const char *format, *format_or_calls;
    enum constraint_kind format_kind;
};

/* Body -> prompt and sampling, in o->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION, ERR_TOOL,
 * ERR_TEMPLATE. */
int chat_request_parse(struct call *c, struct chat_request *r, struct err *e);
/* Make the generations and choose the format. */
int chat_generate(struct call *c, const struct chat_request *r, struct err *e);

/* The part that all routes of conversations have in common. `chat` has the members `messages`,
 * `tools`, `tool_choice`, `parallel_tool_calls`, `tool_prompt` and `chat_template_kwargs` as
 * OpenAI's clients send them, and must live as long as the call; r->openai and its ask are there,
 * with the constraint of the answer. Fills the prompt and the way in which the answer is read. */
int chat_prepare(struct call *c, struct body *b, struct object chat, struct chat_request *r,
                 struct err *e);
/* The same for a tree of the caller's, which is freed with the call, whatever comes of it. */
int chat_prepare_tree(struct call *c, struct body *b, cJSON *chat, struct chat_request *r,
                      struct err *e);

/* functions.c: does the body speak of `functions`? Then its parts as chat_prepare_tree() wants
 * them.
 */
bool chat_is_old(struct object root);
cJSON *chat_from_old(struct body *b, struct object root);

/* answer_parts.c: answers that are taken apart, o->parts[i] for each generation */
struct chat_part;
int chat_parts_new(struct call *c, const struct chat_request *r, struct err *e);
/* May set g->enough. */
void chat_parts_take(struct openai *o, struct generation *g, const struct gen_event *ev);
/* "role" and what is new since the last delta; false: nothing is. */
bool chat_parts_delta(struct openai *o, const struct generation *g, struct buf *out);
void chat_parts_message(const struct openai *o, const struct generation *g, struct buf *out);
bool chat_parts_called(const struct openai *o, const struct generation *g);
/* Call `watch` behind every byte that the reader of the answer takes (`n` is 1), and at the end
 * (0).
 */
typedef void (*reply_watch)(void *of, const struct reply *r, size_t n);
void chat_parts_watch(struct openai *o, const struct generation *g, reply_watch watch, void *of);
/* The finish_reason. */
const char *chat_parts_finish(const struct openai *o, const struct generation *g);
/* For formats that tell the pieces in order. */
const struct reply *chat_parts_reply(const struct openai *o, const struct generation *g);
struct reply_cursor *chat_parts_cursor(struct openai *o, const struct generation *g);
/* The arguments of a call as a JSON object: as they are, or, where they were cut or are none, {}.
 */
void chat_call_object(const struct reply_call *call, struct buf *out);
/* Tokens of the answer that were reasoning. */
uint32_t chat_parts_thought(const struct openai *o, const struct generation *g);
#endif

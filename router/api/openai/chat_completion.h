/* chat_completion.h - parses chat requests and writes chat answers. */
#ifndef ROUTER_API_OPENAI_CHAT_COMPLETION_H
#define ROUTER_API_OPENAI_CHAT_COMPLETION_H
#include "router/api/openai/openai.h"
#include "router/chat/reply.h"
#include "router/chat/tools.h"

struct chat_request {
    struct openai *openai;
    struct tools tools;
    const struct chat *chat; /* the template's owner: the model's chat, or the request's */
    struct chat_style style;
    struct reply_config reply; /* how the answer is parsed */
    enum chat_ending ending;
    bool split, hide_reasoning;
    /* drop the oldest messages until the prompt has at most this many tokens; 0: no */
    uint32_t fit;
    bool effort; /* the template's `reasoning_effort` is set by another field of the body */
    bool old;    /* report calls as `function_call` */
    /* With tools: the format of an answer without calls; NULL: none. */
    const char *format, *format_or_calls;
    enum constraint_kind format_kind;
};

/* Parses the body into prompt and sampling, in o->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_VALIDATION,
 * ERR_TOOL, ERR_TEMPLATE. */
int chat_request_parse(struct call *c, struct chat_request *r, struct err *e);
/* Creates the generations and selects the format. */
int chat_generate(struct call *c, const struct chat_request *r, struct err *e);

/* The part shared by all conversation routes: renders the prompt and configures the parsing of the
 * answer. `chat` has the members `messages`, `tools`, `tool_choice`, `parallel_tool_calls`,
 * `tool_prompt` and `chat_template_kwargs` in OpenAI's format, and must live as long as the call.
 * r->openai and its ask must be set, with the constraint of the answer. */
int chat_prepare(struct call *c, struct body *b, struct object chat, struct chat_request *r,
                 struct err *e);
/* As chat_prepare(), for a tree that becomes owned by the call, also on failure. */
int chat_prepare_tree(struct call *c, struct body *b, cJSON *chat, struct chat_request *r,
                      struct err *e);

/* For routes that compute a prompt without an answer: the prompt of `root`, an object as above,
 * with vLLM's fields for its end, whose default is nothing behind the last message. In the arena.
 * NULL: the body was failed, or *b->e is set. */
const struct ask *chat_prompt_alone(struct call *c, struct body *b, struct object root);

/* variables.c: what the body sets in the template r->chat, whose style is r->style. May set
 * r->hide_reasoning. An object, or NULL if the body was failed. */
cJSON *chat_variables(struct body *b, struct object root, struct chat_request *r);
/* The nearest of the levels `low`, `medium` and `high`; another word stays as it is. */
const char *chat_nearest_effort(const char *effort);

/* functions.c: does the body use the deprecated `functions`? Then converts it for
 * chat_prepare_tree(). */
bool chat_is_old(struct object root);
cJSON *chat_from_old(struct body *b, struct object root);

/* answer_parts.c: parsed answers, o->parts[i] per generation */
struct chat_part;
int chat_parts_new(struct call *c, const struct chat_request *r, struct err *e);
/* May set g->enough. */
void chat_parts_take(struct openai *o, struct generation *g, const struct gen_event *ev);
/* Appends "role" and the text that is new since the last delta. False: nothing is new. */
bool chat_parts_delta(struct openai *o, const struct generation *g, struct buf *out);
void chat_parts_message(const struct openai *o, const struct generation *g, struct buf *out);
bool chat_parts_called(const struct openai *o, const struct generation *g);
/* Sets `watch`, called after every byte that the answer's parser consumes (`n` is 1), and at the
 * end (0). */
typedef void (*reply_watch)(void *of, const struct reply *r, size_t n);
void chat_parts_watch(struct openai *o, const struct generation *g, reply_watch watch, void *of);
/* The finish_reason. */
const char *chat_parts_finish(const struct openai *o, const struct generation *g);
/* For formats that send the pieces in order. */
const struct reply *chat_parts_reply(const struct openai *o, const struct generation *g);
struct reply_cursor *chat_parts_cursor(struct openai *o, const struct generation *g);
/* Calls `each` for every event of the only answer since the last call; `ended` as reply_next(). */
void chat_parts_each(struct call *c, bool ended,
                     void (*each)(struct call *c, const struct reply_event *ev));
/* Appends the arguments of a call as a JSON object; {} if they are incomplete or no object. */
void chat_call_object(const struct reply_call *call, struct buf *out);
/* Number of reasoning tokens in the answer. */
uint32_t chat_parts_thought(const struct openai *o, const struct generation *g);
#endif

/* responses.h - OpenAI's Responses API over the same generations: the request read, the answer
 * written. Without --response-store nothing is kept: a conversation is sent whole each time. */
#ifndef ROUTER_API_RESPONSES_RESPONSES_H
#define ROUTER_API_RESPONSES_RESPONSES_H
#include "router/api/openai/chat_completion.h"

/* Which tokens the text of a message was made of: for its log-probabilities. A token belongs to the
 * message that has a byte of it; those of reasoning, calls and markers belong to none. */
struct text_token {
    uint64_t begin, end;    /* of its text in the text that was generated */
    size_t at;              /* settled: in the reply's content */
    size_t json, json_size; /* its item */
};
struct text_tokens { /* zero-initialise */
    struct buf json;
    struct text_token *list;
    uint32_t n, cap;
    uint32_t n_settled;     /* the others wait until their text is decided */
    uint64_t given, pushed; /* bytes of text: of all tokens; of them, those that the reader has */
    size_t content;         /* bytes of the content that have their tokens */
};

/* A token, before chat_parts_take() of the same event. */
void text_tokens_add(struct text_tokens *t, const struct openai *o, const struct reply *r,
                     const struct gen_event *ev);
/* For chat_parts_watch(). */
void text_tokens_watch(void *of, const struct reply *r, size_t n);
/* The items of content[from, from + n), with brackets. */
void text_tokens_print(const struct text_tokens *t, size_t from, size_t n, struct buf *out);
void text_tokens_free(struct text_tokens *t);

struct responses {    /* what the formats need besides the generations; in the call's arena */
    const char *echo; /* the members of the answer that repeat the request: ,"name":value,... */
    uint64_t events;  /* told so far: the next sequence_number */
    bool logprobs;
    const struct reply *reply;    /* of the one generation */
    struct text_tokens tokens;    /* with logprobs */
    const cJSON *tools;           /* as they were sent; lives as long as the call */
    const char *forced;           /* the custom tool whose input the content is; NULL: none */
    const char *id;               /* of the response */
    bool store, background, eyes; /* eyes: the model takes images */
    const char *previous;         /* the response that it continues; NULL: none */
    const char *input;            /* its own items as JSON; with `store` */
    const cJSON *const *history;  /* lists of items that come before them */
    uint32_t n_history;
    struct call *call; /* in the background; loop thread, as `next` */
    struct responses *next;
};

/* Body -> prompt and sampling in r->openai->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_TOOL,
 * ERR_TEMPLATE. */
int responses_parse(struct call *c, struct chat_request *r, struct responses *p, struct err *e);
/* Make the generation and choose the format; `p` lives as long as the call. */
int responses_generate(struct call *c, const struct chat_request *r, struct responses *p,
                       struct err *e);

/* The body as chat_prepare() wants it: `instructions` first, calls and reasoning joined to the
 * assistant's message that they belong to. Caller frees; worthless when the body has been failed.
 */
cJSON *responses_convert(struct body *b, struct object root, struct responses *p, struct ask *q);
/* tools.c: the members `tools`, `tool_choice` and `parallel_tool_calls` of `chat`, which has its
 * messages. A custom tool that must be called and has a grammar becomes a constraint of `q`. */
void responses_tools(struct body *b, struct object root, cJSON *chat, struct responses *p,
                     struct ask *q);
bool responses_tool_taken(const cJSON *tool); /* its type is one that is not left out */
/* Append what the model calls a function of a namespace, or of none (`space` NULL). */
void responses_tool_name(const char *space, const char *name, struct buf *out);
/* The namespace of a function that the model called, and *name within it; NULL: it has none, and
 * *name is `called`. */
const char *responses_namespace(const struct responses *p, const char *called, const char **name);
bool responses_is_custom(const struct responses *p, const char *name);
/* The input in the call of a custom tool; what was cut, or is no such call, as it is. */
void responses_input(const struct reply_call *call, struct buf *out);
/* The request's members as the answer repeats them, defaults filled in. */
void responses_echo(struct object root, const struct responses *p, struct buf *out);
#endif

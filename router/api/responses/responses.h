/* responses.h - OpenAI's Responses API: parses requests and writes answers. Without
 * --response-store nothing is stored, and clients send the whole conversation each time. */
#ifndef ROUTER_API_RESPONSES_RESPONSES_H
#define ROUTER_API_RESPONSES_RESPONSES_H
#include "router/api/openai/chat_completion.h"

/* Maps the text of a message to its tokens, for log-probabilities. A token belongs to the message
 * that contains one of its bytes. Tokens of reasoning, calls and markers belong to none. */
struct text_token {
    uint64_t begin, end;    /* byte range of its text in the generated text */
    size_t at;              /* settled: offset in the reply's content */
    size_t json, json_size; /* its JSON item */
};
struct text_tokens { /* zero-initialise */
    struct buf json;
    struct text_token *list;
    uint32_t n, cap;
    uint32_t n_settled;     /* the others wait until their text is assigned */
    uint64_t given, pushed; /* bytes of text: of all tokens; passed to the parser */
    size_t content;         /* bytes of the content that are assigned to tokens */
};

/* Adds a token, before chat_parts_take() of the same event. */
void text_tokens_add(struct text_tokens *t, const struct openai *o, const struct reply *r,
                     const struct gen_event *ev);
/* For chat_parts_watch(). */
void text_tokens_watch(void *of, const struct reply *r, size_t n);
/* Appends the items of content[from, from + n) as a JSON array. */
void text_tokens_print(const struct text_tokens *t, size_t from, size_t n, struct buf *out);
void text_tokens_free(struct text_tokens *t);

struct responses {    /* state for the formats, in the call's arena */
    const char *echo; /* members of the answer that repeat the request: ,"name":value,... */
    uint64_t events;  /* sent so far: the next sequence_number */
    bool logprobs;
    bool summary; /* the reasoning is returned as its own summary, because one was asked for */
    const struct reply *reply;   /* of the single generation */
    struct text_tokens tokens;   /* with logprobs */
    const cJSON *tools;          /* as sent; lives as long as the call */
    const char *forced;          /* the custom tool whose input is the content; NULL: none */
    struct custom_reader reader; /* of the open call of a custom tool, and its input so far */
    struct buf custom_input;
    const char *id;   /* of the response */
    bool compact;     /* a summary is asked for: compact.h */
    const char *kept; /* of a compaction: JSON of the items in front of it */
    bool store, background;
    bool takes_images;        /* the model does */
    const char *previous;     /* the response it continues; NULL: none */
    bool remembered;          /* that is the last one of the WebSocket, not of the store */
    bool warm;                /* nothing is generated: the prompt is computed for later ones */
    const char *lane;         /* `stream_id`, which the events repeat; NULL: none */
    const char *whole;        /* on a WebSocket: all items before the answer, as JSON */
    const char *conversation; /* that it is part of; NULL: none */
    /* its own items as JSON; if `store` or `conversation`, or on a WebSocket */
    const char *input;
    const cJSON *const *history; /* earlier lists of items of the conversation */
    uint32_t n_history;
    struct store_job *begun; /* background calls: the first write, until it has ended */
    struct call *call;       /* background calls; loop thread only, like `next` */
    struct responses *next;
};

/* Parses the body into prompt and sampling in r->openai->asks[0]. ERR_SYNTAX, ERR_SHAPE, ERR_TOOL,
 * ERR_TEMPLATE. */
int responses_parse(struct call *c, struct chat_request *r, struct responses *p, struct err *e);
/* Creates the generation and selects the format; `p` must live as long as the call. */
int responses_generate(struct call *c, const struct chat_request *r, struct responses *p,
                       struct err *e);

/* socket.c: requests that are messages of a WebSocket (c->shared). Worker thread, except
 * socket_keep().
 *
 * Checks the type of the message. 1: it needs no answer. -1: `e`. */
int socket_message(struct call *c, struct err *e);
/* Is `id` the last response of the socket? Then p->history is its items. -1: out of memory. */
int socket_recall(struct call *c, const char *id, struct responses *p, struct err *e);
/* Reads what only messages have, and prepares p->whole. */
void socket_read(struct call *c, struct body *b, struct object root, struct openai *o,
                 struct responses *p);
/* Loop thread: the response can be continued on its socket. */
void socket_keep(struct call *c);

/* convert.c: the member of the conversation's last `configuration_update` that has it; NULL: none.
 * It is later than the request's own. */
const cJSON *responses_update(const struct responses *p, struct object root, const char *member);

/* Converts the body for chat_prepare(): `instructions` first; calls and reasoning are merged into
 * their assistant message. Caller frees; undefined content if the body was failed. */
cJSON *responses_convert(struct body *b, struct object root, struct responses *p);
/* answer.c: appends the usage of an answer. */
void responses_usage(struct buf *out, const struct call *c);
/* Can these items be the input of a request? If not, fails the body, naming `key`. */
void responses_check_items(struct body *b, struct object root, const char *key, const cJSON *items,
                           bool takes_images);
/* tools.c: sets `tools`, `tool_choice` and `parallel_tool_calls` of `chat`, which already has
 * messages. */
void responses_tools(struct body *b, struct object root, cJSON *chat, struct responses *p);
bool responses_tool_taken(const cJSON *tool); /* its type is supported */
/* Appends the name under which the model sees a function of namespace `space` (NULL: none). */
void responses_tool_name(const char *space, const char *name, struct buf *out);
/* The namespace of a called function, with *name inside it. NULL: no namespace, and *name is
 * `called`. */
const char *responses_namespace(const struct responses *p, const char *called, const char **name);
bool responses_is_custom(const struct responses *p, const char *name);
/* Appends the request's members as the answer repeats them, with defaults. */
void responses_echo(struct object root, const struct responses *p,
                    const struct sampling_defaults *d, struct buf *out);
#endif

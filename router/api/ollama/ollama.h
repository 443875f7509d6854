/* ollama.h - Ollama's API, which many desktop clients and editors use: /api/chat, /api/generate,
 * and descriptions of the models.
 *
 * A body is rewritten as OpenAI's clients would send it, and parsed by chat_request_parse() or
 * completions_parse(); errors name a field as OpenAI does. Answers are lines of JSON
 * (application/x-ndjson), streamed unless `stream` is false. */
#ifndef ROUTER_API_OLLAMA_OLLAMA_H
#define ROUTER_API_OLLAMA_OLLAMA_H
#include "router/api/openai/chat_completion.h"

/* Clients ask for this or a later version before they use tools and `capabilities`. */
#define OLLAMA_VERSION "0.13.0"

struct ollama {
    const char *model; /* as the client named it */
    bool chat;         /* /api/chat: `message`; else `response` */
    bool stream;
    bool raw;  /* the prompt is used without the template */
    bool load; /* an empty request, which only loads the model */
    /* with `logprobs`: items of the tokens that are in no line yet */
    struct buf logprobs;
};

/* request.c: c->body becomes OpenAI's; fills *o. ERR_SYNTAX, ERR_SHAPE, ERR_UNSUPPORTED. */
int ollama_chat_body(struct call *c, struct ollama *o, struct err *e);
int ollama_generate_body(struct call *c, struct ollama *o, struct err *e);

/* answer.c: make the generation; `r` is read, with r->openai. */
int ollama_answer(struct call *c, const struct chat_request *r, struct ollama *o, struct err *e);
/* The answer to a request that only loads. */
void ollama_loaded(struct call *c, const struct ollama *o);

/* {"name","model","modified_at","size","digest","details":{..}} of a model or adapter, without the
 * last brace. `g`: the model's edge; NULL: it is not loaded, and sizes are unknown. */
void ollama_model(struct buf *out, const struct edge *first, const struct edge *g,
                  const char *name);
/* ,"details":{..} of a model; `g` as above. */
void ollama_details(struct buf *out, const struct edge *g);
#endif

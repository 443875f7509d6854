/* gemini.h - Google's Gemini API: generateContent, streamGenerateContent, countTokens, and vectors.
 *
 * Follows the public reference of ai.google.dev, v1 and v1beta. Members may be written as there
 * (`systemInstruction`) or in snake case (`system_instruction`), as Google's servers have it. */
#ifndef ROUTER_API_GEMINI_GEMINI_H
#define ROUTER_API_GEMINI_GEMINI_H
#include "router/api/openai/chat_completion.h"

struct gemini {    /* state of a call, in r->openai->gemini */
    bool thoughts; /* the client asked for reasoning (`includeThoughts`) */
    bool list;     /* a stream is a JSON list, not events: `alt` is not `sse` */
    bool begun;    /* its first item was written */
};

/* The model's name in the path ".../models/NAME:ACTION" or ".../models/NAME", in the arena; *action
 * is "" if there is none. NULL: out of memory. */
const char *gemini_model(struct call *c, const char **action);

/* request.c: parses the body into prompt and sampling, in r->openai->asks[0]. ERR_SYNTAX,
 * ERR_SHAPE, ERR_TOOL, ERR_TEMPLATE. Worker thread. */
int gemini_parse(struct call *c, bool stream, struct chat_request *r, struct err *e);

/* contents.c: `systemInstruction` and `contents` of `root` as OpenAI's `messages`, owned by the
 * caller. `takes_images`: the model takes images. Faults are recorded in `b`. */
cJSON *gemini_messages(struct body *b, struct object root, bool takes_images);

/* schema.c: renames the members of a whole body from snake case to camel case, except inside the
 * client's own objects: arguments, results, schemas. */
void gemini_rename_all(cJSON *at);
/* A value of an enumeration in lower case. False: it is NULL, empty, too long, or says that it is
 * not set ("TYPE_UNSPECIFIED"). */
enum { GEMINI_WORD = 32 };
bool gemini_word(const char *from, char word[GEMINI_WORD]);
/* A JSON schema for one of Google's (OpenAPI 3.0: types in capitals, `nullable`), owned
 * by the caller. NULL: out of memory. */
cJSON *gemini_schema(const cJSON *given);

/* embed.c: parses the body of embedContent, batchEmbedContents or predict, and starts the
 * computation. As call_texts(). Worker thread. */
int gemini_embed(struct call *c, const char *action, struct err *e);

/* answer.c: creates the generations and selects the format. */
int gemini_generate(struct call *c, const struct chat_request *r, struct err *e);
#endif

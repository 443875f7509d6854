/* chat.h - from a list of messages to a prompt, through the model's chat template. */
#ifndef ROUTER_CHAT_CHAT_H
#define ROUTER_CHAT_CHAT_H
#include "common/buf.h"
#include "common/err.h"
#include "common/tokenizer/tokenizer.h"
#include "router/chat/format.h"
#include <cjson/cJSON.h>

struct chat; /* immutable after load: any thread may render */

/* The template of a model, a folder or a GGUF file: `config_path` if given, else
 * chat_template.jinja, chat_template.json, tokenizer_config.json, processor_config.json. A model
 * without one still makes a chat, whose chat_prompt() says so. NULL: a file that is there cannot be
 * used. */
struct chat *chat_load(const char *dir, const char *config_path, const struct tokenizer *t,
                       struct err *e);
/* With the tokens of `c`, and a template of a request's: foreign code, as a model's is. Freed by
 * chat_free(). ERR_TEMPLATE. */
struct chat *chat_with_template(const struct chat *c, const char *source, struct err *e);
void chat_free(struct chat *c);
/* Its model takes pictures: `marker` stands for one in a prompt, `around` is that with what
 * templates put around it. Both are copied. Before the first render. -1: no memory. */
int chat_see(struct chat *c, const char *marker, const char *around, struct err *e);

/* What the folder says of its tokenizer, as one JSON object with the template that is used: vLLM's
 * /tokenizer_info. */
const char *chat_tokenizer_info(const struct chat *c);

struct chat_style { /* what a template knows */
    bool tools;     /* it shows them */
    bool reasoning; /* the model thinks aloud in front of its answer */
    bool channels;  /* its answers are messages in channels (gpt-oss): `reasoning` is set, too */
    const struct call_format *calls;
};
/* Of the template that is used with or without tools. */
struct chat_style chat_style(const struct chat *c, bool with_tools);

/* What comes behind the last message: a new answer's beginning, or nothing, so that the answer goes
 * on from it. CHAT_DEFAULT: goes on where the last message is the assistant's and says something.
 */
enum chat_ending { CHAT_DEFAULT, CHAT_ANSWER, CHAT_CONTINUE, CHAT_NOTHING };

/* `messages` as OpenAI clients send them, already checked by chat_check(). A message with pictures
 * is a list of parts for a template that writes one marker for each then, else a string with
 * markers. `tools` and `variables` may be NULL. `more` (NULL: nothing) is added to the
 * user's last message. ERR_TEMPLATE with the prefix "Template error: ". */
int chat_prompt(const struct chat *c, const cJSON *messages, const cJSON *tools,
                const cJSON *variables, const char *more, enum chat_ending ending, struct buf *out,
                struct err *e);

/* What is wrong with the messages (a static string), or NULL; *index gets the message. `eyes`: the
 * model takes pictures. */
const char *chat_check(const cJSON *messages, bool eyes, int *index);
#endif

/* chat.h - renders a list of messages to a prompt, with the model's chat template. */
#ifndef ROUTER_CHAT_CHAT_H
#define ROUTER_CHAT_CHAT_H
#include "common/buf.h"
#include "common/err.h"
#include "common/model/thought_marks.h"
#include "common/tokenizer/tokenizer.h"
#include "router/chat/format.h"
#include "router/chat/guard.h"
#include <cjson/cJSON.h>

struct chat; /* immutable after load: any thread may render */

/* `t`, which must outlive the chat, has the special tokens that messages cannot contain (guard.h);
 * NULL: nothing is guarded.
 * Loads the template of a model folder or GGUF file: of `config_path` if given (JSON as in
 * tokenizer_config.json, or a template whose name ends with .jinja), otherwise of
 * chat_template.jinja, chat_template.json, tokenizer_config.json, processor_config.json. Without a
 * template it still returns a chat, whose chat_prompt() fails. NULL: a file exists but is
 * invalid. */
struct chat *chat_load(const char *dir, const char *config_path, const struct tokenizer *t,
                       struct err *e);
/* Creates a chat with the special tokens of `c` and a template from a request, which is untrusted
 * code, as the model's is. Free with chat_free(). ERR_TEMPLATE. */
struct chat *chat_with_template(const struct chat *c, const char *source, struct err *e);
void chat_free(struct chat *c);
/* Texts of special tokens in messages become these tokens, as in other servers. Call before the
 * first render. */
void chat_trust_messages(struct chat *c);
/* What texts of this model's prompts must not contain; owned by the chat. */
const struct guard *chat_guard(const struct chat *c);
/* Enables images: `marker` stands for one in a prompt, `around` is the marker with the text that
 * templates put around it; the others are those of videos, or NULL. All are copied. Call before the
 * first render. -1: out of memory. */
struct chat_marks {
    const char *marker, *around, *video, *around_video;
};
int chat_see(struct chat *c, const struct chat_marks *marks, struct err *e);

/* The tokenizer's configuration as a JSON object with the effective template: vLLM's
 * /tokenizer_info. */
const char *chat_tokenizer_info(const struct chat *c);

struct chat_style {              /* what a template supports */
    bool tools;                  /* it renders tools */
    bool documents;              /* it renders `documents`, texts that the answer is to rest on */
    bool reasoning;              /* the model emits reasoning before its answer */
    enum thought_marks thoughts; /* the markers around it, without channels */
    bool channels; /* answers are messages in channels (gpt-oss); `reasoning` is set too */
    const struct call_format *calls;
};
/* Of the template used with, or without, tools. */
struct chat_style chat_style(const struct chat *c, bool with_tools);

/* The end of the prompt: an opened assistant message, or nothing, so that the answer continues the
 * last message. CHAT_DEFAULT: continues if the last message is a non-empty one of the assistant. */
enum chat_ending { CHAT_DEFAULT, CHAT_ANSWER, CHAT_CONTINUE, CHAT_NOTHING };

/* Renders `messages` in OpenAI's format, already checked by chat_check(). A message with images is
 * a list of parts for a template that writes one marker per image, otherwise a string with markers.
 * `tools` and `variables` may be NULL. `more` (may be NULL) is appended to the user's last message.
 * The text may contain guards (guard.h): tokenize it with TOK_GUARDED, and show it without them.
 * ERR_TEMPLATE with the prefix "Template error: ". */
int chat_prompt(const struct chat *c, const cJSON *messages, const cJSON *tools,
                const cJSON *variables, const char *more, enum chat_ending ending, struct buf *out,
                struct err *e);

/* True if the template writes a pair of texts for a reranker: messages of the roles `query` and
 * `document` (vLLM's score templates, sentence-transformers since version 5.4). */
bool chat_pairs(const struct chat *c);
/* Renders such a pair behind `task`, an instruction in a system message; NULL: none. `marker`: each
 * of it in a text stands for an image, which the template writes; NULL: none does. `opens`: with
 * the start of an answer. Otherwise as chat_prompt(). */
struct chat_pair_text {
    const char *query, *document, *marker;
};
int chat_pair(const struct chat *c, const char *task, const struct chat_pair_text *pair, bool opens,
              struct buf *out, struct err *e);

/* The fault of the messages (a static string), or NULL; *index is set to the message.
 * `takes_images`: the model takes images. Opens the files in the messages: parts.h. */
const char *chat_check(cJSON *messages, bool takes_images, int *index);
#endif

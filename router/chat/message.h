/* message.h - one message of a conversation in the form that a chat template reads. */
#ifndef ROUTER_CHAT_MESSAGE_H
#define ROUTER_CHAT_MESSAGE_H
#include "router/chat/guard.h"
#include <cjson/cJSON.h>
#include <stdbool.h>

/* What a message of calls has as `content` if the client gave no text. Templates differ: many test
 * for it, DeepSeek-R1's expects none, Devstral's and early Qwen3's a string. */
enum beside_calls { BESIDE_ABSENT, BESIDE_NULL, BESIDE_EMPTY, BESIDES };

/* What a template reads. */
struct message_form {
    bool list;                         /* content as a list of parts, otherwise as a string */
    const char *around, *around_video; /* in a string: the text of an image, a video; or NULL */
    bool developer;                    /* the role `developer`, which otherwise is the system's */
    bool calls;                        /* `tool_calls`; otherwise they are text */
    bool thoughts;                     /* reasoning as parts of the content, see parts.h */
    bool channels;                     /* reasoning or text beside a call, not both */
    bool last;                         /* the message is the last one */
    enum beside_calls beside;
    bool arguments_as_text; /* of calls, as clients send them: DeepSeek-R1's concatenates them */
};

/* Appends {"role", "content": text} to `list`, which owns the result. NULL: out of memory, and the
 * list is as before. */
cJSON *message_add(cJSON *list, const char *role, const char *text);
/* The fault of a message in OpenAI's format (a static string), or NULL. `takes_images`: the model
 * takes images. Opens its files: parts.h. */
const char *message_check(cJSON *m, bool takes_images);
/* Changes `m`, which message_check() accepts, to that form, with guards in its texts. -1: out of
 * memory. */
int message_settle(cJSON *m, const struct guard *g, const struct message_form *f);
#endif

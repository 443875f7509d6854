/* pictures.h - pictures in messages: which there are, and what a chat template sees of them.
 *
 * Messages are OpenAI's: `content` is a string, or a list of parts of the types `text` and
 * `image_url`. Other protocols are turned into these (convert.h). */
#ifndef ROUTER_CHAT_PICTURES_H
#define ROUTER_CHAT_PICTURES_H
#include "common/arena.h"
#include "common/err.h"
#include "router/request/ask.h"
#include <cjson/cJSON.h>

/* What is wrong with a part of a message of `role` (a static string), or NULL. `eyes`: the model
 * takes pictures. */
const char *picture_check(const cJSON *part, const char *role, bool eyes);
/* The pictures of all messages, in order, into q->images; their strings stay the messages'. A part
 * may say in `where` what the client calls it. Only after picture_check(). */
int pictures_collect(const cJSON *messages, struct arena *a, struct ask *q, struct err *e);

bool pictures_in(const cJSON *message);
uint32_t pictures_count(const cJSON *messages);
/* The content of `message` as templates of vision models loop over it: a list of {"type": "text",
 * "text"} and {"type": "image"}; a string becomes a list of one. False: no memory. */
bool pictures_as_parts(cJSON *message);
/* The content as one string, in which `around` stands for each picture. False: no memory. */
bool pictures_as_text(cJSON *message, const char *around);

/* A part of the type `image_url`, of `url`; `where` may be NULL. NULL: no memory. */
cJSON *picture_part(const char *url, const char *where);
/* The same for a file in base64, of a type such as image/png. */
cJSON *picture_part_base64(const char *type, const char *base64, const char *where);
/* A part of the type `text`. */
cJSON *picture_text_part(const char *text);
#endif

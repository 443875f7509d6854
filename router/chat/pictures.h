/* pictures.h - images and videos in messages: validation, and the form that a chat template
 * expects.
 *
 * Messages are OpenAI's: `content` is a string, or a list of parts of the types `text` and
 * `image_url` (parts.h), or vLLM's `video_url`, which may have `fps`, frames per second, beside it.
 * Other protocols are converted to these (convert.h). */
#ifndef ROUTER_CHAT_PICTURES_H
#define ROUTER_CHAT_PICTURES_H
#include "common/arena.h"
#include "common/err.h"
#include "router/request/ask.h"
#include <cjson/cJSON.h>

/* Is the part an image or a video? */
bool picture_is(const cJSON *part);
bool picture_is_video(const cJSON *part);
bool pictures_have_videos(const cJSON *messages);
/* Its URL; NULL: it is no image, or has none. */
const char *picture_url(const cJSON *part);
/* The fault of a part of a message of `role` (a static string), or NULL. `takes_images`: the model
 * takes images. */
const char *picture_check(const cJSON *part, const char *role, bool takes_images);
/* Collects the images of all messages, in order, into q->images; their strings stay owned by the
 * messages. A part's `where` is the client's name for it. Call picture_check() first. */
int pictures_collect(const cJSON *messages, struct arena *a, struct ask *q, struct err *e);

/* Whether a message has images; how many all messages have. */
bool pictures_in(const cJSON *message);
uint32_t pictures_count(const cJSON *messages);
/* Converts the content of `message` to the list that vision templates iterate over: {"type":
 * "text", "text"}, {"type": "image"} and {"type": "video"}. A string becomes a list of one. False:
 * out of memory. */
bool pictures_as_parts(cJSON *message);
/* Converts the content to one string, with `around` in place of each image, and `around_video` of
 * each video; both may be NULL. False: out of memory. */
bool pictures_as_text(cJSON *message, const char *around, const char *around_video);

/* A part of type `image_url` for `url`; `where` may be NULL. NULL: out of memory. */
cJSON *picture_part(const char *url, const char *where);
/* As picture_part(), for a base64 file of a type such as image/png. */
cJSON *picture_part_base64(const char *type, const char *base64, const char *where);
/* A part of type `text`. */
cJSON *picture_text_part(const char *text);
#endif

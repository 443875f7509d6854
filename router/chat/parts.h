/* parts.h - the parts of a message's content: which ones are accepted, and the few that templates
 * know. Clients return the parts of other protocols, too: OpenAI's Responses (`input_text`,
 * `output_text`, `input_image`), refusals, files of text, and reasoning (Mistral's and Anthropic's
 * `thinking`). */
#ifndef ROUTER_CHAT_PARTS_H
#define ROUTER_CHAT_PARTS_H
#include "common/buf.h"
#include <cjson/cJSON.h>
#include <stdbool.h>

/* The fault of the parts of a message of `role` (a static string), or NULL. `takes_images`: the
 * model takes images. Files become parts of type `text`, so that each is decoded once, however
 * often the prompt is rendered. */
const char *parts_check(cJSON *parts, const char *role, bool takes_images);

/* Converts the parts of `message`, which parts_check() accepts: text of any kind becomes `text`.
 * Reasoning of an assistant becomes `reasoning_content`; with `thoughts` (a template that renders
 * Mistral's parts) the reverse: `reasoning_content`, unless the message is the `last`, becomes a
 * part {"type": "thinking", "thinking"}. Content with such parts stays a list. -1: out of memory.
 */
int parts_settle(cJSON *message, bool thoughts, bool last);

/* A part of an earlier answer that holds its reasoning. */
bool parts_is_thought(const cJSON *part);

/* Appends the text of a file in `part` under its name. False: it has no bytes, or they are not
 * text: PARTS_NO_FILE says so. */
bool parts_file_text(const cJSON *part, struct buf *out);
#define PARTS_NO_FILE "a file needs `file_data`: text (UTF-8) in base64; others are not supported"
#endif

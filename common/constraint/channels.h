/* channels.h - constrained messages for models that answer in channels (gpt-oss's harmony format).
 * The prompt must end in <|start|>assistant, or with a complete message. */
#ifndef COMMON_CONSTRAINT_CHANNELS_H
#define COMMON_CONSTRAINT_CHANNELS_H
#include "common/constraint/schema.h"
#include "common/err.h"
#include <cjson/cJSON.h>

/* Some messages of the channel analysis, then `message`. */
term channel_thoughts(struct term_pool *p, term message);
/* `text` as the message of the channel final. */
term channel_final(struct term_pool *p, term text);
/* A call of one of the functions in `schema`; see CONSTRAINT_CHANNEL_CALLS. TERM_NONE with `e`
 * set. */
term channel_calls(struct term_pool *p, const cJSON *schema, enum json_layout layout,
                   struct err *e);
#endif

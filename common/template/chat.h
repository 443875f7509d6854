/* chat.h - a conversation through a chat template: transformers'
 * apply_chat_template(tokenize=False).
 *
 * Messages reach the template as they are given (a null content is none, as in transformers 4;
 * transformers 5 drops null members first). */
#ifndef COMMON_TEMPLATE_CHAT_H
#define COMMON_TEMPLATE_CHAT_H
#include "common/template/template.h"

struct chat_input {
    const cJSON *messages;              /* array */
    const cJSON *tools, *documents;     /* array; NULL or null: none */
    const cJSON *bos_token, *eos_token; /* string or null; NULL: undefined */
    const cJSON *variables;             /* object of further variables, which win; NULL: none */
    bool add_generation_prompt;
    /* Leave the last message open: the text ends where this member of it ends ("content"). NULL:
     * no. */
    const char *continue_field;
};

/* Append the prompt to `out`. ERR_TEMPLATE as template_render(), and for what cannot be continued.
 */
int chat_render(const struct template *t, const struct chat_input *in,
                const struct template_limits *limits, struct buf *out, struct err *e);
#endif

/* chat.h - renders a conversation with a chat template: transformers'
 * apply_chat_template(tokenize=False).
 *
 * Messages are passed unchanged (null content is none, as in transformers 4; transformers 5 first
 * drops null members). */
#ifndef COMMON_TEMPLATE_CHAT_H
#define COMMON_TEMPLATE_CHAT_H
#include "common/template/template.h"

struct chat_input {
    const cJSON *messages;              /* array */
    const cJSON *tools, *documents;     /* array; NULL or null: none */
    const cJSON *bos_token, *eos_token; /* string or null; NULL: undefined */
    /* object of further variables, which take precedence; NULL: none */
    const cJSON *variables;
    bool add_generation_prompt;
    /* Leaves the last message open: the text ends with this member of it ("content"). NULL: no. */
    const char *continue_field;
};

/* Appends the prompt to `out`. ERR_TEMPLATE as template_render(), and if the message cannot be
 * continued. */
int chat_render(const struct template *t, const struct chat_input *in,
                const struct template_limits *limits, struct buf *out, struct err *e);
#endif

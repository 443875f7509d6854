#include "router/api/tei/tei.h"
#include <string.h>

void tei_options(struct body *b, struct object o, struct texts_ask *ask)
{
    const char *side = body_str(b, o, "truncation_direction", false);
    ask->truncate = body_opt_bool(b, o, "truncate", false);
    ask->prompt_name = body_str(b, o, "prompt_name", false);
    ask->left = side && (strcmp(side, "left") == 0 || strcmp(side, "Left") == 0);
    if (side && !ask->left && strcmp(side, "right") != 0 && strcmp(side, "Right") != 0)
        body_fail(b, o, "truncation_direction", "`truncation_direction` must be left or right");
}

uint32_t tei_read(struct call *c, struct body *b, struct texts_ask *ask, void *state)
{
    (void)state;
    tei_options(b, body_root(b), ask);
    return texts_most(c);
}

void tei_not_empty(struct body *b, const struct texts_ask *ask)
{
    for (uint32_t i = 0; i < ask->n; i++)
        if (!ask->in[i].n)
            body_empty(b, "inputs");
}

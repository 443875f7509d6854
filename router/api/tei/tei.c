#include "router/api/tei/tei.h"
#include <string.h>

int tei_open(struct call *c, struct body *b, unsigned tasks, struct err *e)
{
    return call_texts_task(c, tasks, e) || body_open(b, c->body.p, c->body.len, &c->arena, e) != 0
               ? -1
               : 0;
}

void tei_options(struct body *b, struct object o, struct texts_ask *ask)
{
    const char *side = body_str(b, o, "truncation_direction", false);
    ask->truncate = body_opt_bool(b, o, "truncate", false);
    ask->prompt_name = body_str(b, o, "prompt_name", false);
    ask->left = side && (strcmp(side, "left") == 0 || strcmp(side, "Left") == 0);
    if (side && !ask->left && strcmp(side, "right") != 0 && strcmp(side, "Right") != 0)
        body_fail(b, o, "truncation_direction", "`truncation_direction` must be left or right");
}

#include "router/api/openai/messages_input.h"
#include "common/json/json.h"
#include "router/api/openai/chat_completion.h"

bool messages_input(struct call *c, struct body *b, struct texts_ask *ask)
{
    const struct object root = body_root(b);
    if (!json_get(b->root, "messages"))
        return false;
    struct text_input *in = ARENA_NEW(&c->arena, struct text_input, 1);
    const struct ask *q = in && !b->failed ? chat_prompt_alone(c, b, root) : NULL;
    if (!in)
        body_nomem(b, root, "messages");
    else if (json_get(b->root, "input"))
        body_fail(b, root, "messages", "`messages` and `input` exclude each other");
    else if (json_str(b->root, "prompt_name", NULL))
        body_fail(b, root, "prompt_name", "`prompt_name`: a chat template has its own");
    if (b->failed)
        return true;
    *in = (struct text_input){.shown = q};
    ask->in = in;
    ask->n = 1;
    ask->plain = true;
    return true;
}

#include "router/call/call.h"
#include "router/chat/chat.h"

static void reply(struct call *c)
{
    const char *closed = edge_closed(c->edge); /* absent before the edge is open */
    struct err e = ERR_INIT;
    if (closed || !c->edge->chat) {
        err_set(&e, ERR_UNHEALTHY, "%s", closed ? closed : "there is no tokenizer");
        call_reply_error(c, &e);
        return;
    }
    buf_str(&c->out, chat_tokenizer_info(c->edge->chat));
    call_reply(c);
}

const struct route route_tokenizer_info = {
    .method = "GET",
    .paths = {"/tokenizer_info"},
    .summary = "What the model's folder says of its tokenizer, with the chat template (vLLM's).",
    .reply = reply,
};

#include "common/json/json.h"
#include "router/api/openai/chat_completion.h"
#include "router/api/tgi/tgi.h"
#include "router/call/tokens.h"
#include "router/http/route.h"
#include <string.h>

/* The forms of vLLM (`prompt`, or `messages` with chat fields) and llama.cpp (`content`). */
static int other_form(struct call *c, struct body *b, struct object root, struct err *e)
{
    bool chat = json_get(root.json, "messages"), llama = json_get(root.json, "content");
    bool special = llama ? body_opt_bool(b, root, "add_special", false)
                         : body_opt_bool(b, root, "add_special_tokens", !chat);
    bool pieces = body_opt_bool(b, root, llama ? "with_pieces" : "return_token_strs", false);
    const char *text = chat ? "" : body_str(b, root, llama ? "content" : "prompt", true);
    struct chat_request r;
    if (b->failed || (chat && chat_request_parse(c, &r, e) != 0))
        return -1;
    size_t n;
    unsigned flags = special ? TOK_ADD_SPECIAL : 0;
    if (chat && tokens_text(c, r.openai->asks, &text, &n, &flags, e) != 0)
        return -1;
    if (!chat)
        text = body_bytes(&c->arena, text, &n);
    if (!text)
        return err_nomem(e);
    return llama && pieces ? tokens_pieces(c, text, n, flags, e)
                           : tokens_ids(c, text, n, flags, pieces, e);
}

static int work(struct call *c, struct err *e)
{
    static const char *const names[] = {"prompt", "messages", "content"};
    struct body b;
    if (body_open_prompt(&b, c->body.p, c->body.len, &c->arena, e) != 0)
        return -1;
    struct object root = body_root(&b);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (json_get(root.json, names[i]) && !json_get(root.json, "inputs"))
            return other_form(c, &b, root, e);
    struct tgi *t = tgi_parse(c, false, e);
    const char *inputs;
    size_t n;
    unsigned flags = TOK_ADD_SPECIAL;
    return t && tokens_text(c, &t->ask, &inputs, &n, &flags, e) == 0
               ? tokens_json(c, inputs, n, flags, e)
               : -1;
}

const struct route route_tokenize = {
    .method = "POST",
    .paths = {"/tokenize"},
    .summary = "The tokens of a prompt, special ones included, with byte offsets; or as vLLM and "
               "llama.cpp answer: `tokens` (ids), `count`, `max_model_len`.",
    .body = "`inputs`; or vLLM's `prompt` or `messages`, `add_special_tokens`, "
            "`return_token_strs`; or llama.cpp's `content`, `add_special`, `with_pieces`",
    .takes = "Tokenize",
    .example = "{\"inputs\": \"Once upon a time\"}",
    .gives = "Tokens",
    .work = work,
};

// fuzz-sources: router/chat/reply.c router/chat/reply_call.c router/chat/reply_tags.c
// fuzz-sources: router/chat/reply_python.c router/chat/reply_channels.c router/chat/format.c
// fuzz-sources: router/chat/reply_quoted.c router/chat/reply_nested.c
// fuzz-sources: common/model/thought_marks.c
// fuzz-sources: common/buf.c common/json/json.c common/json/reader.c common/arena.c
// fuzz-sources: common/json/exact.c common/err.c common/utf8.c
/* Any text in any way of writing calls, in two pieces: no crash, and the same as in one. */
#include "router/chat/reply.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void add(struct buf *out, const struct buf *b)
{
    buf_add(out, b->p ? b->p : "", b->len);
    buf_ch(out, '|');
}

static void play(const uint8_t *text, size_t n, unsigned how, size_t cut, struct buf *out)
{
    static const char *const clues[] = {"<tool_call>",
                                        "<|python_tag|>",
                                        "[TOOL_CALLS]",
                                        "<｜tool▁call▁begin｜>",
                                        "<|tool_call|>",
                                        "",
                                        "<function=",
                                        "<arg_key>",
                                        "<minimax:tool_call>",
                                        "<|python_start|>",
                                        "<|tool_call_argument_begin|>"};
    /* formats that were added later: other numbers keep their meaning in the corpus */
    static const char *const late[] = {"<|tool_call>",      "｜DSML｜",         "<seed:tool_call>",
                                       "<function name=\"", "<|tools_prefix|>", "<tool_calls>",
                                       "List of tools: ",   "<TOOLCALL>",       "<|function_call|>",
                                       "]<]minimax[>["};
    static const char *const names[] = {"f"};
    struct reply r = {0};
    reply_init(&r, &(struct reply_config){
                       .format = how % 12 == 11
                                     ? NULL
                                     : call_format_find(how < 240 && (how % 24 == 21 ||
                                                                      (how >= 24 && how % 24 == 20))
                                                            ? late[how / 24]
                                                            : clues[how % 12]),
                       .channels = how % 12 == 10 || how % 24 == 23,
                       .opened = how >> 5 & 1 ? "assistant<|channel|>final<|message|>x" : NULL,
                       .forced = how >> 4 & 1,
                       .may_think = how >> 5 & 1,
                       .thinking = how >> 6 & 1,
                       .single = how >> 7 & 1,
                       .names = names,
                       .n_names = 1});
    reply_push(&r, (const char *)text, cut);
    reply_push(&r, (const char *)text + cut, n - cut);
    reply_end(&r);
    add(out, &r.reasoning);
    add(out, &r.content);
    for (uint32_t i = 0; i < r.n_calls; i++) {
        buf_str(out, r.calls[i].name);
        add(out, &r.calls[i].arguments);
    }
    reply_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct buf whole = BUF_INIT, split = BUF_INIT;
    if (n < 2)
        return 0;
    play(data + 2, n - 2, data[0], 0, &whole);
    play(data + 2, n - 2, data[0], data[1] % (n - 1), &split);
    if (whole.len != split.len || memcmp(whole.p, split.p, whole.len) != 0)
        abort();
    buf_free(&whole);
    buf_free(&split);
    return 0;
}

/* openai_rig.h - the routes on a socket, with a chat template that shows what it gets. */
#ifndef TEST_OPENAI_RIG_H
#define TEST_OPENAI_RIG_H
#include "router/chat/chat.h"
#include "tests/unit/router/edge_rig.h"
#include <sys/stat.h>

/* A chat of one message, and further fields. */
#define CHAT(rest) "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]" rest "}"

static const char openai_template[] =
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if m.tool_calls %}"
    "{{ m.tool_calls[0].function.arguments.city }}{% endif %}{% endfor %}"
    "{% if tools %}<{{ (tools[0].function or tools[0]).name }}>{% endif %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
    "{% if messages[-1].content and 'OPEN' in messages[-1].content %}<think>{% endif %}"
    "{# calls are written <tool_call>..</tool_call> #}"
    "{% if messages[0].role == 'bad' %}{{ raise_exception('no such role') }}{% endif %}";

static int openai_start(void **state)
{
    struct err e;
    char dir[] = "/tmp/test_openai_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
    FILE *f = fopen(path, "w");
    fputs(openai_template, f);
    fclose(f);
    struct chat *chat = chat_load(dir, NULL, NULL, &e);
    assert_non_null(chat);
    unlink(path);
    rmdir(dir);
    rig.edge.chat = chat;
    return edge_up(state);
}
static int openai_stop(void **state)
{
    edge_down(state);
    chat_free((struct chat *)rig.edge.chat);
    return 0;
}
#endif

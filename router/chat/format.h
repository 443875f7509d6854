/* format.h - how models write calls of functions into their text: one row a way of writing.
 *
 * A call is a JSON object with a name and arguments (or a list of such), or a name followed by the
 * arguments; most ways put markers around it. */
#ifndef ROUTER_CHAT_FORMAT_H
#define ROUTER_CHAT_FORMAT_H
#include <stdbool.h>

struct call_format {
    const char *name;
    const char *clue;      /* what the source of a template that uses it contains */
    const char *open;      /* in front of a call or a list of calls; NULL: nothing */
    const char *close;     /* behind it; NULL: nothing */
    const char *around[2]; /* markers around all calls, which mean nothing */
    bool bare;             /* an answer that begins with a call is one, without a marker too */
    bool named;            /* the name may stand in front of the arguments */
    const char *arguments; /* what the model's own JSON calls them */
};

/* By the source of a chat template that knows tools. Never NULL: models that follow no format known
 * are asked for, and often write, a bare JSON object. */
const struct call_format *call_format_find(const char *template_source);
/* For templates that know nothing of tools: the answer's form is said in the prompt. */
extern const struct call_format call_format_bare;
#endif

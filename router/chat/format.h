/* format.h - how models write calls of functions into their text: one row a way of writing.
 *
 * A call is a JSON object with a name and arguments (or a list of such), a name followed by the
 * arguments, a list of calls as Python has them, or tags around the name and around each argument.
 * Most ways put markers around it. */
#ifndef ROUTER_CHAT_FORMAT_H
#define ROUTER_CHAT_FORMAT_H
#include <stdbool.h>
#include <stddef.h>

/* Calls in tags: an argument is text, or JSON where the function's schema says that it is none. */
struct call_tags {
    const char *name_open, *name_close;   /* around the name; NULL: it comes at once, and ends with
                                             its line or where something else begins */
    const char *key_open, *key_close;     /* around an argument's name */
    const char *value_open, *value_close; /* around its value; open may be NULL */
    const char *value_end;                /* value_close behind a line break of its own */
    const char *end;                      /* behind the arguments; NULL: the row's `close` */
};

struct call_format {
    const char *name;
    const char *clue;      /* what the source of a template that uses it contains */
    const char *open;      /* in front of a call or a list of calls; NULL: nothing */
    const char *close;     /* behind it; NULL: nothing */
    const char *around[2]; /* markers around all calls, which mean nothing */
    bool bare;             /* an answer that begins with a call is one, without a marker too */
    bool named;            /* the name may stand in front of the arguments */
    const char *separator; /* named: what may stand between the two */
    const char *prefix;    /* named: the name is PREFIXname:number, and the call's id is that */
    bool python;           /* a list may hold calls as Python writes them */
    const struct call_tags *tags; /* NULL: none */
    const char *arguments;        /* what the model's own JSON calls them */
};

/* By the source of a chat template that knows tools. Never NULL: models that follow no format known
 * are asked for, and often write, a bare JSON object. */
const struct call_format *call_format_find(const char *template_source);
/* For templates that know nothing of tools: the answer's form is said in the prompt. */
extern const struct call_format call_format_bare;

/* All markers of a row, NULL behind the last: what a special token may spell. */
enum { CALL_MARKERS = 12 };
void call_format_markers(const struct call_format *f, const char *out[CALL_MARKERS + 1]);
#endif

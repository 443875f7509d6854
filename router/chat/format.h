/* format.h - the formats in which models write function calls, one row per format.
 *
 * A call has one of these forms. Most formats put markers around it.
 *   - a JSON object with a name and arguments, or a list of such
 *   - a name followed by arguments
 *   - a list of calls in Python syntax
 *   - tags around the name and each argument
 *   - an object with quotes of the format */
#ifndef ROUTER_CHAT_FORMAT_H
#define ROUTER_CHAT_FORMAT_H
#include <stdbool.h>
#include <stddef.h>

/* Calls in tags: an argument is text, or JSON if the function's schema excludes strings. */
struct call_tags {
    /* around the name; name_open NULL: the name comes at once, and ends with name_close (NULL: its
     * line) or at the next tag */
    const char *name_open, *name_close;
    const char *key_open, *key_close;     /* around an argument's name */
    const char *value_open, *value_close; /* around its value; open may be NULL */
    const char *value_end;                /* value_close after a line break of its own */
    const char *end;                      /* after the arguments; NULL: the row's `close` */
    /* between an argument's name and "true" or "false": is its value a string? NULL: not said */
    const char *string_attribute;
    bool cdata; /* a value may be between <![CDATA[ and ]]> */
    /* Precedes every tag, those above included. Then an argument's tags are MARK<NAME> and
     * MARK</NAME> or </NAME>, and values may consist of such tags. NULL: not this syntax. */
    const char *mark;
};

struct call_format {
    const char *name;
    const char *clue;       /* a substring of templates that use this format */
    const char *open;       /* before a call or a list of calls; NULL: none */
    const char *close;      /* after it; NULL: none */
    const char *around[2];  /* markers around all calls, which are dropped */
    bool bare;              /* an answer may also begin with a call without a marker */
    bool named;             /* the name may precede the arguments */
    const char *separator;  /* named: optional text between the two */
    const char *name_close; /* named: ends the name; NULL: a line break or the arguments do */
    const char *prefix;     /* named: the name is PREFIXname:number, and is also the call's id */
    bool python;            /* a list may hold calls in Python syntax */
    bool keyed;             /* an object's only key is the name, its value the arguments */
    const struct call_tags *tags; /* NULL: none */
    const char *quote;     /* around texts in lead NAME{key:value, ..}; NULL: not this syntax */
    const char *lead;      /* quote: before the name */
    const char *arguments; /* key of the arguments in the model's own JSON */
};

/* Finds the format by the source of a chat template that renders tools. Never NULL: a model with an
 * unknown format is prompted for, and often writes, a bare JSON object. */
const struct call_format *call_format_find(const char *template_source);
/* For templates without tools: the prompt describes the format. */
extern const struct call_format call_format_bare;

/* All markers of a row, terminated by NULL: texts of special tokens that belong to calls. */
enum { CALL_MARKERS = 14 };
void call_format_markers(const struct call_format *f, const char *out[CALL_MARKERS + 1]);
#endif

/* mark.h - where pictures stand in the text of a prompt. Private to router/media. Pure: nothing is
 * read, and nothing is written. */
#ifndef ROUTER_MEDIA_MARK_H
#define ROUTER_MEDIA_MARK_H
#include <stdbool.h>
#include <stddef.h>

/* text[at .. at + n): the picture takes its place. */
struct mark {
    size_t at, n;
    const char *url; /* [n_url] inside the text, of an inline one; else NULL */
    size_t n_url;
};

/* The first one of text[from .. n) in TGI's words, ![](URL). The URL ends at the first `)`, and may
 * be empty. False: there is none, and *out is as it was. */
bool mark_inline(const char *text, size_t n, size_t from, struct mark *out);
/* The first `marker`, which is not empty. */
bool mark_placeholder(const char *text, size_t n, size_t from, const char *marker,
                      struct mark *out);
#endif

/* mark.h - finds image markers in the text of a prompt. Private to router/media. Pure. */
#ifndef ROUTER_MEDIA_MARK_H
#define ROUTER_MEDIA_MARK_H
#include <stdbool.h>
#include <stddef.h>

/* text[at .. at + n): the marker that an image replaces. */
struct mark {
    size_t at, n;
    const char *url; /* [n_url] inside the text, for an inline marker; otherwise NULL */
    size_t n_url;
    bool video; /* it is the marker of a video */
};

/* Finds the first inline image, TGI's ![](URL), in text[from .. n). The URL ends at the first `)`
 * and may be empty. False: none, and *out is unchanged. */
bool mark_inline(const char *text, size_t n, size_t from, struct mark *out);
/* Finds the first `marker`, which must not be empty. */
bool mark_placeholder(const char *text, size_t n, size_t from, const char *marker,
                      struct mark *out);
#endif

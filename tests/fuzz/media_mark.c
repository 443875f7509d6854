// fuzz-sources: router/media/mark.c
/* Pictures in the text of a prompt: ![](URL), and placeholders. */
#include "router/media/mark.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(bool holds)
{
    if (!holds)
        abort();
}

/* Each mark is one, they ascend without touching each other, and none is passed over. */
static void check_inline(const char *text, size_t n)
{
    struct mark k;
    size_t at = 0;
    for (; mark_inline(text, n, at, &k); at = k.at + k.n) {
        require(k.at >= at && k.n >= 5 && k.at + k.n <= n);
        require(k.url == text + k.at + 4 && k.n == k.n_url + 5);
        require(!memcmp(text + k.at, "![](", 4) && text[k.at + k.n - 1] == ')');
        require(k.n_url == 0 || !memchr(k.url, ')', k.n_url));
        require(!memmem(text + at, k.at - at, "![](", 4));
    }
    const char *left = memmem(text + at, n - at, "![](", 4);
    require(!left || !memchr(left, ')', n - (size_t)(left - text)));
}

static void check_placeholders(const char *text, size_t n, const char *marker)
{
    struct mark k;
    size_t at = 0;
    for (; mark_placeholder(text, n, at, marker, &k); at = k.at + k.n) {
        require(k.at >= at && k.n == strlen(marker) && k.at + k.n <= n && !k.url && !k.n_url);
        require(!memcmp(text + k.at, marker, k.n));
    }
    require(!memmem(text + at, n - at, marker, strlen(marker)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    /* a copy of exactly its size, so that reading on is seen */
    char *text = malloc(n ? n : 1);
    require(text);
    if (n)
        memcpy(text, data, n);
    check_inline(text, n);
    check_placeholders(text, n, "<image>");
    check_placeholders(text, n, "aa");
    free(text);
    return 0;
}

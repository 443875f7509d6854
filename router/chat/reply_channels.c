/* reply_channels.c - answers in channels, as gpt-oss writes them (the harmony format). Here all
 * text is between markers, not only calls. A message is a header, <|message|>, a body and one of
 * <|end|>, <|call|> and <|return|>. The next header follows <|start|> and a role.
 *
 *   <|channel|>analysis<|message|>..<|end|><|start|>assistant<|channel|>final<|message|>..<|return|>
 *   .. to=functions.f<|channel|>commentary <|constrain|>json<|message|>{..}<|call|>
 *
 * The channel analysis is reasoning, all others are content. A message to a function is a call,
 * whose body is its arguments. The prompt ends with <|start|>assistant, or within a message.
 * Messages of one kind are separated by a line break. */
#include "common/json/json.h"
#include "router/chat/reply_impl.h"
#include <string.h>

static const char START[] = "<|start|>", CHANNEL[] = "<|channel|>", CONSTRAIN[] = "<|constrain|>",
                  MESSAGE[] = "<|message|>", TO[] = "to=", FUNCTIONS[] = "functions.";
static const char *const ends[] = {"<|end|>", "<|call|>", "<|return|>"};
static const char *const all_markers[] = {START,     CHANNEL,    CONSTRAIN,   MESSAGE,
                                          "<|end|>", "<|call|>", "<|return|>"};
enum { N_ENDS = 3, N_MARKERS = 7, MAX_HEADER = 300, MAX_BLANKS = 64 };

bool channels_marker(const char *s, size_t n)
{
    for (int i = 0; i < N_MARKERS; i++)
        if (strlen(all_markers[i]) == n && !memcmp(all_markers[i], s, n))
            return true;
    return false;
}

/* Is the shorter of the two a prefix of the other? */
static bool agrees(const char *s, size_t n, const char *word)
{
    size_t len = strlen(word);
    return !memcmp(s, word, n < len ? n : len);
}

static bool ends_in(const struct buf *b, const char *word)
{
    size_t len = strlen(word);
    return b->len >= len && !memcmp(b->p + b->len - len, word, len);
}

/* ---------------------------------------------------------------- headers */

/* The word after `key`, up to a blank or a marker. */
static size_t word_behind(const struct buf *header, const char *key, const char **word)
{
    const char *at = strstr(header->p, key);
    if (!at)
        return 0;
    at += strlen(key);
    while (is_blank(*at))
        at++;
    *word = at;
    return strcspn(at, " \t\r\n<");
}

/* The name of the function a message is addressed to, if any. */
static size_t function_of(const struct reply *r, const char **name)
{
    size_t n = r->config.format ? word_behind(&r->held, TO, name) : 0, prefix = strlen(FUNCTIONS);
    if (n > prefix && !memcmp(*name, FUNCTIONS, prefix)) {
        *name += prefix;
        return n - prefix;
    }
    for (uint32_t i = 0; n && i < r->config.n_names; i++) /* some models omit the namespace */
        if (strlen(r->config.names[i]) == n && !memcmp(r->config.names[i], *name, n))
            return n;
    return 0;
}

/* The header is complete in `held`, without its marker. */
static void header_complete(struct reply *r)
{
    const char *name, *channel = "";
    size_t n = function_of(r, &name);
    r->fresh = false;
    if (n) {
        char *copy = strndup(name, n);
        r->announced = false;
        r->oom |= !copy;
        call_announce(r, copy);
    }
    if (n && r->announced) {
        r->state = CHANNEL_CALL;
    } else {
        size_t len = word_behind(&r->held, CHANNEL, &channel);
        bool thinks = len == 8 && !memcmp(channel, "analysis", len) && !r->config.joined;
        r->state = thinks ? THINKING : CONTENT;
        r->parted = (thinks ? r->reasoning.len : r->content.len) > 0;
    }
    buf_reset(&r->held);
}

/* Can this be the beginning of a header? One after <|start|> begins with a role. */
static bool is_header(const struct reply *r, const char *s, size_t n)
{
    static const char *const first[] = {START, CHANNEL, CONSTRAIN, MESSAGE, TO};
    if (r->level)
        return n <= MAX_HEADER && !memchr(s, '\n', n);
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++)
        if (agrees(s, n, first[i]))
            return n <= MAX_HEADER;
    return n == 0;
}

static void header_byte(struct reply *r, char c)
{
    buf_ch(&r->held, c);
    if (r->held.oom)
        return;
    size_t blank = strspn(r->held.p, " \t\r\n"), n = r->held.len - blank;
    if (ends_in(&r->held, MESSAGE)) {
        r->held.len -= strlen(MESSAGE);
        r->held.p[r->held.len] = '\0';
        header_complete(r);
    } else if (ends_in(&r->held, START)) {
        r->level = 1;
        buf_reset(&r->held);
    } else if (ends_in(&r->held, ends[0]) || ends_in(&r->held, ends[1]) ||
               ends_in(&r->held, ends[2])) {
        r->level = 0; /* empty message */
        buf_reset(&r->held);
    } else if (blank > MAX_BLANKS || !is_header(r, r->held.p + blank, n)) {
        struct buf text = r->held; /* a model without channels */
        r->held = (struct buf)BUF_INIT;
        r->state = CONTENT;
        r->parted = false;
        for (size_t i = 0; i < text.len; i++)
            channels_byte(r, text.p[i]);
        buf_free(&text);
    }
}

/* ---------------------------------------------------------------- bodies */

static void body(struct reply *r, const char *s, size_t n)
{
    if (!n)
        return;
    if (r->state == CHANNEL_CALL) {
        buf_add(call_arguments(r), s, n);
        return;
    }
    if (r->parted)
        reply_text(r, r->state == THINKING, "\n", 1);
    r->parted = false;
    reply_text(r, r->state == THINKING, s, n);
}

static void body_end(struct reply *r)
{
    if (r->state == CHANNEL_CALL)
        call_complete(r);
    if (r->state == ENOUGH)
        return;
    r->state = CHANNEL_HEADER;
    r->level = 0;
    r->fresh = false;
}

static void body_byte(struct reply *r, char c)
{
    buf_ch(&r->held, c);
    while (r->held.len && !r->held.oom) {
        const char *s = r->held.p;
        size_t n = r->held.len;
        bool may = agrees(s, n, START);
        for (int i = 0; i < N_ENDS && !may; i++)
            may = agrees(s, n, ends[i]);
        if (!may) {
            body(r, s, 1);
            memmove(r->held.p, s + 1, --r->held.len);
        } else if (channels_marker(s, n)) {
            bool start = ends_in(&r->held, START);
            buf_reset(&r->held);
            body_end(r);
            if (r->state == CHANNEL_HEADER)
                r->level = start;
            return;
        } else {
            return;
        }
    }
}

void channels_byte(struct reply *r, char c)
{
    if (r->state == CHANNEL_HEADER)
        header_byte(r, c);
    else if (r->state != ENOUGH)
        body_byte(r, c);
}

/* ---------------------------------------------------------------- beginning and end */

void channels_begin(struct reply *r)
{
    const char *open = r->config.opened ? r->config.opened : "", *text = strstr(open, MESSAGE);
    r->state = CHANNEL_HEADER;
    open += strcspn(open, " <"); /* the role */
    for (const char *end = text ? text + strlen(MESSAGE) : strchr(open, '\0'); open < end; open++)
        channels_byte(r, *open);
    if (text) /* text that the prompt contains already */
        for (const char *s = text + strlen(MESSAGE); *s; s++)
            for (int i = 0; i < N_ENDS; i++)
                if (!strncmp(s, ends[i], strlen(ends[i])))
                    r->state = CHANNEL_HEADER;
}

/* The end marker is unknown: if the arguments are complete, so is the call. */
static void call_over(struct reply *r)
{
    struct buf *a = call_arguments(r);
    struct err ignored;
    cJSON *j = a->p ? json_parse(a->p, a->len, &ignored) : NULL;
    if (cJSON_IsObject(j))
        call_complete(r);
    cJSON_Delete(j);
}

void channels_end(struct reply *r)
{
    if (r->state == CHANNEL_HEADER) {
        if (r->held.len && !r->level && !strstr(r->held.p, "<|"))
            reply_text(r, false, r->held.p, r->held.len); /* too short for a header */
    } else if (r->state != ENOUGH) {
        body(r, r->held.p, r->held.len);
        if (r->state == CHANNEL_CALL)
            call_over(r);
    }
}

/* A client that sends each input line as a request and prints the text. It uses a local tokenizer,
 * or the server's. See docs/lmtp.md. */
#include "launcher/lmtp/lmtp.h"
#include "common/flag/flag.h"
#include "common/json/json.h"
#include "common/tokenizer/tokenizer.h"
#include "launcher/lmtp/lmtp_link.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

struct options {
    const char *where, *model_id, *api_key;
    bool score, logprobs;
};

#define F(field) .off = offsetof(struct options, field)
// clang-format off
static const struct flag rows[] = {
    {.name = "address", .positional = true, .env = "", .type = FLAG_STR, F(where), .def = "localhost:3000",
     .help = "`host:port` (WebSocket) or `unix:/path` (--lmtp-listen)."},
    {.name = "model-id", .type = FLAG_STR, F(model_id), .env = "",
     .help = "Directory of the model: its tokenizer is used here, and ids are sent. Default: text is sent."},
    {.name = "score", .type = FLAG_BOOL, F(score), .env = "",
     .help = "Lines are a prompt, a tab and a continuation; print the continuation's log-probability."},
    {.name = "logprobs", .type = FLAG_BOOL, F(logprobs), .env = "",
     .help = "One token a line: id, log-probability, text as JSON."},
    {.name = "api-key", .type = FLAG_STR, F(api_key), .help = "Better given as API_KEY."},
    {0},
};
// clang-format on
static const struct flag_program program = {
    .name = "launcher lmtp",
    .about = "Reads lines such as `Once upon a time max_tokens=50 temperature=1.2`, sends each as "
             "an LMTP request "
             "and prints the answer as it comes. Words with `=` at the end of a line are fields of "
             "the request.",
    .flags = rows,
};

struct client {
    struct options o;
    struct tokenizer *tok; /* NULL: the server's tokenizer */
    struct tok_scratch *scratch;
    struct lmtp_link link;
    long id; /* of the last request */
    bool tty;
};

/* ---------------------------------------------------------------- requests */

/* `name=number` or `name=null` is a field, as JSON writes a number: `x=.5` is text. */
static bool is_field(const char *word)
{
    const char *equals = strchr(word, '=');
    struct err ignored;
    if (!equals || equals == word || word[strspn(word, "abcdefghijklmnopqrstuvwxyz_")] != '=')
        return false;
    cJSON *v = json_parse(equals + 1, strlen(equals + 1), &ignored);
    const bool is = cJSON_IsNull(v) || (cJSON_IsNumber(v) && isfinite(v->valuedouble));
    cJSON_Delete(v);
    return is;
}

/* Moves the fields at the end of `line` to the message. */
static void put_fields(char *line, struct buf *out)
{
    for (char *word; (word = strrchr(line, ' ')) && is_field(word + 1); *word = 0) {
        const char *equals = strchr(word + 1, '=');
        buf_fmt(out, ",\"%.*s\":%s", (int)(equals - word - 1), word + 1, equals + 1);
    }
}

/* Adds `text` as token ids under `key`, or as text under `text_key`. */
static int put_tokens(struct client *c, const char *key, const char *text_key, const char *text,
                      unsigned flags, struct tok_ids *ids, struct buf *out, struct err *e)
{
    if (!c->tok) {
        buf_fmt(out, ",\"%s\":", text_key);
        buf_json_str(out, text, strlen(text));
        return 0;
    }
    if (tokenizer_encode(c->tok, text, strlen(text), flags, &c->scratch, ids, e) != 0)
        return -1;
    buf_fmt(out, ",\"%s\":[", key);
    for (uint32_t i = 0; i < ids->n; i++)
        buf_fmt(out, "%s%u", i ? "," : "", ids->id[i]);
    buf_ch(out, ']');
    return 0;
}

static int send_request(struct client *c, char *line, struct tok_ids *prompt, struct err *e)
{
    struct buf b = BUF_INIT;
    struct tok_ids scored = {0};
    char *tab = c->o.score ? strchr(line, '\t') : NULL;
    int rc =
        c->o.score && !tab ? err_set(e, ERR_VALIDATION, "expected: prompt, tab, continuation") : 0;
    buf_fmt(&b, "%s {\"stream_id\":%ld", c->o.score ? "SCORE" : "GENERATE", ++c->id);
    if (tab)
        *tab = 0;
    else if (!c->o.score)
        put_fields(line, &b);
    if (rc == 0)
        rc = put_tokens(c, "prompt", "text", line, TOK_ADD_SPECIAL, prompt, &b, e);
    if (rc == 0 && tab)
        rc = put_tokens(c, "scored", "scored_text", tab + 1, 0, &scored, &b, e);
    buf_ch(&b, '}');
    if (rc == 0)
        rc = b.oom ? err_nomem(e) : lmtp_link_send(&c->link, b.p, b.len, e);
    tok_ids_free(&scored);
    buf_free(&b);
    return rc;
}

/* ---------------------------------------------------------------- answers */

struct info_answer {
    struct detok text;
    double logprob;
    bool ended;
};

/* The text that the token adds. */
static void decode(const struct client *c, struct info_answer *a, const cJSON *item, bool last,
                   struct buf *piece)
{
    if (!c->tok) {
        buf_str(piece, json_str(item, "text", ""));
        return;
    }
    detok_push(&a->text, (uint32_t)json_int(item, "token", 0), piece);
    if (last)
        detok_finish(&a->text, piece);
}

static void show(const struct client *c, struct info_answer *a, const cJSON *item, bool last)
{
    struct buf piece = BUF_INIT;
    decode(c, a, item, last, &piece);
    if (c->o.logprobs) {
        struct buf json = BUF_INIT;
        buf_json_str(&json, piece.p ? piece.p : "", piece.len);
        printf("%u\t%.6g\t%s\n", (uint32_t)json_int(item, "token", 0), json_num(item, "logprob", 0),
               json.p ? json.p : "");
        buf_free(&json);
    } else if (!c->o.score && piece.len) {
        fwrite(piece.p, 1, piece.len, stdout);
    }
    fflush(stdout);
    buf_free(&piece);
}

static int take_item(const struct client *c, struct info_answer *a, const cJSON *item,
                     struct err *e)
{
    const char *error = json_str(item, "error", NULL);
    if (json_int(item, "stream_id", c->id) != c->id)
        return 0; /* of an earlier request that failed */
    if (error)
        return err_set(e, ERR_GENERATION, "%s", error);
    a->ended = json_get(item, "finish_reason") != NULL;
    a->logprob += json_num(item, "logprob", 0);
    show(c, a, item, a->ended);
    return 0;
}

static int take_message(const struct client *c, struct info_answer *a, const struct buf *message,
                        struct err *e)
{
    const char *space = memchr(message->p, ' ', message->len);
    size_t skip = space ? (size_t)(space + 1 - message->p) : 0;
    cJSON *list = json_parse(message->p + skip, message->len - skip, e);
    int rc = list ? 0 : -1;
    for (const cJSON *item = list ? list->child : NULL; item && rc == 0 && !a->ended;
         item = item->next)
        rc = take_item(c, a, item, e);
    cJSON_Delete(list);
    return rc;
}

static int answer(struct client *c, const struct tok_ids *prompt, struct err *e)
{
    struct info_answer a = {0};
    struct buf message = BUF_INIT;
    int rc = 0;
    if (c->tok && detok_init(&a.text, c->tok, prompt->id, prompt->n, true) != 0)
        rc = err_nomem(e);
    while (rc == 0 && !a.ended)
        rc = lmtp_link_receive(&c->link, &message, e) != 0 ? -1 : take_message(c, &a, &message, e);
    if (rc == 0 && c->o.score && !c->o.logprobs)
        printf("%.6g", a.logprob);
    if (!c->o.logprobs || c->o.score)
        putchar('\n');
    fflush(stdout);
    detok_free(&a.text);
    buf_free(&message);
    return rc;
}

static int one_line(struct client *c, char *line)
{
    struct err e = ERR_INIT;
    struct tok_ids prompt = {0};
    int rc = send_request(c, line, &prompt, &e) != 0 ? -1 : answer(c, &prompt, &e);
    tok_ids_free(&prompt);
    if (rc != 0)
        fprintf(stderr, "launcher lmtp: %s\n", e.msg);
    return rc != 0 && (e.kind == ERR_INCOMPLETE || e.kind == ERR_SYSTEM) ? -1 : rc != 0;
}

static int all_lines(struct client *c)
{
    char *line = NULL;
    size_t cap = 0;
    int failed = 0;
    for (ssize_t n; failed >= 0;) {
        if (c->tty)
            fputs(">>> ", stdout), fflush(stdout);
        if ((n = getline(&line, &cap, stdin)) < 0)
            break;
        line[n - (n && line[n - 1] == '\n')] = 0;
        if (!*line)
            continue;
        int rc = one_line(c, line);
        failed = rc < 0 ? -1 : failed | rc;
    }
    free(line);
    return failed;
}

int lmtp_client(int argc, char **argv)
{
    struct client c = {.link.fd = -1, .tty = isatty(STDIN_FILENO)};
    struct err e = ERR_INIT;
    int rc = flags_parse(&program, &c.o, argc, argv, environ, &e);
    const bool misread = rc < 0;
    if (rc == 0 && c.o.model_id && !(c.tok = tokenizer_load(c.o.model_id, &e)))
        rc = -1;
    if (rc == 0)
        rc = lmtp_link_open(&c.link, c.o.where, c.o.api_key, &e);
    if (rc < 0)
        fprintf(stderr, "launcher lmtp: %s\n", e.msg);
    else if (rc == 0)
        rc = all_lines(&c);
    else
        rc = 0; /* a page was printed */
    lmtp_link_close(&c.link);
    tok_scratch_free(c.scratch);
    tokenizer_free(c.tok);
    flags_free(&program, &c.o);
    return misread ? FLAGS_USAGE : rc == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

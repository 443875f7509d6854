/* grammar_lark.c - recursive descent parser of Lark's notation. */
#include "common/buf.h"
#include "common/constraint/grammar_impl.h"
#include "common/utf8.h"
#include <string.h>

/* Patterns of the terminals in Lark's module `common`. */
static const struct {
    const char *name, *pattern;
} common[] = {
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", "[0-9]+"},
    {"SIGNED_INT", "[+-]?[0-9]+"},
    {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
    {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_FLOAT", "[+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"NUMBER", "[0-9]+([eE][+-]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?"},
    {"SIGNED_NUMBER",
     "[+-]?([0-9]+([eE][+-]?[0-9]+)?|([0-9]+\\.[0-9]*|\\.[0-9]+)([eE][+-]?[0-9]+)?)"},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
};

/* ---------------------------------------------------------------- words */

static void blanks(struct grammar *g)
{
    while (grammar_more(g)) {
        char c = grammar_peek(g);
        if (c == '#' || (c == '/' && g->n - g->at > 1 && g->text[g->at + 1] == '/'))
            while (grammar_more(g) && grammar_peek(g) != '\n')
                g->at++;
        else if (c == ' ' || c == '\t' || c == '\r')
            g->at++;
        else
            return;
    }
}

static void lines(struct grammar *g)
{
    for (blanks(g); grammar_take(g, "\n"); blanks(g))
        ;
}

/* Skips line breaks if a `|` follows. */
static bool next_alternative(struct grammar *g)
{
    size_t from = g->at;
    lines(g);
    if (grammar_take(g, "|"))
        return true;
    g->at = from;
    return false;
}

static bool name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static size_t name(struct grammar *g)
{
    size_t from = g->at;
    while (name_char(grammar_peek(g), g->at == from))
        g->at++;
    return g->at - from;
}

static bool is_terminal(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != '_')
            return s[i] >= 'A' && s[i] <= 'Z';
    return false;
}

/* Ignored text before a terminal in a rule. The list is shared, because %ignore may follow
 * later. */
static gnode skip_before(struct grammar *g, gnode terminal)
{
    if (g->in_terminal)
        return terminal;
    gnode list = grammar_list(g, G_CAT), last = 0;
    gnode skip = g->ignore ? grammar_repeat(g, g->node[g->ignore].kid, 0, TERM_UNBOUNDED) : 0;
    grammar_append(g, list, &last, skip);
    grammar_append(g, list, &last, terminal);
    return list;
}

static gnode by_pattern(struct grammar *g, const char *text, size_t n)
{
    struct err e = ERR_INIT;
    term t = pattern_term(g->p, text, n, PATTERN_WHOLE, g->how, &e);
    return t == TERM_NONE ? grammar_fail(g, e.msg, "", 0) : grammar_of_term(g, t);
}

/* ---------------------------------------------------------------- terminals */

/* After the quote: the characters as \u{..}, so that they are literal. */
static bool string(struct grammar *g, struct buf *out, uint32_t *first)
{
    uint32_t n = 0;
    while (grammar_more(g) && grammar_peek(g) != '"' && grammar_peek(g) != '\n') {
        size_t len = 1;
        uint32_t cp;
        if (grammar_take(g, "\\")) {
            cp = grammar_escape(g);
        } else {
            cp = utf8_decode(g->text + g->at, g->n - g->at, &len);
            g->at += len;
        }
        *first = cp;
        n++;
        buf_fmt(out, "\\u{%x}", cp);
    }
    if (!grammar_take(g, "\""))
        grammar_fail(g, "a string without end", "", 0);
    return n == 1;
}

static gnode string_atom(struct grammar *g)
{
    struct buf text = BUF_INIT, last = BUF_INIT;
    uint32_t from = 0, to = 0;
    gnode n = 0;
    bool single = string(g, &text, &from);
    if (!g->failed && grammar_take(g, "..")) {
        if (!single || !grammar_take(g, "\"") || !string(g, &last, &to) || to < from)
            grammar_fail(g, "a bad range of characters", "", 0);
        else
            n = grammar_of_term(g, grammar_char(g, from, to));
    } else if (!g->failed) {
        bool fold =
            !name_char(g->n - g->at > 1 ? g->text[g->at + 1] : ' ', false) && grammar_take(g, "i");
        buf_str(&last, fold ? "(?i)" : "");
        buf_add(&last, text.p ? text.p : "", text.len);
        if (last.oom)
            term_no_memory(g->p);
        n = last.oom ? grammar_fail(g, "no memory", "", 0)
                     : by_pattern(g, last.p ? last.p : "", last.len);
    }
    buf_free(&text);
    buf_free(&last);
    return n;
}

/* After the slash. */
static gnode regex_atom(struct grammar *g)
{
    struct buf text = BUF_INIT, flags = BUF_INIT;
    while (grammar_more(g) && grammar_peek(g) != '/' && grammar_peek(g) != '\n') {
        if (grammar_peek(g) == '\\' && g->n - g->at > 1) {
            if (g->text[g->at + 1] != '/')
                buf_ch(&text, '\\');
            g->at++;
        }
        buf_ch(&text, g->text[g->at++]);
    }
    if (!grammar_take(g, "/"))
        grammar_fail(g, "a regular expression without end", "", 0);
    while (grammar_peek(g) && strchr("imslux", grammar_peek(g))) {
        if (strchr("mlx", grammar_peek(g)))
            grammar_fail(g, "this flag of a regular expression is not supported", "", 0);
        buf_fmt(&flags, "(?%c)", g->text[g->at++]);
    }
    buf_add(&flags, text.p ? text.p : "", text.len);
    if (flags.oom || text.oom)
        term_no_memory(g->p);
    gnode n = g->failed || flags.oom || text.oom ? grammar_fail(g, "no memory", "", 0)
                                                 : by_pattern(g, flags.p ? flags.p : "", flags.len);
    buf_free(&text);
    buf_free(&flags);
    return n;
}

/* ---------------------------------------------------------------- rules */

static gnode alternatives(struct grammar *g, char end);

static gnode group(struct grammar *g, char end)
{
    if (++g->depth > GRAMMAR_MAX_DEPTH)
        return grammar_fail(g, "groups nested too deeply", "", 0);
    gnode n = alternatives(g, end);
    g->depth--;
    lines(g);
    if (grammar_peek(g) != end)
        return grammar_fail(g, "a group without end", "", 0);
    g->at++;
    return end == ']' ? grammar_repeat(g, n, 0, 1) : n;
}

static gnode atom(struct grammar *g)
{
    const char *at = g->text + g->at;
    if (grammar_take(g, "("))
        return group(g, ')');
    if (grammar_take(g, "["))
        return group(g, ']');
    if (grammar_take(g, "\""))
        return skip_before(g, string_atom(g));
    if (grammar_take(g, "/"))
        return skip_before(g, regex_atom(g));
    if (grammar_take(g, "%"))
        return grammar_fail(g, "a directive that is not supported:", at, 1 + name(g));
    size_t n = name(g);
    if (!n)
        return grammar_fail(g, "an unexpected character", at, g->at < g->n);
    if (grammar_peek(g) == '{')
        return grammar_fail(g, "a template is not supported:", at, n);
    uint32_t rule = grammar_rule(g, at, n);
    gnode ref = grammar_ref(g, rule);
    if (!is_terminal(at, n))
        return g->in_terminal ? grammar_fail(g, "a terminal of the rule", at, n) : ref;
    return skip_before(g, ref);
}

static gnode quantified(struct grammar *g, gnode n)
{
    for (int i = 0; grammar_more(g); i++) {
        uint32_t lo = 0, hi = TERM_UNBOUNDED;
        if (i > GRAMMAR_MAX_DEPTH)
            return grammar_fail(g, "repetitions nested too deeply", "", 0);
        if (grammar_take(g, "~")) {
            blanks(g);
            if (!grammar_number(g, &lo))
                return grammar_fail(g, "bad counts", "", 0);
            hi = lo;
            if (grammar_take(g, "..") && (!grammar_number(g, &hi) || hi < lo))
                return grammar_fail(g, "bad counts", "", 0);
        } else if (!grammar_quantifier(g, &lo, &hi)) {
            return n;
        }
        n = grammar_repeat(g, n, lo, hi);
        blanks(g);
    }
    return n;
}

/* `end`: the closing bracket of the group; '\n': the end of the rule. */
static gnode alternatives(struct grammar *g, char end)
{
    gnode all = grammar_list(g, G_ALT), last_all = 0;
    do {
        gnode list = grammar_list(g, G_CAT), last = 0;
        for (blanks(g); grammar_more(g); end == '\n' ? blanks(g) : lines(g)) {
            char c = grammar_peek(g);
            if (c == '|' || c == '\n' || c == ')' || c == ']')
                break;
            if (grammar_take(g, "->")) { /* an alias names the tree node: skipped */
                blanks(g);
                name(g);
                continue;
            }
            gnode one = atom(g);
            blanks(g);
            grammar_append(g, list, &last, quantified(g, one));
        }
        grammar_append(g, all, &last_all, list);
    } while (!g->failed && next_alternative(g));
    return all;
}

static void define(struct grammar *g, const char *at, size_t n, gnode body)
{
    uint32_t rule = grammar_rule(g, at, n);
    if (!g->failed && g->rule[rule].body)
        grammar_fail(g, "two rules of the name", at, n);
    if (!g->failed)
        g->rule[rule].body = body;
}

static void import_one(struct grammar *g, const char *at, size_t n)
{
    const char *as = at;
    size_t n_as = n, i = 0, count = sizeof(common) / sizeof(common[0]);
    blanks(g);
    if (grammar_take(g, "->")) {
        blanks(g);
        as = g->text + g->at;
        n_as = name(g);
    }
    while (i < count && (strlen(common[i].name) != n || memcmp(common[i].name, at, n) != 0))
        i++;
    if (i == count || !n_as) {
        grammar_fail(g, "unknown import:", at, n);
        return;
    }
    gnode body = grammar_list(g, G_ALT), last = 0;
    grammar_append(g, body, &last, by_pattern(g, common[i].pattern, strlen(common[i].pattern)));
    define(g, as, n_as, body);
}

/* After %import: common.NAME, or common (NAME, NAME). */
static void import(struct grammar *g)
{
    blanks(g);
    if (!grammar_take(g, "common")) {
        grammar_fail(g, "only the module `common` can be imported", "", 0);
        return;
    }
    blanks(g);
    bool several = grammar_take(g, "(");
    if (!several && !grammar_take(g, ".")) {
        grammar_fail(g, "a bad %import", "", 0);
        return;
    }
    do {
        blanks(g);
        const char *at = g->text + g->at;
        size_t n = name(g);
        import_one(g, at, n);
        blanks(g);
    } while (!g->failed && several && grammar_take(g, ","));
    if (several && !grammar_take(g, ")"))
        grammar_fail(g, "a bad %import", "", 0);
}

/* %ignore applies to the whole text, so all of them are read first. */
static void read_ignored(struct grammar *g)
{
    gnode all = grammar_list(g, G_ALT), last = 0;
    g->in_terminal = true;
    while (grammar_more(g)) {
        if (grammar_take(g, "%ignore"))
            grammar_append(g, all, &last, alternatives(g, '\n'));
        while (grammar_more(g) && !grammar_take(g, "\n"))
            g->at++;
        blanks(g);
    }
    g->at = 0;
    if (last)
        g->ignore = grammar_repeat(g, all, 0, TERM_UNBOUNDED);
}

/* llguidance's first line, with options. */
static void header(struct grammar *g)
{
    blanks(g);
    bool none = grammar_take(g, "{");
    blanks(g);
    if (!none || !grammar_take(g, "}"))
        grammar_fail(g, "options of %llguidance are not supported", "", 0);
}

/* After `capture`: nothing, or = and the name. */
static void capture_name(struct grammar *g)
{
    struct buf text = BUF_INIT;
    uint32_t first;
    if (!grammar_take(g, "="))
        return;
    blanks(g);
    if (grammar_take(g, "\""))
        string(g, &text, &first);
    else
        grammar_fail(g, "the name of a capture is a string", "", 0);
    buf_free(&text);
}

/* After `suffix`: = and a string. TERM_NONE: failed. */
static term suffix_of(struct grammar *g)
{
    gnode n = 0;
    bool is = grammar_take(g, "=");
    blanks(g);
    if (is && grammar_take(g, "\""))
        n = string_atom(g);
    const term t = n && !g->failed ? g->node[n].t : TERM_NONE;
    if (t == TERM_NONE || term_nullable(g->p, t))
        grammar_fail(g, "a `suffix` is a string that is not empty", "", 0);
    return g->failed ? TERM_NONE : t;
}

static bool is_word(const char *at, size_t n, const char *word)
{
    return n == strlen(word) && !memcmp(at, word, n);
}

/* llguidance's attributes of a rule. `capture` names a part of the text for the client, which finds
 * it by itself; `suffix` ends the rule's text. Others are about tokens (`max_tokens`,
 * `temperature`), or need that text is taken back (`stop`). Returns `suffix`; TERM_NONE: none. */
static term attributes(struct grammar *g)
{
    term suffix = TERM_NONE;
    blanks(g);
    if (!grammar_take(g, "["))
        return suffix;
    do {
        blanks(g);
        const char *at = g->text + g->at;
        const size_t n = name(g);
        blanks(g);
        if (is_word(at, n, "capture"))
            capture_name(g);
        else if (is_word(at, n, "suffix"))
            suffix = suffix_of(g);
        else
            grammar_fail(g, "an attribute of a rule that is not supported:", at, n);
        blanks(g);
    } while (!g->failed && grammar_take(g, ","));
    if (!grammar_take(g, "]"))
        grammar_fail(g, "attributes of a rule without end", "", 0);
    return suffix;
}

/* The body of a rule that ends with `suffix`, in the form of all bodies: alternatives of lists. */
static gnode ended(struct grammar *g, gnode body, term suffix)
{
    gnode list = grammar_list(g, G_CAT), all = grammar_list(g, G_ALT), last = 0, last_all = 0;
    grammar_append(g, list, &last, grammar_until(g, body, suffix));
    grammar_append(g, all, &last_all, list);
    return all;
}

static void statement(struct grammar *g)
{
    if (grammar_take(g, "%llguidance")) {
        header(g);
    } else if (grammar_take(g, "%import")) {
        import(g);
    } else if (grammar_take(g, "%ignore")) {
        while (grammar_more(g) && grammar_peek(g) != '\n')
            g->at++;
    } else if (grammar_peek(g) == '%') {
        atom(g); /* refuses it by name */
    } else {
        while (grammar_take(g, "?") || grammar_take(g, "!"))
            ;
        const char *at = g->text + g->at;
        size_t n = name(g);
        uint32_t priority;
        g->in_terminal = is_terminal(at, n);
        const term suffix = attributes(g);
        blanks(g);
        if (grammar_take(g, "."))
            grammar_number(g, &priority);
        blanks(g);
        if (!n || !grammar_take(g, ":"))
            grammar_fail(g, grammar_peek(g) == '{' ? "a template is not supported:" : "not a rule",
                         at, n);
        else {
            const gnode body = alternatives(g, '\n');
            define(g, at, n, suffix == TERM_NONE ? body : ended(g, body, suffix));
        }
    }
}

int grammar_parse_lark(struct grammar *g)
{
    read_ignored(g);
    for (lines(g); grammar_more(g); lines(g)) {
        statement(g);
        blanks(g);
        if (!g->failed && g->at < g->n && grammar_peek(g) != '\n')
            grammar_fail(g, "an unexpected character", g->text + g->at, 1);
    }
    for (uint32_t i = 0; i < g->n_rules && !g->failed; i++)
        if (g->rule[i].n_name == 5 && !memcmp(g->rule[i].name, "start", 5))
            return (int)i;
    grammar_fail(g, "undefined rule", "start", 5);
    return -1;
}

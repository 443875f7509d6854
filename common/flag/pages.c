/* Renders a flag table: help, markdown, man page, completion. */
#include "common/flag/env.h"
#include <ctype.h>
#include <string.h>

static const char *value_word(const struct flag *f)
{
    static const char *const words[] = {
        [FLAG_BOOL] = "bool",    [FLAG_U32] = "number", [FLAG_U64] = "number",
        [FLAG_F64] = "number",   [FLAG_STR] = "text",   [FLAG_ENUM] = "choice",
        [FLAG_LIST] = "text,..."};
    return f->unit ? f->unit : words[f->type];
}

static void wrapped(FILE *out, const char *text, int indent)
{
    int col = indent;
    fprintf(out, "%*s", indent, "");
    while (*text) {
        int n = (int)strcspn(text, " ");
        if (col + n > 96 && col > indent)
            fprintf(out, "\n%*s", indent, ""), col = indent;
        else if (col > indent)
            fputc(' ', out);
        fprintf(out, "%.*s", n, text);
        col += n + 1;
        text += n + (text[n] == ' ');
    }
    fputc('\n', out);
}

static void choices(const struct flag *f, FILE *out, const char *sep)
{
    for (int i = 0; f->choices && f->choices[i]; i++)
        fprintf(out, "%s%.*s", i ? sep : "", (int)strcspn(f->choices[i], "="), f->choices[i]);
}

static void help_option(const struct flag *f, FILE *out)
{
    char env[64];
    flag_env_name(f, env);
    fputc('\n', out);
    if (f->positional)
        fprintf(out, "  <%s>\n", f->name);
    else
        fprintf(out, "  %s%c%s--%s <%s>\n", f->letter ? "-" : "", f->letter ? f->letter : ' ',
                f->letter ? ", " : "", f->name, value_word(f));
    wrapped(out, f->help, 10);
    fprintf(out, "          ");
    if (f->choices)
        fprintf(out, "[choices: "), choices(f, out, ", "), fprintf(out, "] ");
    if (env[0])
        fprintf(out, "[env: %s] ", env);
    fprintf(out, f->def ? "[default: %s]\n" : "[default: unset]\n", f->def);
}

/* What stands before the options: usage, purpose, commands. */
static void help_top(const struct flag_program *p, FILE *out)
{
    const bool alone = !p->commands || p->flags->name; /* the program also runs without a command */
    fprintf(out, alone ? "Usage: %s [options]" : "Usage: %s COMMAND [options]", p->name);
    for (const struct flag *f = p->flags; f->name; f++)
        if (f->positional)
            fprintf(out, f->required ? " <%s>" : " [%s]", f->name);
    fprintf(out, "\n\n");
    wrapped(out, p->about, 0);
    if (p->commands)
        fprintf(out, "\nCommands (%s COMMAND --help lists the options of one):\n", p->name);
    for (const struct flag_command *c = p->commands; c && c->name; c++)
        fprintf(out, "  %-18s %s\n", c->name, c->about);
}

static bool matches(const struct flag *f, const char *word)
{
    return !word || strcasestr(f->name, word) || strcasestr(f->help, word);
}

void flags_help(const struct flag_program *p, const char *word, FILE *out)
{
    const char *heading = NULL, *printed = NULL;
    bool any = false;
    if (!word)
        help_top(p, out);
    for (const struct flag *f = p->flags; f->name; f++) {
        heading = f->heading ? f->heading : heading;
        if (!matches(f, word))
            continue;
        if (heading != printed)
            fprintf(out, "\n%s:\n", heading);
        printed = heading;
        any = true;
        help_option(f, out);
    }
    if (word && !any)
        fprintf(out, "No option of %s has `%s` in its name or description.\n", p->name, word);
    if (!word)
        fprintf(out, "\n  -h, --help [WORD]: all options, or those with this word in name or text\n"
                     "  -V, --version\n  --help-markdown, --help-man, --completion-bash\n");
}

static void markdown_heading(FILE *out, const char *heading)
{
    if (heading)
        fprintf(out, "\n## %s\n", heading);
    fprintf(out, "\n| option | environment | value | default | meaning |\n|---|---|---|---|---|\n");
}

void flags_markdown(const struct flag_program *p, FILE *out)
{
    char env[64];
    fprintf(out, "# %s\n\n%s\n", p->name, p->about);
    for (const struct flag *f = p->flags; f->name; f++) {
        if (f->heading || f == p->flags)
            markdown_heading(out, f->heading);
        flag_env_name(f, env);
        fprintf(out, "| `%s%s` | %s%s%s | ", f->positional ? "" : "--", f->name, env[0] ? "`" : "",
                env, env[0] ? "`" : "");
        if (f->choices)
            choices(f, out, ", ");
        else
            fputs(value_word(f), out);
        fprintf(out, " | %s | %s |\n", f->def ? f->def : "", f->help);
    }
}

/* Escapes backslashes, and lines that roff would read as requests. */
static void man_text(FILE *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\')
            fputs("\\e", out);
        else if (s[i] == '-')
            fputs("\\-", out);
        else if (!i && (s[i] == '.' || s[i] == '\''))
            fprintf(out, "\\&%c", s[i]);
        else
            fputc(s[i], out);
    }
}

/* The page's name: a subcommand is joined with a hyphen, as in a file name. */
static void man_name(FILE *out, const char *name)
{
    for (; *name; name++)
        fputc(*name == ' ' ? '-' : *name, out);
}

/* The summary for whatis and apropos: up to the first colon or full stop. */
static size_t summary(const char *about)
{
    size_t n = 0;
    while (about[n] &&
           !((about[n] == '.' || about[n] == ':') && (!about[n + 1] || about[n + 1] == ' ')))
        n++;
    return n;
}

static void man_option(FILE *out, const struct flag *f)
{
    char env[64];
    fprintf(out, ".TP\n\\fB%s", f->positional ? "" : "\\-\\-");
    man_text(out, f->name, strlen(f->name));
    fprintf(out, "\\fR \\fI%s\\fR\n", value_word(f));
    man_text(out, f->help, strlen(f->help));
    flag_env_name(f, env);
    if (env[0])
        fprintf(out, " Environment: %s.", env);
    if (f->def) {
        fputs(" Default: ", out);
        man_text(out, f->def, strlen(f->def));
        fputc('.', out);
    }
    fputc('\n', out);
}

void flags_man(const struct flag_program *p, FILE *out)
{
    fputs(".TH \"", out);
    man_name(out, p->name);
    fprintf(out, "\" 1 \"\" \"%s\"\n.SH NAME\n", VERSION);
    man_name(out, p->name);
    fputs(" \\- ", out);
    man_text(out, p->about, summary(p->about));
    fputs("\n.SH DESCRIPTION\n", out);
    man_text(out, p->about, strlen(p->about));
    fputs(p->commands ? "\n.SH COMMANDS\n" : "\n", out);
    for (const struct flag_command *c = p->commands; c && c->name; c++) {
        fputs(".TP\n\\fB", out);
        man_text(out, c->name, strlen(c->name));
        fputs("\\fR\n", out);
        man_text(out, c->about, strlen(c->about));
        fputc('\n', out);
    }
    fputs(p->flags->name ? ".SH OPTIONS\n" : "", out);
    for (const struct flag *f = p->flags; f->name; f++) {
        if (f->heading) {
            fputs(".SS \"", out);
            man_text(out, f->heading, strlen(f->heading));
            fputs("\"\n", out);
        }
        man_option(out, f);
    }
}

void flag_completion(const struct flag_program *p, FILE *out)
{
    fprintf(out, "complete -W \"");
    for (const struct flag_command *c = p->commands; c && c->name; c++)
        fprintf(out, "%s ", c->name);
    for (const struct flag *f = p->flags; f->name; f++)
        if (!f->positional)
            fprintf(out, "--%s ", f->name);
    fprintf(out, "--help --version\" %.*s\n", (int)strcspn(p->name, " "), p->name);
}

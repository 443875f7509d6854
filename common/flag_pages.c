/* What a flag table looks like on paper: help, markdown, man page, completion. */
#include "common/flag_env.h"
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
        fprintf(out, "%.*s", n, text);
        col += n + 1;
        text += n;
        if (*text == ' ')
            text++, *text ? fputc(' ', out) : 0;
    }
    fputc('\n', out);
}

static void choices(const struct flag *f, FILE *out, const char *sep)
{
    for (int i = 0; f->choices && f->choices[i]; i++)
        fprintf(out, "%s%s", i ? sep : "", f->choices[i]);
}

void flags_help(const struct flag_program *p, FILE *out)
{
    char env[64];
    fprintf(out, "Usage: %s [options]", p->name);
    for (const struct flag *f = p->flags; f->name; f++)
        if (f->positional)
            fprintf(out, f->required ? " <%s>" : " [%s]", f->name);
    fprintf(out, "\n\n");
    wrapped(out, p->about, 0);
    for (const struct flag *f = p->flags; f->name; f++) {
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
    fprintf(out,
            "\n  -h, --help\n  -V, --version\n  --help-markdown, --help-man, --completion-bash\n");
}

void flags_markdown(const struct flag_program *p, FILE *out)
{
    char env[64];
    fprintf(out,
            "# %s\n\n%s\n\n| option | environment | value | default | meaning "
            "|\n|---|---|---|---|---|\n",
            p->name, p->about);
    for (const struct flag *f = p->flags; f->name; f++) {
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

void flags_man(const struct flag_program *p, FILE *out)
{
    char env[64];
    fprintf(out, ".TH \"%s\" 1 \"\" \"%s\"\n.SH NAME\n%s\n.SH DESCRIPTION\n%s\n.SH OPTIONS\n",
            p->name, VERSION, p->name, p->about);
    for (const struct flag *f = p->flags; f->name; f++) {
        flag_env_name(f, env);
        fprintf(out, ".TP\n\\fB%s%s\\fR \\fI%s\\fR\n%s", f->positional ? "" : "\\-\\-", f->name,
                value_word(f), f->help);
        if (env[0])
            fprintf(out, " Environment: %s.", env);
        if (f->def)
            fprintf(out, " Default: %s.", f->def);
        fputc('\n', out);
    }
}

void flag_completion(const struct flag_program *p, FILE *out)
{
    fprintf(out, "complete -W \"");
    for (const struct flag *f = p->flags; f->name; f++)
        if (!f->positional)
            fprintf(out, "--%s ", f->name);
    fprintf(out, "--help --version\" %.*s\n", (int)strcspn(p->name, " "), p->name);
}

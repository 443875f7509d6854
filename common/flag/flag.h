/* flag.h - command-line options as a table.
 *
 * One table per program defines all options. The parser, environment names, --help, the markdown
 * and man pages, and shell completion are derived from its rows. A value comes from the command
 * line, else from the environment, else from `def`. Strings point into those and are not copied. */
#ifndef COMMON_FLAG_FLAG_H
#define COMMON_FLAG_FLAG_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Type of the field at `off`: BOOL bool, U32 uint32_t, U64 uint64_t, F64 double, STR const char *,
 * ENUM uint32_t (index into choices), LIST struct flag_list (the option may be repeated; each value
 * is split at commas). */
enum flag_type { FLAG_BOOL, FLAG_U32, FLAG_U64, FLAG_F64, FLAG_STR, FLAG_ENUM, FLAG_LIST };

enum { FLAGS_USAGE = 2 }; /* exit status for an invalid command line */

struct flag_list {
    char **v; /* owned by the config; see flags_free() */
    uint32_t n;
};

struct flag {
    const char *name; /* "max-input-tokens": --max-input-tokens, MAX_INPUT_TOKENS */
    char letter;      /* 'p' for -p; 0: none */
    /* taken from arguments without dashes, in table order; also has an environment name */
    bool positional;
    bool required;
    enum flag_type type;
    size_t off;
    const char *def; /* default as text; NULL: unset (0, NULL, empty), or computed later */
    const char *env; /* environment name if not derived from `name`; "": none */
    /* "tokens", "seconds", NULL. Numbers of "bytes" may end with a unit: 64MiB, 64Mi (2^20), 64M.
     */
    const char *unit;
    double min, max; /* range of numbers, checked if min < max */
    /* FLAG_ENUM: NULL-terminated. "half=float16" is another word for a choice of the list. */
    const char *const *choices;
    const char *help;    /* one paragraph of full sentences */
    const char *heading; /* of this row and those after it, on the pages; NULL: as before */
    unsigned tag;        /* for the table's owner; not used by flag.c */
};

struct flag_command { /* a subcommand, for help pages and suggestions; the caller runs it */
    const char *name, *about;
};

/* What happens to an option of another server. */
enum flag_foreign_kind {
    FOREIGN_REFUSED,    /* with its advice */
    FOREIGN_SAME,       /* taken as the option `here` */
    FOREIGN_SETS,       /* takes no value and stands for that option with `value` */
    FOREIGN_MAPS,       /* that option; `value` has theirs and ours, "99=auto 0=cpu" */
    FOREIGN_NONE,       /* takes no value and has no effect, because of its advice */
    FOREIGN_NONE_OF_IT, /* the same, with a value */
};

/* An option of another server: users type what they know. */
struct flag_foreign {
    const char *name; /* as typed: "--ctx-size", "-c"; "": the one word without dashes */
    enum flag_foreign_kind kind;
    const char *here, *value; /* a row's name, and its value */
    /* "use --max-total-tokens": names the option here, or says why none is needed; of an option
     * that is taken as another one: how they differ, or NULL */
    const char *advice;
};

struct flag_program {
    const char *name; /* "router", "model-server serve" */
    /* one paragraph; the text up to its first colon or full stop is the summary */
    const char *about;
    const struct flag *flags;            /* ends with name == NULL */
    const struct flag_command *commands; /* ends with name == NULL; NULL: none */
    const struct flag_foreign *foreign;  /* ends with name == NULL; NULL: none */
};

/* Fills `cfg`, which must be zeroed; argv[0] is skipped. 0: run. 1: a page was printed on stdout
 * (--help, --version, --help-markdown, --help-man, --completion-bash): exit 0. -1: `e`
 * (ERR_VALIDATION) names the option or variable and the expected value: print it after the
 * program's name and exit FLAGS_USAGE. Options of other servers are taken as their rows in
 * `foreign` say. Errors about unknown options and commands have the advice of such a row, else
 * suggest the nearest known one. `--help WORD` prints the options with this word in name or text
 * alone. */
int flags_parse(const struct flag_program *p, void *cfg, int argc, char **argv, char *const *envp,
                struct err *e);
/* The row of the option whose name is name[0 .. n), without dashes; NULL: none. */
const struct flag *flag_named(const struct flag_program *p, const char *name, size_t n);
/* True if the option was given on the command line or in the environment. */
bool flags_given(const struct flag_program *p, const char *name, int argc, char **argv,
                 char *const *envp);
/* Calls `each` for every option of another server on a command line that was parsed. */
void flags_foreign(const struct flag_program *p, int argc, char **argv,
                   void (*each)(const struct flag_foreign *));
/* What the row of `word` advises, as "use --max-total-tokens"; "" if there is no such row. */
enum { FLAG_ADVICE_MAX = 160 };
void flag_foreign_advice(const struct flag_program *p, const char *word, char out[FLAG_ADVICE_MAX]);
void flags_free(const struct flag_program *p, void *cfg);

/* Appends the value in `cfg` as text for another program's command line or environment. False:
 * nothing to pass on (unset, false, empty; 0 or the first choice of an option without a default).
 * Lists are joined with commas. */
bool flag_text(const struct flag *f, const void *cfg, struct buf *out);

/* The options of a program as the text of --help, as a page of docs/, and as a man page. `word`:
 * only options with it in name or text, in any case; NULL: all. */
void flags_help(const struct flag_program *p, const char *word, FILE *out);
void flags_markdown(const struct flag_program *p, FILE *out);
void flags_man(const struct flag_program *p, FILE *out);
#endif

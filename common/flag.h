/* flag.h - command-line options as data.
 *
 * One table per program is the only place where an option exists. From its rows come the parser,
 * the environment names, --help, the markdown and man pages and the shell completion. A value is
 * taken from the command line, else from the environment, else from `def`; strings point into those
 * and live as long as they do. */
#ifndef COMMON_FLAG_H
#define COMMON_FLAG_H
#include "common/buf.h"
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The field behind `off` is: BOOL bool, U32 uint32_t, U64 uint64_t, F64 double, STR const char *,
 * ENUM uint32_t (index into choices), LIST struct flag_list (option may be repeated; an environment
 * value and each occurrence are also split at commas). */
enum flag_type { FLAG_BOOL, FLAG_U32, FLAG_U64, FLAG_F64, FLAG_STR, FLAG_ENUM, FLAG_LIST };

enum { FLAGS_USAGE = 2 }; /* exit status of a command line that cannot be read */

struct flag_list {
    char **v; /* owned by the config: flags_free() */
    uint32_t n;
};

struct flag {
    const char *name; /* "max-input-tokens": --max-input-tokens, MAX_INPUT_TOKENS */
    char letter;      /* 'p' for -p, 0: none */
    bool positional;  /* taken from the words without dashes, in table order; still has its
                         environment name */
    bool required;
    enum flag_type type;
    size_t off;
    const char *def;  /* default as text; NULL: unset (0, NULL, empty) until it is computed */
    const char *env;  /* environment name where it is not NAME; "" = none */
    const char *unit; /* "tokens", "seconds", NULL */
    double min, max;  /* checked for numbers when min < max */
    const char *const *choices; /* FLAG_ENUM: NULL-terminated */
    const char *help;           /* one paragraph, full sentences */
    unsigned tag;               /* for the table's owner; flag.c does not look at it */
};

struct flag_command { /* a subcommand, for the pages and for slips; the caller runs it */
    const char *name, *about;
};

struct flag_program {
    const char *name;         /* "router", "model-server serve" */
    const char *about;        /* one paragraph; up to its first colon or full stop, the summary */
    const struct flag *flags; /* ends with name == NULL */
    const struct flag_command *commands; /* ends with name == NULL; NULL: none */
};

/* Fill `cfg` (zeroed by the caller). argv[0] is skipped. 0: run; 1: a page was printed on stdout
 * (--help, --version, --help-markdown, --help-man, --completion-bash): exit 0; -1: `e` names the
 * option or variable and what was expected: print it behind the program's name, exit FLAGS_USAGE
 * (ERR_VALIDATION). Unknown options and commands are answered with the nearest that is known. */
int flags_parse(const struct flag_program *p, void *cfg, int argc, char **argv, char *const *envp,
                struct err *e);
/* True if the option was given on the command line or in the environment (not defaulted). */
bool flags_given(const struct flag_program *p, const char *name, int argc, char **argv,
                 char *const *envp);
void flags_free(const struct flag_program *p, void *cfg);

/* The value in `cfg` as another program's command line or environment would give it: a parent hands
 * its options down with it. False: nothing to hand down (unset, false, empty; 0 or the first choice
 * of an option without a default). Lists are joined with commas. */
bool flag_text(const struct flag *f, const void *cfg, struct buf *out);

void flags_help(const struct flag_program *p, FILE *out);
void flags_markdown(const struct flag_program *p, FILE *out);
void flags_man(const struct flag_program *p, FILE *out);
#endif

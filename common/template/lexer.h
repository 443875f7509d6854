/* lexer.h - tokenizes template source: text outside of tags (with white space control applied:
 * trim_blocks, lstrip_blocks, - and +), and the tokens inside tags. Comments are dropped. */
#ifndef COMMON_TEMPLATE_LEXER_H
#define COMMON_TEMPLATE_LEXER_H
#include "common/template/vm.h"

/* As in Jinja's lexer. The value `v` is set where it is noted; all others are their own name. */
enum token_type {
    T_EOF,
    T_DATA, /* v */
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,    /* v: a string */
    T_STRING,  /* v */
    T_INTEGER, /* v */
    T_FLOAT,   /* v */
    T_ADD,
    T_SUB,
    T_DIV,
    T_FLOORDIV,
    T_MUL,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON,
};

/* `line` counts from 1, for messages. */
struct token {
    enum token_type type;
    uint32_t line;
    struct val v;
};

/* In the arena of the template. */
struct tokens {
    struct token *v;
    uint32_t n, cap;
};

/* All tokens of a template, T_EOF last; vm_fail() on a syntax error. */
void lex_template(struct vm *vm, const char *src, size_t n, struct tokens *out);
const char *token_name(enum token_type t); /* as in Jinja's messages: "end of print statement" */
#endif

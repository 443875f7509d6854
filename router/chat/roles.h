/* roles.h - conversations that a chat template refuses, as it may accept them.
 *
 * Many templates take one system message, at the front, and a user and an assistant who alternate;
 * others take no system message. Agents send several, and users twice in a row. */
#ifndef ROUTER_CHAT_ROLES_H
#define ROUTER_CHAT_ROLES_H
#include <cjson/cJSON.h>
#include <stdbool.h>

enum roles_fit { /* each includes the changes before it */
                 ROLES_AS_GIVEN,
                 ROLES_ONE_SYSTEM, /* all system messages are one, at the front */
                 ROLES_ALTERNATE, /* consecutive messages of the user, or of the assistant, are one;
                                   * without `calls`, results of calls are the user's */
                 ROLES_NO_SYSTEM, /* the system message is the beginning of the user's first */
                 ROLES_FITS
};

/* Renames the role `developer` of `message` to `system`. -1: out of memory. */
int roles_rename_developer(cJSON *message);

/* `calls`: the template renders calls and their results.
 * Changes the list `messages`, whose contents are strings, lists of parts, or absent. Texts are
 * joined with an empty line between them, as Mistral's own tokenizer does. Messages with calls are
 * not joined. 1: changed; 0: nothing to change; -1: out of memory. */
int roles_fit(cJSON *messages, enum roles_fit how, bool calls);
#endif

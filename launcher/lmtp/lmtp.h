/* lmtp.h - `launcher lmtp`: a command-line LMTP client. */
#ifndef LAUNCHER_LMTP_H
#define LAUNCHER_LMTP_H

/* Sends one request per input line and prints its text as it arrives. Returns the exit code: 0 if
 * all were answered. */
int lmtp_client(int argc, char **argv);
#endif

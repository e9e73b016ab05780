/*
 * session_settings.h
 *		Settings of the session that the workers' sessions must share.
 */
#ifndef STRATA_SESSION_SETTINGS_H
#define STRATA_SESSION_SETTINGS_H

#include "lib/stringinfo.h"

#include "wire/connection.h"

/*
 * Append SET commands for what differs between this session and the worker's, and note
 * them as sent; returns their number.  *lexical tells that one of them changes how SQL text is
 * read: then they must be executed before the statement is sent.
 * Costs a few comparisons when nothing changed.
 */
extern int session_settings_append(StringInfo buffer, WorkerConnection *conn, bool *lexical);

/* The worker's (sub)transaction rolls back, and with it settings sent in it. */
extern void session_settings_rolled_back(WorkerConnection *conn);

/* The worker's transaction ended well: what was sent stays. */
extern void session_settings_committed(WorkerConnection *conn);

/* Does the worker's session have the synchronous_commit that ours has now? */
extern bool session_settings_synchronous_commit_is_sent(WorkerConnection *conn);

/* The worker's synchronous_commit was set to something else than ours. */
extern void session_settings_synchronous_commit_changed(WorkerConnection *conn);

/* The connection goes. */
extern void session_settings_forget(WorkerConnection *conn);

#endif

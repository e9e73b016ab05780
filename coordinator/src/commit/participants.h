/*
 * participants.h
 *		The connections that a transaction's end concerns; for commit_protocol.c and commit_abort.c.
 *
 * Nothing here throws, and nothing but participants_reserve() needs memory.
 */
#ifndef STRATA_PARTICIPANTS_H
#define STRATA_PARTICIPANTS_H

#include "commit/in_doubt.h"
#include "commit/prepared_gid.h"
#include "wire/connection.h"

/* What was selected last, and room for a command for each. */
extern WorkerConnection **participants;
extern const char **participant_commands;

/* Make room for all connections of the session; to be called before any of them is used. */
extern void participants_reserve(void);

/* Collect the connected ones that fulfil the condition into participants[]; returns how many. */
typedef bool (*ParticipantPredicate)(const WorkerConnection *conn);
extern int participants_select(ParticipantPredicate predicate);

/* The name of the transaction that is prepared there. */
extern PreparedGid participant_gid(const WorkerConnection *conn);

/* The resolver will end it; a WARNING says so. */
extern void participant_leave_in_doubt(const WorkerConnection *conn, InDoubtDecision decision,
									   InDoubtReason reason);

/* Nothing is prepared there any more, or it is the resolver's. */
extern void participant_forget_prepared(WorkerConnection *conn);

/* The workers' part is over, or the resolver's. */
extern void participants_end(bool doubt);

#endif

/*
 * decision_log.h
 *		Which distributed transactions committed: names that never repeat, and decision rows.
 *
 * Used by commit_protocol.c.
 */
#ifndef STRATA_DECISION_LOG_H
#define STRATA_DECISION_LOG_H

#include "postgres.h"

/* Shared memory; the library must be loaded when the server starts. */
extern void decision_log_initialize(void);

/* 63 random bits, drawn when the server started. */
extern uint64 decision_log_incarnation(void);

/* Takes so many counters that nobody else gets in this incarnation; the first of them. */
extern uint64 decision_log_take_counters(int count);

/* Writes decision rows of these counters in the running transaction, and deletes acknowledged ones. */
extern void decision_log_write(const uint64 *counters, int count);

/* Every worker has committed durably: the row can go.  Throws nothing. */
extern void decision_log_acknowledge(uint64 counter);

/* The transaction that may have called decision_log_write() is over.  Throws nothing. */
extern void decision_log_end(bool committed);

#endif

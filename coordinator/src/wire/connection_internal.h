/*
 * connection_internal.h
 *		What connection.c, connection_pool.c and connection_open.c share.
 */
#ifndef STRATA_CONNECTION_INTERNAL_H
#define STRATA_CONNECTION_INTERNAL_H

#include "wire/connection.h"

/* Connect all of them concurrently; on error none is opened. */
extern void connection_connect(WorkerConnection **conns, int count);

/* What a new wire says first. */
typedef enum ConnectionGreeting
{
	CONNECTION_GREETING_MEMBER, /* asks whether the worker is ours */
	CONNECTION_GREETING_ATTACH, /* makes it ours, as superuser; see take_over.c */
	CONNECTION_GREETING_NONE
} ConnectionGreeting;

/* For the wires that are opened next. */
extern void connection_set_greeting(ConnectionGreeting wanted);

/* Of the wires that are used next: connection_accept_unknown_changes(). */
extern bool connection_accepts_unknown_changes(void);

/* Close all wires to the worker, whatever their state. */
extern void connection_drop_worker(int worker_id);

/* An event set for so many sockets, behind our latch and the postmaster's death. */
extern WaitEventSet *connection_make_wait_set(int sockets);

/* Our latch was set: reset it and look for interrupts. */
extern void connection_handle_latch(void);

/* libpq's callback: a worker's notice becomes ours. */
extern void connection_receive_notice(void *arg, const PGresult *result);

/* An SQLSTATE of five characters as core's number; 08006 when there is none. */
extern int connection_make_sqlstate(const char *text);

#endif

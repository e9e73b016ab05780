/*
 * connection.h
 *		One libpq connection per worker and session, and one to a standby of the worker where those are read.
 *
 * A connection is made at its first use and kept until the session ends or it
 * breaks.  It logs in as the session's user; who acts there is told with each statement
 * (remote_role.c).  Commands that run outside of transactions have wires of whoever runs them.
 * All waiting is interruptible: cancel, statement_timeout and termination reach
 * us through CHECK_FOR_INTERRUPTS() in connection_wait*().
 *
 * A wire carries one statement at a time.  Whoever has a statement on it is
 * its "occupant"; when somebody else needs the wire the occupant is asked to
 * yield: a reader moves the rows still to come into a tuplestore, a writer
 * finishes its COPY.
 */
#ifndef STRATA_CONNECTION_H
#define STRATA_CONNECTION_H

#include "postgres.h"

#include "access/xact.h"
#include "libpq-fe.h"
#include "nodes/bitmapset.h"
#include "nodes/pg_list.h"
#include "storage/latch.h"

/* Bytes of a statement that are kept to be shown in the context of an error. */
#define CONNECTION_SQL_EXCERPT 1024
#define CONNECTION_GID_SIZE 200 /* as in core */

typedef struct WireOccupant
{
	/* Make the wire idle but lose nothing; may ERROR.  Called by connection_vacate(). */
	void (*yield)(void *occupant);
} WireOccupant;

/* What is known of the prepared transaction of a connection. */
typedef enum PrepareState
{
	PREPARE_NONE,
	PREPARE_SENT, /* the answer to PREPARE TRANSACTION is not known */
	PREPARE_DONE
} PrepareState;

/* How the last statement ended that wire_cleanup.c ran or drained. */
typedef enum WireOutcome
{
	WIRE_PENDING,
	WIRE_OK,
	WIRE_ERROR, /* the worker reported an error */
	WIRE_LOST	/* no answer in time, or the connection broke */
} WireOutcome;

/* A user and his security context: remote_role.h. */
typedef struct RemoteRole
{
	Oid user;
	int security_context;
} RemoteRole;

/* How the worker follows our transaction; all zero outside of one: connection_leave_transaction(). */
typedef struct WireTransaction
{
	int depth;			   /* 0 none, 1 BEGIN sent, n: n - 1 savepoints */
	int release_depth;	   /* savepoints of this level and above are to be released, 0 none */
	bool written;		   /* this transaction wrote or locked there: never cancel, never retry */
	bool failed;		   /* the remote transaction is lost */
	bool replicated;	   /* replicas must have stored what is prepared: replica_wait.c */
	bool unproven;		   /* was read, perhaps in the wrong place: standby_read.c */
	int64 checked_version; /* standby_read.c: the schema version that the server had, 0 not asked */
} WireTransaction;

/* A prepared transaction; all zero when there is none: participant_forget_prepared(). */
typedef struct WirePrepared
{
	PrepareState state;
	uint64 counter;						   /* of its gid */
	char commit[CONNECTION_GID_SIZE + 32]; /* the commands that end it */
	char rollback[CONNECTION_GID_SIZE + 32];
} WirePrepared;

/* Snapshots on the worker, see snapshot_pin.c. */
typedef struct WireSnapshot
{
	int kept;		  /* of running statements */
	bool pinned;	  /* the worker has said that it took a snapshot */
	char command[96]; /* to precede the next statement, may be empty */
} WireSnapshot;

/* A statement that is ended or run where nothing may be thrown: wire_cleanup_begin(). */
typedef struct WireCleanup
{
	WireOutcome outcome;
	char tag[32];	  /* command tag of the last result */
	bool idle;		  /* nothing runs any more */
	bool copy_ended;  /* CopyFail was sent */
	int socket;		  /* a probe of the worker's postmaster, -1 none */
	bool probe_asked; /* the probe has sent its question */
} WireCleanup;

/*
 * Never freed: a pointer stays valid for the whole session, also when the
 * connection is dropped (pg is NULL then) and made anew.
 */
typedef struct WorkerConnection
{
	int worker_id;
	bool standby; /* to a standby of the worker, which is read only */
	Oid role;	  /* that has logged in */
	char *worker_name;
	PGconn *pg;
	int worker_pid;			/* of the backend there; libpq forgets it when the connection breaks */
	WireOccupant *occupant; /* first member of the occupant's struct; NULL when idle */
	int skip_results;		/* results of the preamble (BEGIN, SET) still to be skipped */
	bool end_pending;		/* COMMIT or ROLLBACK of a reader was sent, its result not collected */
	bool quiet;				/* notices are dropped */
	bool concerned;			/* used in the subtransaction that aborts */

	/* connection*.c own these */
	char *conninfo;			/* of the worker, when the connection was made */
	uint32 generation;		/* likewise */
	uint32 hold_generation; /* likewise, see worker_use.c */
	bool stranger;			/* not greeted: the worker does not know us for its coordinator */
	int64 unknown_change; /* the worker's last DDL then, if it is accepted that we do not know it */
	WaitEventSet *wait_set; /* to wait for this wire alone */
	char *row;				/* the row last handed out by libpq, freed with the next one */
	char sql[CONNECTION_SQL_EXCERPT]; /* begin of the running statement */
	bool statement_failed;			  /* the running statement has reported an error */
	bool replica_wait_cancelled;	  /* a commit there did not wait for its replica */
	bool silent;					  /* broken off: the worker does not answer */
	Size longest_message;			  /* sent or received */

	/* what others know of the wire, each in its own struct */
	WireTransaction transaction;   /* remote_transaction.c */
	WirePrepared prepared;		   /* commit_protocol.c */
	WireSnapshot snapshot;		   /* snapshot_pin.c */
	WireCleanup cleanup;		   /* wire_cleanup.c */
	RemoteRole acting;			   /* remote_role.c: InvalidOid when unknown */
	struct SentSettings *settings; /* session_settings.c: NULL when unknown */
	struct WorkerUse *use; /* worker_use.c: counters of the worker, NULL when not looked for yet */
	bool joined;		   /* worker_use.c: the transaction counts as a user of the worker */
} WorkerConnection;

/*
 * The session's connection to a worker, or the one that its transaction uses; opens it if needed.
 * ERROR (SQLSTATE 08001, naming the worker) when it does not answer within connect_timeout.
 * Several may be opened at once: connection_open_all() connects concurrently, and returns them in the
 * order of the workers' ids.  connection_try() returns NULL when the worker cannot be reached,
 * or, with `refused`, lets this server or this user in no more.
 */
extern WorkerConnection *connection_open(int worker_id);
extern WorkerConnection *connection_try(int worker_id, bool refused);
extern List *connection_open_all(const Bitmapset *workers);

/*
 * ERROR (55000) where the worker has committed DDL that this coordinator does not know.  Until the transaction's end, or for good,
 * this process may use such workers all the same; connection_newest_change() is the number of their last change then, or 0.
 */
extern void connection_accept_unknown_changes(bool for_good);
extern int64 connection_newest_change(void);
extern void connection_open_transaction_event(XactEvent event);

/* The same to standbys of the workers; these may be another state than the primaries. */
extern List *connection_open_standbys(const Bitmapset *workers);

/* Has the worker closed it?  Without waiting; reads what has come in, e.g. the worker's last words. */
extern bool connection_is_closed(WorkerConnection *conn);

/* The same as connection_open(), logged in as a certain role, for commands outside of transactions. */
extern WorkerConnection *connection_open_as(int worker_id, Oid role);
extern void connection_open_all_as(const Bitmapset *workers, Oid role);

/* Make the wire idle: ask the occupant, if there is one, to yield. */
extern void connection_vacate(WorkerConnection *conn);

/* Throw away the rest of a statement whose occupant is gone, waiting for its end. */
extern void connection_discard(WorkerConnection *conn);

/* Close and forget (a broken connection, or one in an unknown state).  Never throws. */
extern void connection_drop(WorkerConnection *conn);

/* A message of this length has passed the wire; those of statements and results are known. */
extern void connection_note_message(WorkerConnection *conn, Size length);

/* Send one message; the results of its first skip_results commands are not handed out. */
extern void
connection_send(WorkerConnection *conn, const char *message, int skip_results, const char *sql);

/*
 * Next result of the running statement, waiting; NULL at its end.  Results of the preamble are
 * skipped, and raise ERROR when they failed.
 */
extern PGresult *connection_get_result(WorkerConnection *conn);

/* The same, but ERROR after a deadline on the clock of clock_now(); 0 = none. */
extern PGresult *connection_get_result_until(WorkerConnection *conn, int64 deadline);

/* The same for what takes no time: ERROR after a second if it is a standby that primaries may stand in for. */
extern PGresult *connection_get_quick_result(WorkerConnection *conn);

/* The same, but false after the deadline. */
extern bool connection_await_result(WorkerConnection *conn, int64 deadline, PGresult **result);

/* The same without waiting: false when there is nothing yet. */
extern bool connection_poll_result(WorkerConnection *conn, PGresult **result);

/* Has the worker owed the heartbeat, which asks no standbys, an answer for strata.worker_timeout?  Does not throw. */
extern bool connection_is_silent(const WorkerConnection *conn);

/*
 * Has the worker taken the snapshot that was asked for in front of the running statement, or is the
 * statement's own result there?  Does not wait.
 */
extern bool connection_poll_pin(WorkerConnection *conn);

/* The worker's transaction has ended, with what was set in it. */
extern void connection_leave_transaction(WorkerConnection *conn, bool committed);

/* Wait for the end of a reader's COMMIT or ROLLBACK that was sent without waiting. */
extern void connection_settle(WorkerConnection *conn);

/* Read what has arrived, without waiting; false when the connection is broken. */
extern bool connection_consume(WorkerConnection *conn);

/* Wait until any of these wires can be read (or, for those whose PQflush is pending, written). */
extern void connection_wait_any(WorkerConnection **conns, int count);

/* The sessions' open connections, for end-of-transaction work. */
extern List *connection_list(void);

/* Is this error the last word of the worker's session?  (It may be heard before the socket closes.) */
extern bool connection_is_fatal(const WorkerConnection *conn, const PGresult *result);

/*
 * Raise a worker's error as ours: same SQLSTATE, message, detail and hint, with
 * CONTEXT naming the worker and the SQL (NULL: the statement sent last).  Frees result.
 * conn-level failures (no result) become 08006 with the worker's name.
 */
extern void
connection_report(int elevel, WorkerConnection *conn, PGresult *result, const char *sql);

/* Identity of this cluster, uuid as text; read anew, the pointer lives as long as the session. */
extern const char *connection_cluster_id(void);

#endif

/*
 * host_connect.h
 *		Connect to a server of which several hosts may be named: the first one that will do wins.
 *
 * Asynchronous and without a loop of its own: the caller waits for the sockets (its event
 * set gets a HostAttempt as user data) and for host_connect_due(), and calls host_connect_advance().
 */
#ifndef STRATA_HOST_CONNECT_H
#define STRATA_HOST_CONNECT_H

#include "postgres.h"

#include "libpq-fe.h"
#include "storage/latch.h"

typedef struct HostAttempt
{
	struct HostConnect *connect;
	char *address; /* host:port, for messages */
	char *hostname;
	char *hostaddr;
	char *port;
	PGconn *pg; /* NULL: not begun, failed, or taken */
	PostgresPollingStatusType poll;
	bool begun;
	bool answered; /* a server is there, be it one that refused */
	int64 again;   /* when it is to be asked again, 0 never */
	char *error;   /* why it failed */
} HostAttempt;

typedef struct HostConnectRequest
{
	const char *conninfo;
	const char *user;
	const char *application_name;
	PQnoticeReceiver receive_notice;
	void *receiver_argument;
	int preferred_host; /* to begin with; -1 or one that does not exist: the first */
	const char
		*role; /* target_session_attrs; NULL: what the connection string says, or a primary */
} HostConnectRequest;

typedef struct HostConnect
{
	void *owner; /* the caller's */
	MemoryContext context;
	HostConnectRequest request;
	PQconninfoOption *options;
	HostAttempt *winner; /* logged in; its pg belongs to this until the caller sets it to NULL */
	int first;			 /* the host to begin with */
	int begun;			 /* how many were */
	int attempts;		 /* the same, and those that were asked again */
	int64 next_begin;	 /* when the next one is to begin */
	int count;
	HostAttempt *hosts;
} HostConnect;

/* How both sides of a connection find out that the other is silent: within strata.worker_timeout. */
typedef struct HostKeepalives
{
	int idle; /* seconds */
	int interval;
	int count; /* 0: there is no limit */
	int user_timeout_ms;
} HostKeepalives;

extern HostKeepalives host_connect_keepalives(void);

/* The strings of the request must live as long as this does. */
extern HostConnect *host_connect_create(const HostConnectRequest *request);
extern void host_connect_free(HostConnect *connect);

/* Begin with the hosts whose turn it is; returns when to call again (clock_now()), 0 never. */
extern int64 host_connect_begin_due(HostConnect *connect);

/* Add the sockets that are waited for. */
extern void host_connect_add_sockets(HostConnect *connect, WaitEventSet *set);

/* A host's socket is ready. */
extern void host_connect_advance(HostAttempt *host);

/* Have all hosts failed?  Did at least one of them answer?  Why? */
extern bool host_connect_has_failed(const HostConnect *connect);
extern bool host_connect_was_answered(const HostConnect *connect);

/* palloc'd; hosts still being tried are told as silent, `timeout` names the limit. */
extern char *host_connect_describe_failure(const HostConnect *connect, const char *timeout);

#endif

/*
 * dial.h
 *		Connect to a server of which several hosts may be named: the first one that will do wins.
 *
 * Asynchronous and without a loop of its own: the caller waits for the sockets (its event
 * set gets a DialHost as user data) and for dial_due(), and calls dial_advance().
 */
#ifndef STRATA_DIAL_H
#define STRATA_DIAL_H

#include "postgres.h"

#include "libpq-fe.h"
#include "storage/latch.h"

typedef struct DialHost
{
	struct Dial *dial;
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
} DialHost;

typedef struct DialRequest
{
	const char *conninfo;
	const char *user;
	const char *application_name;
	PQnoticeReceiver receive_notice;
	void *receiver_argument;
	int preferred_host; /* to begin with; -1 or one that does not exist: the first */
	bool any_role;		/* a standby will do as well */
} DialRequest;

typedef struct Dial
{
	void *owner; /* the caller's */
	MemoryContext context;
	DialRequest request;
	PQconninfoOption *options;
	DialHost *winner; /* logged in; its pg belongs to the dial until the caller sets it to NULL */
	int first;		  /* the host to begin with */
	int begun;		  /* how many were */
	int attempts;	  /* the same, and those that were asked again */
	int64 next_begin; /* when the next one is to begin */
	int count;
	DialHost *hosts;
} Dial;

/* How both sides of a connection find out that the other is silent: within strata.worker_timeout. */
typedef struct DialKeepalives
{
	int idle; /* seconds */
	int interval;
	int count; /* 0: there is no limit */
	int user_timeout_ms;
} DialKeepalives;

extern DialKeepalives dial_keepalives(void);

/* The strings of the request must live as long as the dial. */
extern Dial *dial_create(const DialRequest *request);
extern void dial_free(Dial *dial);

/* Begin with the hosts whose turn it is; returns when to call again (clock_now()), 0 never. */
extern int64 dial_begin_due(Dial *dial);

/* Add the sockets that are waited for. */
extern void dial_add_sockets(Dial *dial, WaitEventSet *set);

/* A host's socket is ready. */
extern void dial_advance(DialHost *host);

/* Have all hosts failed?  Did at least one of them answer?  Why? */
extern bool dial_has_failed(const Dial *dial);
extern bool dial_was_answered(const Dial *dial);

/* palloc'd; hosts still being tried are told as silent, `timeout` names the limit. */
extern char *dial_describe_failure(const Dial *dial, const char *timeout);

#endif

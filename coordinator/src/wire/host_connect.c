/*
 * host_connect.c
 *		Connect to the first host of a connection string that will do, without blocking.
 *
 * libpq tries the hosts of a connection string in turn, and asynchronously it has no time limit:
 * where the first host is powered off, the second is never reached.  Here each host is
 * an attempt of its own.  The next one begins when one has failed, or after STAGGER_MS (the
 * first ones go on): the first that logs in and has the wanted role (target_session_attrs)
 * wins, the others are closed.  A worker must be a primary, or a standby for those who ask for one; libpq is told to
 * check that.
 * A host that has answered and would not do is asked again while another one is silent: it may
 * be the standby that is promoted because the silent one is gone.
 *
 * A name with several addresses is left to libpq, which also resolves it, with a blocking call:
 * conninfos with hostaddr, or names in /etc/hosts, avoid that.
 *
 * Silence of an established connection is found by the kernel (keepalives, and
 * tcp_user_timeout for what was sent) within strata.worker_timeout.
 *
 * Nothing throws (but for lack of memory); each PGconn is accounted as an external file descriptor.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "server/clock.h"
#include "server/settings.h"
#include "wire/host_connect.h"

/* So long the hosts before have to succeed before the next one is tried as well. */
#define STAGGER_MS 300

/* A host that would not do is asked again after so long. */
#define AGAIN_MS 500

/* Parameters of ours, and those that are made from worker_timeout. */
#define EXTRA_PARAMETERS 16

/* ----------------------------------------------------------------
 * The hosts of a connection string
 * ----------------------------------------------------------------
 */

static const char *
get_option(const HostConnect *connect, const char *keyword)
{
	for (PQconninfoOption *option = connect->options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, keyword) == 0)
			return option->val != NULL && option->val[0] != '\0' ? option->val : NULL;
	}
	return NULL;
}

static int
count_items(const char *list)
{
	int count = list != NULL ? 1 : 0;

	for (const char *c = list; c != NULL && *c != '\0'; c++)
		count += *c == ',';
	return count;
}

/* The n-th item of a comma-separated list; the only one stands for all; NULL when empty. */
static char *
get_item(const char *list, int n)
{
	const char *end;

	if (list == NULL)
		return NULL;
	if (strchr(list, ',') == NULL)
		n = 0;
	while (n-- > 0 && list != NULL)
	{
		list = strchr(list, ',');
		if (list != NULL)
			list++;
	}
	if (list == NULL)
		return NULL;
	end = strchr(list, ',');
	if (end == NULL)
		end = list + strlen(list);
	return end > list ? pnstrdup(list, end - list) : NULL;
}

static void
fill_hosts(HostConnect *connect)
{
	const char *hosts = get_option(connect, "host");
	const char *addresses = get_option(connect, "hostaddr");
	const char *ports = get_option(connect, "port");

	connect->count = Max(1, Max(count_items(hosts), count_items(addresses)));
	connect->hosts = palloc0(connect->count * sizeof(HostAttempt));
	for (int i = 0; i < connect->count; i++)
	{
		HostAttempt *host = &connect->hosts[i];

		host->connect = connect;
		host->hostname = get_item(hosts, i);
		host->hostaddr = get_item(addresses, i);
		host->port = get_item(ports, i);
		host->address = psprintf("%s:%s",
								 host->hostname	  ? host->hostname
								 : host->hostaddr ? host->hostaddr
												  : "",
								 host->port ? host->port : DEF_PGPORT_STR);
	}
}

/* A connection string that makes no sense is a host that has failed. */
static void
refuse_conninfo(HostConnect *connect, const char *message)
{
	connect->count = 1;
	connect->begun = 1;
	connect->hosts = palloc0(sizeof(HostAttempt));
	connect->hosts[0].connect = connect;
	connect->hosts[0].begun = true;
	connect->hosts[0].error = pchomp(message);
}

HostConnect *
host_connect_create(const HostConnectRequest *request)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "strata connect",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);
	HostConnect *connect = palloc0(sizeof(HostConnect));
	char *message = NULL;

	connect->context = context;
	connect->request = *request;
	connect->options = PQconninfoParse(request->conninfo, &message);
	if (connect->options == NULL)
		refuse_conninfo(connect, message != NULL ? message : "out of memory");
	else
		fill_hosts(connect);
	PQfreemem(message);
	connect->first = request->preferred_host >= 0 && request->preferred_host < connect->count
						 ? request->preferred_host
						 : 0;
	MemoryContextSwitchTo(previous);
	return connect;
}

static void
close_host(HostAttempt *host)
{
	if (host->pg == NULL)
		return;
	PQfinish(host->pg);
	host->pg = NULL;
	ReleaseExternalFD();
}

void
host_connect_free(HostConnect *connect)
{
	for (int i = 0; i < connect->count; i++)
		close_host(&connect->hosts[i]);
	PQconninfoFree(connect->options);
	MemoryContextDelete(connect->context);
}

/* ----------------------------------------------------------------
 * Attempts
 * ----------------------------------------------------------------
 */

/* Keywords and values for libpq; the latter of two equal keywords counts. */
typedef struct Parameters
{
	const char **keywords;
	const char **values;
	int count;
} Parameters;

static void
add_parameter(Parameters *parameters, const char *keyword, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return;
	parameters->keywords[parameters->count] = keyword;
	parameters->values[parameters->count++] = value;
}

HostKeepalives
host_connect_keepalives(void)
{
	HostKeepalives keepalives = {0};
	int seconds = strata_worker_timeout / 1000;

	if (strata_worker_timeout == 0)
		return keepalives;
	keepalives.idle = Max(1, seconds / 2);
	keepalives.interval = Max(1, seconds / 10);
	keepalives.count = 5;
	keepalives.user_timeout_ms = strata_worker_timeout;
	return keepalives;
}

/* A host that is silent is noticed within worker_timeout, whether we wait for it or send. */
static void
add_timeouts(Parameters *parameters)
{
	HostKeepalives keepalives = host_connect_keepalives();

	if (keepalives.count == 0)
		return;
	add_parameter(parameters, "keepalives", "1");
	add_parameter(parameters, "keepalives_idle", psprintf("%d", keepalives.idle));
	add_parameter(parameters, "keepalives_interval", psprintf("%d", keepalives.interval));
	add_parameter(parameters, "keepalives_count", psprintf("%d", keepalives.count));
	add_parameter(parameters, "tcp_user_timeout", psprintf("%d", keepalives.user_timeout_ms));
}

/* From the first message on: a database's own timeout would end the greeting.  The last one counts. */
#define STARTUP_OPTIONS "-c statement_timeout=0"

static PGconn *
start_connection(const HostAttempt *host)
{
	const HostConnect *connect = host->connect;
	const HostConnectRequest *request = &connect->request;
	const char *options = STARTUP_OPTIONS;
	Parameters parameters = {0};
	int capacity = EXTRA_PARAMETERS;

	for (PQconninfoOption *option = connect->options; option->keyword != NULL; option++)
		capacity++;
	parameters.keywords = palloc0(capacity * sizeof(char *));
	parameters.values = palloc0(capacity * sizeof(char *));

	add_parameter(&parameters, "application_name", request->application_name);
	add_timeouts(&parameters);
	add_parameter(&parameters, "target_session_attrs",
				  connect->count > 1 ? "read-write" : "primary");
	for (PQconninfoOption *option = connect->options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, "host") == 0)
			add_parameter(&parameters, "host", host->hostname);
		else if (strcmp(option->keyword, "hostaddr") == 0)
			add_parameter(&parameters, "hostaddr", host->hostaddr);
		else if (strcmp(option->keyword, "port") == 0)
			add_parameter(&parameters, "port", host->port);
		else if (strcmp(option->keyword, "options") == 0 && option->val != NULL)
			options = psprintf("%s " STARTUP_OPTIONS, option->val);
		else
			add_parameter(&parameters, option->keyword, option->val);
	}
	add_parameter(&parameters, "target_session_attrs", request->role);
	add_parameter(&parameters, "options", options);
	add_parameter(&parameters, "user", request->user);
	add_parameter(&parameters, "client_encoding", GetDatabaseEncodingName());
	return PQconnectStartParams(parameters.keywords, parameters.values, 0);
}

/* The attempt is over; the next one may begin at once. */
static void
fail_host(HostAttempt *host, const char *error)
{
	host->error = MemoryContextStrdup(host->connect->context, error);
	close_host(host);
	host->again = host->answered ? clock_now() + AGAIN_MS : 0;
	host->connect->next_begin = 0;
}

static void
fail_with_message(HostAttempt *host)
{
	char *message = pchomp(PQerrorMessage(host->pg));

	fail_host(host, message);
	pfree(message);
}

static void
begin_host(HostAttempt *host)
{
	MemoryContext previous;

	if (!host->begun)
		host->connect->begun++;
	host->begun = true;
	host->again = 0;
	host->error = NULL;
	host->connect->attempts++;
	host->connect->next_begin = clock_now() + STAGGER_MS;
	if (!AcquireExternalFD())
	{
		fail_host(host, "There are too many open files; raise max_files_per_process.");
		return;
	}
	previous = MemoryContextSwitchTo(host->connect->context);
	host->pg = start_connection(host);
	MemoryContextSwitchTo(previous);
	if (host->pg == NULL)
	{
		ReleaseExternalFD();
		fail_host(host, "out of memory");
		return;
	}
	if (host->connect->request.receive_notice != NULL)
		PQsetNoticeReceiver(host->pg, host->connect->request.receive_notice,
							host->connect->request.receiver_argument);
	host->poll = PGRES_POLLING_WRITING;
	if (PQstatus(host->pg) == CONNECTION_BAD || PQsocket(host->pg) == PGINVALID_SOCKET)
		fail_with_message(host);
}

/* Ask anew who has answered, as long as there is another to wait for; as host_connect_begin_due(). */
static int64
begin_again_due(HostConnect *connect)
{
	int64 due = 0;

	if (connect->winner != NULL || host_connect_has_failed(connect))
		return 0;
	for (int i = 0; i < connect->count; i++)
	{
		HostAttempt *host = &connect->hosts[i];

		if (host->again != 0 && host->again <= clock_now())
			begin_host(host);
		if (host->again != 0 && (due == 0 || host->again < due))
			due = host->again;
	}
	return due;
}

int64
host_connect_begin_due(HostConnect *connect)
{
	while (connect->winner == NULL && connect->begun < connect->count)
	{
		if (connect->next_begin > clock_now())
			return connect->next_begin;
		begin_host(&connect->hosts[(connect->first + connect->begun) % connect->count]);
	}
	return begin_again_due(connect);
}

void
host_connect_add_sockets(HostConnect *connect, WaitEventSet *set)
{
	for (int i = 0; i < connect->count; i++)
	{
		HostAttempt *host = &connect->hosts[i];

		if (host->pg == NULL || host == connect->winner)
			continue;
		AddWaitEventToSet(
			set, host->poll == PGRES_POLLING_WRITING ? WL_SOCKET_WRITEABLE : WL_SOCKET_READABLE,
			PQsocket(host->pg), NULL, host);
	}
}

void
host_connect_advance(HostAttempt *host)
{
	HostConnect *connect = host->connect;
	ConnStatusType before;

	/* an event may come together with that of the host that has won */
	if (host->pg == NULL || connect->winner != NULL)
		return;
	before = PQstatus(host->pg);
	host->poll = PQconnectPoll(host->pg);
	if (before != CONNECTION_STARTED && before != CONNECTION_MADE)
		host->answered = true;
	if (host->poll == PGRES_POLLING_OK)
	{
		connect->winner = host;
		for (int i = 0; i < connect->count; i++)
		{
			if (&connect->hosts[i] != host)
				close_host(&connect->hosts[i]);
		}
	}
	else if (host->poll == PGRES_POLLING_FAILED || PQsocket(host->pg) == PGINVALID_SOCKET)
		fail_with_message(host);
}

/* ----------------------------------------------------------------
 * Failure
 * ----------------------------------------------------------------
 */

bool
host_connect_has_failed(const HostConnect *connect)
{
	if (connect->winner != NULL || connect->begun < connect->count)
		return false;
	for (int i = 0; i < connect->count; i++)
	{
		if (connect->hosts[i].pg != NULL)
			return false;
	}
	return true;
}

bool
host_connect_was_answered(const HostConnect *connect)
{
	for (int i = 0; i < connect->count; i++)
	{
		if (connect->hosts[i].answered)
			return true;
	}
	return false;
}

char *
host_connect_describe_failure(const HostConnect *connect, const char *timeout)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < connect->count; i++)
	{
		const HostAttempt *host = &connect->hosts[i];

		if (!host->begun)
			continue;
		if (text.len > 0)
			appendStringInfoString(&text, "\n");
		if (host->error != NULL)
			appendStringInfoString(&text, host->error);
		else
			appendStringInfo(&text, "%s did not answer within %s.", host->address, timeout);
	}
	return text.data;
}

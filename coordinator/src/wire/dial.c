/*
 * dial.c
 *		Connect to the first host of a connection string that will do, without blocking.
 *
 * libpq tries the hosts of a connection string in turn, and asynchronously it has no time limit:
 * where the first host is powered off, the second is never reached.  Here each host is
 * an attempt of its own.  The next one begins when one has failed, or after STAGGER_MS (the
 * first ones go on): the first that logs in and has the wanted role (target_session_attrs)
 * wins, the others are closed.  A worker must be a primary; libpq is told to check that.
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
#include "wire/dial.h"

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
get_option(const Dial *dial, const char *keyword)
{
	for (PQconninfoOption *option = dial->options; option->keyword != NULL; option++)
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
fill_hosts(Dial *dial)
{
	const char *hosts = get_option(dial, "host");
	const char *addresses = get_option(dial, "hostaddr");
	const char *ports = get_option(dial, "port");

	dial->count = Max(1, Max(count_items(hosts), count_items(addresses)));
	dial->hosts = palloc0(dial->count * sizeof(DialHost));
	for (int i = 0; i < dial->count; i++)
	{
		DialHost *host = &dial->hosts[i];

		host->dial = dial;
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
refuse_conninfo(Dial *dial, const char *message)
{
	dial->count = 1;
	dial->begun = 1;
	dial->hosts = palloc0(sizeof(DialHost));
	dial->hosts[0].dial = dial;
	dial->hosts[0].begun = true;
	dial->hosts[0].error = pchomp(message);
}

Dial *
dial_create(const DialRequest *request)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "strata dial",
												  ALLOCSET_SMALL_SIZES);
	MemoryContext previous = MemoryContextSwitchTo(context);
	Dial *dial = palloc0(sizeof(Dial));
	char *message = NULL;

	dial->context = context;
	dial->request = *request;
	dial->options = PQconninfoParse(request->conninfo, &message);
	if (dial->options == NULL)
		refuse_conninfo(dial, message != NULL ? message : "out of memory");
	else
		fill_hosts(dial);
	PQfreemem(message);
	dial->first = request->preferred_host >= 0 && request->preferred_host < dial->count
					  ? request->preferred_host
					  : 0;
	MemoryContextSwitchTo(previous);
	return dial;
}

static void
close_host(DialHost *host)
{
	if (host->pg == NULL)
		return;
	PQfinish(host->pg);
	host->pg = NULL;
	ReleaseExternalFD();
}

void
dial_free(Dial *dial)
{
	for (int i = 0; i < dial->count; i++)
		close_host(&dial->hosts[i]);
	PQconninfoFree(dial->options);
	MemoryContextDelete(dial->context);
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

DialKeepalives
dial_keepalives(void)
{
	DialKeepalives keepalives = {0};
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
	DialKeepalives keepalives = dial_keepalives();

	if (keepalives.count == 0)
		return;
	add_parameter(parameters, "keepalives", "1");
	add_parameter(parameters, "keepalives_idle", psprintf("%d", keepalives.idle));
	add_parameter(parameters, "keepalives_interval", psprintf("%d", keepalives.interval));
	add_parameter(parameters, "keepalives_count", psprintf("%d", keepalives.count));
	add_parameter(parameters, "tcp_user_timeout", psprintf("%d", keepalives.user_timeout_ms));
}

static PGconn *
start_connection(const DialHost *host)
{
	const Dial *dial = host->dial;
	const DialRequest *request = &dial->request;
	Parameters parameters = {0};
	int capacity = EXTRA_PARAMETERS;

	for (PQconninfoOption *option = dial->options; option->keyword != NULL; option++)
		capacity++;
	parameters.keywords = palloc0(capacity * sizeof(char *));
	parameters.values = palloc0(capacity * sizeof(char *));

	add_parameter(&parameters, "application_name", request->application_name);
	add_timeouts(&parameters);
	add_parameter(&parameters, "target_session_attrs", dial->count > 1 ? "read-write" : "primary");
	for (PQconninfoOption *option = dial->options; option->keyword != NULL; option++)
	{
		if (strcmp(option->keyword, "host") == 0)
			add_parameter(&parameters, "host", host->hostname);
		else if (strcmp(option->keyword, "hostaddr") == 0)
			add_parameter(&parameters, "hostaddr", host->hostaddr);
		else if (strcmp(option->keyword, "port") == 0)
			add_parameter(&parameters, "port", host->port);
		else
			add_parameter(&parameters, option->keyword, option->val);
	}
	if (request->any_role)
		add_parameter(&parameters, "target_session_attrs", "any");
	add_parameter(&parameters, "user", request->user);
	add_parameter(&parameters, "client_encoding", GetDatabaseEncodingName());
	return PQconnectStartParams(parameters.keywords, parameters.values, 0);
}

/* The attempt is over; the next one may begin at once. */
static void
fail_host(DialHost *host, const char *error)
{
	host->error = MemoryContextStrdup(host->dial->context, error);
	close_host(host);
	host->again = host->answered ? clock_now() + AGAIN_MS : 0;
	host->dial->next_begin = 0;
}

static void
fail_with_message(DialHost *host)
{
	char *message = pchomp(PQerrorMessage(host->pg));

	fail_host(host, message);
	pfree(message);
}

static void
begin_host(DialHost *host)
{
	MemoryContext previous;

	if (!host->begun)
		host->dial->begun++;
	host->begun = true;
	host->again = 0;
	host->error = NULL;
	host->dial->attempts++;
	host->dial->next_begin = clock_now() + STAGGER_MS;
	if (!AcquireExternalFD())
	{
		fail_host(host, "There are too many open files; raise max_files_per_process.");
		return;
	}
	previous = MemoryContextSwitchTo(host->dial->context);
	host->pg = start_connection(host);
	MemoryContextSwitchTo(previous);
	if (host->pg == NULL)
	{
		ReleaseExternalFD();
		fail_host(host, "out of memory");
		return;
	}
	if (host->dial->request.receive_notice != NULL)
		PQsetNoticeReceiver(host->pg, host->dial->request.receive_notice,
							host->dial->request.receiver_argument);
	host->poll = PGRES_POLLING_WRITING;
	if (PQstatus(host->pg) == CONNECTION_BAD || PQsocket(host->pg) == PGINVALID_SOCKET)
		fail_with_message(host);
}

/* Ask anew who has answered, as long as there is another to wait for; as dial_begin_due(). */
static int64
begin_again_due(Dial *dial)
{
	int64 due = 0;

	if (dial->winner != NULL || dial_has_failed(dial))
		return 0;
	for (int i = 0; i < dial->count; i++)
	{
		DialHost *host = &dial->hosts[i];

		if (host->again != 0 && host->again <= clock_now())
			begin_host(host);
		if (host->again != 0 && (due == 0 || host->again < due))
			due = host->again;
	}
	return due;
}

int64
dial_begin_due(Dial *dial)
{
	while (dial->winner == NULL && dial->begun < dial->count)
	{
		if (dial->next_begin > clock_now())
			return dial->next_begin;
		begin_host(&dial->hosts[(dial->first + dial->begun) % dial->count]);
	}
	return begin_again_due(dial);
}

void
dial_add_sockets(Dial *dial, WaitEventSet *set)
{
	for (int i = 0; i < dial->count; i++)
	{
		DialHost *host = &dial->hosts[i];

		if (host->pg == NULL || host == dial->winner)
			continue;
		AddWaitEventToSet(
			set, host->poll == PGRES_POLLING_WRITING ? WL_SOCKET_WRITEABLE : WL_SOCKET_READABLE,
			PQsocket(host->pg), NULL, host);
	}
}

void
dial_advance(DialHost *host)
{
	Dial *dial = host->dial;
	ConnStatusType before;

	/* an event may come together with that of the host that has won */
	if (host->pg == NULL || dial->winner != NULL)
		return;
	before = PQstatus(host->pg);
	host->poll = PQconnectPoll(host->pg);
	if (before != CONNECTION_STARTED && before != CONNECTION_MADE)
		host->answered = true;
	if (host->poll == PGRES_POLLING_OK)
	{
		dial->winner = host;
		for (int i = 0; i < dial->count; i++)
		{
			if (&dial->hosts[i] != host)
				close_host(&dial->hosts[i]);
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
dial_has_failed(const Dial *dial)
{
	if (dial->winner != NULL || dial->begun < dial->count)
		return false;
	for (int i = 0; i < dial->count; i++)
	{
		if (dial->hosts[i].pg != NULL)
			return false;
	}
	return true;
}

bool
dial_was_answered(const Dial *dial)
{
	for (int i = 0; i < dial->count; i++)
	{
		if (dial->hosts[i].answered)
			return true;
	}
	return false;
}

char *
dial_describe_failure(const Dial *dial, const char *timeout)
{
	StringInfoData text;

	initStringInfo(&text);
	for (int i = 0; i < dial->count; i++)
	{
		const DialHost *host = &dial->hosts[i];

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

/*
 * session_settings.c
 *		The user's settings, made known to the workers when they change.
 *
 * A pushed expression must give on a worker what it would give here, so every setting on
 * which a stable function of SELECT may depend is propagated: date and time styles, locale
 * names, search_path (as the session's string: "$user" is whoever acts there), and so on.  The coordinator alone enforces statement_timeout;
 * lock_timeout is enforced where the locks are.
 *
 * Settings of the planner (costs, methods, limits, and the memory and processes that it counts on) travel, too: a user who changes one means the
 * plans of his query, of which the workers make a part.  What the configuration file of this server says is about
 * this server, and each worker has its own: so only what the session, its user or its database has set is sent, and
 * what is not set any more is reset there.
 *
 * This runs before every statement, so it must be cheap: the variables behind the
 * settings are watched directly, without catalog or GUC look-ups.  Each change of a value gets the
 * next version number; a connection remembers the version it was sent last.
 *
 * SET commands travel inside the worker's transaction and are undone when that
 * rolls back; then everything is sent again with the next statement.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "commands/trigger.h"
#include "miscadmin.h"
#include "parser/parse_expr.h"
#include "parser/parser.h"
#include "pgtime.h"
#include "storage/proc.h"
#include "tsearch/ts_cache.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/bytea.h"
#include "utils/float.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"
#include "utils/pg_locale.h"
#include "utils/rls.h"
#include "utils/xml.h"

#include "compat.h"
#include "wire/remote_role.h"
#include "wire/session_settings.h"

typedef enum WatchKind
{
	WATCH_INT,
	WATCH_BOOL,
	WATCH_STRING,
	WATCH_PLANNER, /* a struct config_generic */
	WATCH_TIMEZONE /* pg_tz structs are never freed: the pointer tells */
} WatchKind;

typedef struct Watch
{
	const char *name;
	WatchKind kind;
	const void *variable;
	bool lexical;	 /* changes how the lexer reads SQL */
	bool privileged; /* not everybody may set it: left alone as long as it is 0 */

	/* state */
	uint64 version; /* 0: never looked at */
	bool is_set;	/* WATCH_PLANNER: not by a configuration file */
	double number;
	const void *pointer;
	char *text;
} Watch;

/* Two variables of one setting (DateStyle) stand next to each other. */
static const Watch shared_watches[] = {
	{"search_path", WATCH_STRING, &namespace_search_path},
	{"timezone", WATCH_TIMEZONE, &session_timezone},
	{"datestyle", WATCH_INT, &DateStyle},
	{"datestyle", WATCH_INT, &DateOrder},
	{"intervalstyle", WATCH_INT, &IntervalStyle},
	{"extra_float_digits", WATCH_INT, &extra_float_digits},
	{"bytea_output", WATCH_INT, &bytea_output},
	{"xmlbinary", WATCH_INT, &xmlbinary},
	{"xmloption", WATCH_INT, &xmloption},
	{"lc_monetary", WATCH_STRING, &locale_monetary},
	{"lc_numeric", WATCH_STRING, &locale_numeric},
	{"lc_time", WATCH_STRING, &locale_time},
	{"default_text_search_config", WATCH_STRING, &TSCurrentConfig},
	{"standard_conforming_strings", WATCH_BOOL, &compat_conforming_strings, true},
	{"backslash_quote", WATCH_INT, &backslash_quote, true},
	{"array_nulls", WATCH_BOOL, &Array_nulls},
	{"transform_null_equals", WATCH_BOOL, &Transform_null_equals},
	{"quote_all_identifiers", WATCH_BOOL, &quote_all_identifiers},
	{"row_security", WATCH_BOOL, &row_security},
	{"check_function_bodies", WATCH_BOOL, &check_function_bodies},
	{"lock_timeout", WATCH_INT, &LockTimeout},
	{"synchronous_commit", WATCH_INT, &synchronous_commit},
	{"session_replication_role", WATCH_INT, &SessionReplicationRole, .privileged = true},
};

/* Settings that are no planner's by their group, but count for plans. */
static const char *const planner_resources[] = {
	"hash_mem_multiplier",
	"max_parallel_workers_per_gather",
	"parallel_leader_participation",
	"work_mem",
};

static Watch *watches = NULL; /* those, and the planner's */
static int watch_count = 0;

/* What was sent of one setting. */
typedef struct SentSetting
{
	uint64 version;
	bool is_known; /* WATCH_PLANNER: it may have another value there than the worker's own */
} SentSetting;

struct SentSettings
{
	uint64 generation; /* newest version that was sent */
	bool uncommitted;  /* some were sent in the worker's running transaction */
	bool privileged;   /* a privileged one was sent, so it may have another value than 0 there */
	bool privileged_before; /* ... before the worker's running transaction */
	SentSetting each[FLEXIBLE_ARRAY_MEMBER];
};

static uint64 generation = 0; /* version of the newest change */

static bool
is_planner_setting(const struct config_generic *setting)
{
	if (setting->context != PGC_USERSET || setting->vartype == PGC_STRING)
		return false;
	if (setting->group == QUERY_TUNING_METHOD || setting->group == QUERY_TUNING_COST ||
		setting->group == QUERY_TUNING_GEQO || setting->group == QUERY_TUNING_OTHER)
		return true;
	for (int i = 0; i < lengthof(planner_resources); i++)
	{
		if (strcmp(setting->name, planner_resources[i]) == 0)
			return true;
	}
	return false;
}

/* The planner's settings are those of this major of PostgreSQL. */
static void
list_watches(void)
{
	int count;
	struct config_generic **settings = compat_guc_variables(&count);

	watches = MemoryContextAllocZero(TopMemoryContext,
									 (lengthof(shared_watches) + count) * sizeof(Watch));
	memcpy(watches, shared_watches, sizeof(shared_watches));
	watch_count = lengthof(shared_watches);
	for (int i = 0; i < count; i++)
	{
		if (is_planner_setting(settings[i]))
			watches[watch_count++] = (Watch){
				.name = settings[i]->name, .kind = WATCH_PLANNER, .variable = settings[i]};
	}
	watches = repalloc(watches, watch_count * sizeof(Watch));
}

static double
read_number(const struct config_generic *setting)
{
	switch (setting->vartype)
	{
		case PGC_BOOL:
			return *compat_guc_part(setting, bool)->variable;
		case PGC_INT:
			return *compat_guc_part(setting, int)->variable;
		case PGC_REAL:
			return *compat_guc_part(setting, real)->variable;
		default:
			return *compat_guc_part(setting, enum)->variable;
	}
}

/* Has the variable another value than at the last look? */
static bool
take_value(Watch *watch)
{
	switch (watch->kind)
	{
		case WATCH_INT:
		case WATCH_BOOL:
		{
			int number = watch->kind == WATCH_INT ? *(const int *) watch->variable
												  : *(const bool *) watch->variable;
			bool changed = watch->version == 0 || watch->number != number;

			watch->number = number;
			return changed;
		}
		case WATCH_PLANNER:
		{
			const struct config_generic *setting = watch->variable;
			bool is_set = setting->source >= PGC_S_GLOBAL;
			double number = is_set ? read_number(setting) : 0;
			bool changed = watch->version == 0 || watch->is_set != is_set ||
						   watch->number != number;

			watch->is_set = is_set;
			watch->number = number;
			return changed;
		}
		case WATCH_TIMEZONE:
		{
			const void *pointer = *(pg_tz *const *) watch->variable;
			bool changed = watch->version == 0 || watch->pointer != pointer;

			watch->pointer = pointer;
			return changed;
		}
		default:
		{
			const char *text = *(char *const *) watch->variable;

			if (text == NULL)
				text = "";
			if (watch->text != NULL && strcmp(watch->text, text) == 0)
				return false;
			text = MemoryContextStrdup(TopMemoryContext, text);
			if (watch->text != NULL)
				pfree(watch->text);
			watch->text = unconstify(char *, text);
			return true;
		}
	}
}

static void
watch_all(void)
{
	if (watches == NULL)
		list_watches();
	for (int i = 0; i < watch_count; i++)
	{
		if (take_value(&watches[i]))
			watches[i].version = ++generation;
	}
}

/* Are statements parsed, and values that we send read, without the user's: worker/src/caller.c? */
static bool
is_kept_from_parser(const char *name)
{
	return strcmp(name, "search_path") == 0 || strcmp(name, "array_nulls") == 0 ||
		   strcmp(name, "xmloption") == 0;
}

static void
append_setting(StringInfo buffer, const Watch *watch)
{
	const char *name = watch->name;
	char *value;

	if (watch->kind == WATCH_PLANNER && !watch->is_set)
	{
		appendStringInfo(buffer, "RESET %s; ", name);
		return;
	}
	value = GetConfigOptionByName(name, NULL, false);
	appendStringInfo(buffer, "SET %s%s = %s; ", is_kept_from_parser(name) ? "strata_worker." : "",
					 name, quote_literal_cstr(value));
}

/* Does the worker's session have what ours has, though nothing was sent? */
static bool
is_untouched(const Watch *watch, const struct SentSettings *sent, const SentSetting *setting)
{
	if (watch->kind == WATCH_PLANNER)
		return !watch->is_set && !setting->is_known;
	return watch->privileged && watch->number == 0 && !sent->privileged;
}

int
session_settings_append(StringInfo buffer, WorkerConnection *conn, bool *lexical)
{
	struct SentSettings *sent;
	const char *last = "";
	int count = 0;

	*lexical = false;
	if (conn->stranger) /* it takes the session's settings from its coordinator only */
		return 0;
	watch_all();
	if (conn->settings == NULL)
		conn->settings = MemoryContextAllocZero(TopMemoryContext,
												offsetof(struct SentSettings, each) +
													watch_count * sizeof(SentSetting));
	sent = conn->settings;
	if (sent->generation == generation)
		return 0;

	for (int i = 0; i < watch_count; i++)
	{
		SentSetting *setting = &sent->each[i];

		if (setting->version == watches[i].version)
			continue;
		setting->version = watches[i].version;
		/* how long replay is waited for is not the user's to say: connection_open.c */
		if (conn->standby && watches[i].variable == &LockTimeout)
			continue;
		if (strcmp(last, watches[i].name) == 0 || is_untouched(&watches[i], sent, setting))
			continue;
		setting->is_known = true;
		sent->privileged |= watches[i].privileged;
		if (count == 0) /* some are the session's user's to set */
			count += remote_role_append_reset(buffer, conn);
		last = watches[i].name;
		*lexical |= watches[i].lexical;
		append_setting(buffer, &watches[i]);
		count++;
	}
	sent->generation = generation;
	sent->uncommitted |= count > 0;
	return count;
}

void
session_settings_rolled_back(WorkerConnection *conn)
{
	struct SentSettings *sent = conn->settings;

	if (sent == NULL || !sent->uncommitted)
		return;
	for (int i = 0; i < watch_count; i++)
		sent->each[i].version = 0;
	sent->generation = 0;
	sent->uncommitted = false;
	sent->privileged = sent->privileged_before;
}

void
session_settings_committed(WorkerConnection *conn)
{
	if (conn->settings == NULL)
		return;
	conn->settings->uncommitted = false;
	conn->settings->privileged_before = conn->settings->privileged;
}

bool
session_settings_synchronous_commit_is_sent(WorkerConnection *conn)
{
	watch_all();
	for (int i = 0; i < watch_count; i++)
	{
		if (watches[i].variable == &synchronous_commit)
			return conn->settings != NULL && conn->settings->each[i].version == watches[i].version;
	}
	return false;
}

void
session_settings_synchronous_commit_changed(WorkerConnection *conn)
{
	if (conn->settings == NULL)
		return;
	conn->settings->generation = 0;
	for (int i = 0; i < watch_count; i++)
	{
		if (watches[i].variable == &synchronous_commit)
			conn->settings->each[i].version = 0;
	}
}

void
session_settings_forget(WorkerConnection *conn)
{
	if (conn->settings != NULL)
		pfree(conn->settings);
	conn->settings = NULL;
}

/*
 * error_names.c
 *		Names of tables and constraints in workers' errors, as the user knows them.
 *
 * A worker reports a violated constraint with the shard's name, and a unique index with the name
 * that PostgreSQL has generated for the shard's part of it.  Applications look at these names
 * ("was it orders_pkey?"), so they get those of the table, as from one PostgreSQL.
 *
 * - A shard is known by its name, from which the table's follows (relation_name_of_shard()).
 * - A shard's unique index or foreign key has been named by the worker (worker/src/constraint_names.c).  If it was not,
 *   an index is known by its columns, which the error's detail shows in the same words on all nodes and in all
 *   languages: Key (a, b)=(1, 2).
 * - A foreign key to a distributed table has one more constraint, with a generated name, per shard
 *   that it points to; the detail shows the columns that it points to, the SQLSTATE that it is no index.
 *
 * Names that cannot be told are left as they came: this must never hide the error itself.
 */
#include "postgres.h"

#include "wire/error_names.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_index.h"
#include "common/string.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/ruleutils.h"
#include "utils/syscache.h"

#include "cluster/metadata.h"
#include "cluster/relation_name.h"

/* The name of a shard without what a leaf's has behind it: _default, _p2026_11_23, _p1000. */
static const char *
cut_period_off(const char *name)
{
	int length = strlen(name);
	int end = length;

	if (length > 8 && strcmp(name + length - 8, "_default") == 0)
		return pnstrdup(name, length - 8);
	while (end > 0 && (isdigit((unsigned char) name[end - 1]) || strchr("_-", name[end - 1])))
		end--;
	if (end >= 2 && end < length && name[end - 1] == 'p' && name[end - 2] == '_')
		return pnstrdup(name, end - 2);
	return name;
}

/* The distributed table that has a shard of this name, InvalidOid if there is none. */
static Oid
find_table_of_shard(Oid schema, const char *shard)
{
	const char *suffix;
	char *table;
	Oid relation;

	/* a relation of the user's own may look like a shard */
	if (OidIsValid(get_relname_relid(shard, schema)))
		return InvalidOid;
	shard = cut_period_off(shard);
	suffix = strrchr(shard, '_');
	if (suffix == NULL || suffix[1] != 's')
		return InvalidOid;
	table = pnstrdup(shard, suffix - shard);
	relation = get_relname_relid(table, schema);
	if (!OidIsValid(relation) || metadata_table(relation) == NULL ||
		strcmp(relation_name_of_shard(table, atoi(suffix + 2),
									  metadata_has_periods(metadata_table(relation))),
			   shard) != 0)
		return InvalidOid;
	return relation;
}

/* The text with the names of shards in double quotes replaced by their tables'. */
static char *
replace_shards(char *text, Oid schema)
{
	StringInfoData replaced;
	char *rest = text;

	if (text == NULL)
		return NULL;
	initStringInfo(&replaced);
	for (;;)
	{
		char *open = strchr(rest, '"');
		char *close = open != NULL ? strchr(open + 1, '"') : NULL;
		char *name;
		Oid table;

		if (close == NULL)
			break;
		name = pnstrdup(open + 1, close - open - 1);
		table = find_table_of_shard(schema, name);
		appendBinaryStringInfo(&replaced, rest, open + 1 - rest);
		appendStringInfoString(&replaced, OidIsValid(table) ? get_rel_name(table) : name);
		appendStringInfoChar(&replaced, '"');
		rest = close + 1;
	}
	appendStringInfoString(&replaced, rest);
	return replaced.data;
}

/* Does the error's detail show a key of these columns? */
static bool
shows_key(const char *detail, const char *columns)
{
	const char *open = strchr(detail, '(');
	int length = strlen(columns);

	return open != NULL && strncmp(open + 1, columns, length) == 0 &&
		   strncmp(open + 1 + length, ")=(", 3) == 0;
}

/* The name of the table's one unique index with the columns that the detail shows, or NULL. */
static char *
find_unique_index(Relation relation, const char *detail)
{
	char *found = NULL;
	ListCell *cell;

	foreach(cell, RelationGetIndexList(relation))
	{
		Oid index = lfirst_oid(cell);
		HeapTuple tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
		bool is_unique;

		if (!HeapTupleIsValid(tuple))
			continue;
		is_unique = ((Form_pg_index) GETSTRUCT(tuple))->indisunique;
		ReleaseSysCache(tuple);
		if (!is_unique || !shows_key(detail, pg_get_indexdef_columns(index, true)))
			continue;
		if (found != NULL)
			return NULL;
		found = get_rel_name(index);
	}
	return found;
}

/* The columns that a foreign key points to, as details show them: not quoted. */
static char *
list_referenced_columns(const ForeignKeyCacheInfo *key)
{
	StringInfoData columns;

	initStringInfo(&columns);
	for (int i = 0; i < key->nkeys; i++)
		appendStringInfo(&columns, "%s%s", i > 0 ? ", " : "",
						 get_attname(key->confrelid, key->confkey[i], false));
	return columns.data;
}

/*
 * The name of the table's one foreign key to a distributed table that the message names, with the
 * columns that the detail shows, or NULL.
 */
static char *
find_foreign_key(Relation relation, const char *message, const char *detail)
{
	char *found = NULL;
	ListCell *cell;

	foreach(cell, RelationGetFKeyList(relation))
	{
		const ForeignKeyCacheInfo *key = lfirst(cell);
		char *referenced = psprintf("\"%s\"", get_rel_name(key->confrelid));

		if (strstr(message, referenced) == NULL || !shows_key(detail, list_referenced_columns(key)))
			continue;
		if (found != NULL)
			return NULL;
		found = get_constraint_name(key->conoid);
	}
	return found;
}

/* A restrict violation is one of a foreign key, since PostgreSQL 18. */
static bool
is_of_foreign_key(const ErrorNames *names)
{
	return names->sqlstate == ERRCODE_FOREIGN_KEY_VIOLATION ||
		   names->sqlstate == ERRCODE_RESTRICT_VIOLATION;
}

/* The user's name of a constraint that the table has not under the worker's name, or NULL. */
static char *
find_constraint(Oid table, const ErrorNames *names)
{
	Relation relation;
	char *found;

	if (names->message == NULL || names->detail == NULL || names->constraint == NULL ||
		OidIsValid(get_relation_constraint_oid(table, names->constraint, true)))
		return NULL;
	/* locked by the statement, unless the row came from elsewhere: then nobody waits for a name */
	if (!ConditionalLockRelationOid(table, AccessShareLock))
		return NULL;
	relation = try_relation_open(table, NoLock);
	if (relation == NULL)
		return NULL;
	found = is_of_foreign_key(names) ? find_foreign_key(relation, names->message, names->detail)
									 : find_unique_index(relation, names->detail);
	relation_close(relation, NoLock);
	return found;
}

static char *
replace_name(const char *message, const char *old, const char *new)
{
	Datum replaced = DirectFunctionCall3Coll(
		replace_text, C_COLLATION_OID, CStringGetTextDatum(message),
		CStringGetTextDatum(psprintf("\"%s\"", old)), CStringGetTextDatum(psprintf("\"%s\"", new)));

	return TextDatumGetCString(replaced);
}

void
error_names_localize(ErrorNames *names)
{
	Oid schema = names->schema != NULL ? get_namespace_oid(names->schema, true) : InvalidOid;
	Oid table;
	char *constraint;

	if (!OidIsValid(schema) || names->table == NULL)
		return;
	table = find_table_of_shard(schema, names->table);
	if (OidIsValid(table))
		names->table = get_rel_name(table);
	else
		table = get_relname_relid(names->table, schema);
	names->message = replace_shards(names->message, schema);
	names->detail = replace_shards(names->detail, schema);
	if (!OidIsValid(table) || metadata_table(table) == NULL)
		return;
	constraint = find_constraint(table, names);
	if (constraint != NULL)
	{
		names->message = replace_name(names->message, names->constraint, constraint);
		names->constraint = constraint;
	}
}

const char *
error_names_sendable(const char *worker_name, int worker_id)
{
	static char number[16];

	if (pg_get_client_encoding() == GetDatabaseEncoding() || pg_is_ascii(worker_name))
		return worker_name;
	snprintf(number, sizeof(number), "#%d", worker_id);
	return number;
}

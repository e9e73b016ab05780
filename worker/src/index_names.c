/*
 * index_names.c
 *		Duplicate keys are reported with the name of the table's index, not of the shard's.
 *
 * A unique index of a sharded table has a part for each shard, with a name that PostgreSQL has made
 * up.  The coordinator can often tell the index by the columns that the error's detail shows, but there may be
 * two of the same columns, and there is no detail for a user who is granted nothing here.
 *
 * The hook is called when the error is written to the log, before it is sent, and before the transaction is aborted:
 * whoever reports a duplicate key has let go of pages and locks before (it looks up a detail just there), so that
 * catalogs can be read.  What is not found stays as it was.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

#include "caller.h"
#include "session_mark.h"

static emit_log_hook_type previous_emit_log = NULL;

/* The name of the partitioned table's index that an index is a part of, or NULL. */
static char *
find_whole_index(const char *schema, const char *index)
{
	Oid namespace = get_namespace_oid(schema, true);
	Oid part = OidIsValid(namespace) ? get_relname_relid(index, namespace) : InvalidOid;

	if (!OidIsValid(part) || get_rel_relkind(part) != RELKIND_INDEX ||
		!get_rel_relispartition(part))
		return NULL;
	return get_rel_name(llast_oid(get_partition_ancestors(part)));
}

/* The text with one quoted name in place of another. */
static char *
replace_name(const char *text, const char *old, const char *new)
{
	char *quoted = psprintf("\"%s\"", old);
	const char *found = strstr(text, quoted);

	if (found == NULL)
		return pstrdup(text);
	return psprintf("%.*s\"%s\"%s", (int) (found - text), text, new, found + strlen(quoted));
}

static void
name_whole_index(ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(error->assoc_context);
	char *name = find_whole_index(error->schema_name, error->constraint_name);

	if (name != NULL)
	{
		error->message = replace_name(error->message, error->constraint_name, name);
		error->constraint_name = name;
	}
	MemoryContextSwitchTo(old);
}

static void
emit_log(ErrorData *error)
{
	if (error->elevel == ERROR && error->sqlerrcode == ERRCODE_UNIQUE_VIOLATION &&
		error->message != NULL && error->schema_name != NULL && error->constraint_name != NULL &&
		IsTransactionState() && session_is_marked())
		name_whole_index(error);
	if (previous_emit_log)
		previous_emit_log(error);
}

void
index_names_initialize(void)
{
	previous_emit_log = emit_log_hook;
	emit_log_hook = emit_log;
}

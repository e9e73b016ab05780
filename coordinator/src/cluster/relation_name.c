/*
 * relation_name.c
 *		Names of tables as other nodes read them.
 */
#include "postgres.h"

#include "cluster/relation_name.h"

#include "commands/defrem.h"
#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

char *
relation_name(Oid relation)
{
	char *name = get_rel_name(relation);

	if (name == NULL)
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_TABLE),
						errmsg("relation with OID %u does not exist", relation),
						errdetail("It was dropped by another session.")));
	return name;
}

char *
relation_name_qualified(Oid relation)
{
	char *name = relation_name(relation);
	char *schema = get_namespace_name(get_rel_namespace(relation));

	return quote_qualified_identifier(schema, name);
}

char *
relation_name_of_shard(const char *table, int remainder, bool has_periods)
{
	char suffix[16];
	char hash[16];
	int length = strlen(table);
	int limit = has_periods ? RELATION_NAME_SHARD_BYTES : NAMEDATALEN - 1;

	snprintf(suffix, sizeof(suffix), "s%d", remainder);
	if (length + 1 + strlen(suffix) <= limit)
		return makeObjectName(table, NULL, suffix);

	/* Cut off: tables whose names begin alike must still get different partitions. */
	snprintf(hash, sizeof(hash), "%08x",
			 DatumGetUInt32(hash_any((const unsigned char *) table, length)));
	if (has_periods)
		return psprintf(
			"%s_%s_%s",
			pnstrdup(table, pg_mbcliplen(table, length, limit - strlen(hash) - strlen(suffix) - 2)),
			hash, suffix);
	return makeObjectName(table, hash, suffix);
}

/*
 * columnar_options.c
 *		alter_columnar_table_set() and _reset() on the coordinator: see columnar_options.h.
 *
 * The same functions of strata_columnar run on every worker, in the local
 * transaction.  They check the options; ownership is checked here first.
 */
#include "columnar_options.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "argument.h"
#include "compat.h"
#include "ddl.h"
#include "metadata.h"
#include "remote_command.h"
#include "row_format.h"
#include "table_ddl.h"

PG_FUNCTION_INFO_V1(strata_alter_columnar_table_set);
PG_FUNCTION_INFO_V1(strata_alter_columnar_table_reset);

/* Arguments of both functions, after the table. */
static const char *const option_names[] = {"compression", "compression_level", "row_group_rows",
										   "order_by", "bloom"};

/* The argument's table, locked; ERROR unless it is the user's, and its shards are columnar. */
static Relation
open_table(FunctionCallInfo fcinfo)
{
	const DistributedTable *table;
	Relation relation;
	Oid relation_id;

	argument_refuse_null(fcinfo, 0, "relation");
	relation_id = PG_GETARG_OID(0);
	relation = table_open(relation_id, ShareUpdateExclusiveLock);
	if (!compat_owns_table(relation_id, GetUserId()))
		aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, RelationGetRelationName(relation));
	table = metadata_table(relation_id);
	if (table == NULL || !table->is_columnar)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("\"%s\" is not a distributed table with columnar storage",
							   RelationGetRelationName(relation)),
						errhint("Use create_distributed_table(..., storage => 'columnar').")));
	return relation;
}

/* An option's value as a literal of SQL. */
static char *
get_literal(FunctionCallInfo fcinfo, int argument)
{
	Oid type = get_fn_expr_argtype(fcinfo->flinfo, argument);
	Oid output;
	bool is_varlena;

	if (PG_ARGISNULL(argument))
		return "NULL";
	getTypeOutputInfo(type, &output, &is_varlena);
	return quote_literal_cstr(OidOutputFunctionCall(output, PG_GETARG_DATUM(argument)));
}

/* Text for a DO block: whatever names it contains, it ends where we say. */
static char *
quote_block(const char *body)
{
	return psprintf("DO %s", quote_literal_cstr(body));
}

/* Call the function of that name on all workers with the same arguments. */
static void
call_everywhere(FunctionCallInfo fcinfo, const char *function)
{
	Relation relation = open_table(fcinfo);
	StringInfoData sql;
	int level = row_format_enter_sql_mode();

	initStringInfo(&sql);
	appendStringInfo(&sql, "BEGIN PERFORM strata_columnar.%s(%s::regclass", function,
					 quote_literal_cstr(table_ddl_qualified_name(relation)));
	for (int i = 0; i < lengthof(option_names); i++)
		appendStringInfo(&sql, ", %s => %s", option_names[i], get_literal(fcinfo, i + 1));
	appendStringInfoString(&sql, "); END");
	row_format_leave_sql_mode(level);
	ddl_send_everywhere(quote_block(sql.data));
	table_close(relation, NoLock);
}

Datum
strata_alter_columnar_table_set(PG_FUNCTION_ARGS)
{
	call_everywhere(fcinfo, "alter_columnar_table_set");
	PG_RETURN_VOID();
}

Datum
strata_alter_columnar_table_reset(PG_FUNCTION_ARGS)
{
	call_everywhere(fcinfo, "alter_columnar_table_reset");
	PG_RETURN_VOID();
}

void
columnar_options_copy(Relation relation, int new_worker)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	char *name = table_ddl_qualified_name(relation);
	char *label;
	char *reset;
	int model;

	if (table == NULL || !table->is_columnar)
		return;
	/* every worker has the table, with its options */
	model = bms_next_member(bms_del_member(bms_copy(metadata_all_workers()), new_worker), -1);
	if (model < 0)
		return;
	label = remote_command_fetch(
		model, psprintf("SELECT label FROM pg_catalog.pg_seclabel WHERE provider = "
						"'strata_columnar' AND objsubid = 0 AND classoid = "
						"'pg_catalog.pg_class'::pg_catalog.regclass AND objoid = %s::regclass",
						quote_literal_cstr(name)));
	if (label == NULL)
		return;
	/* the first statement loads the library, which knows the provider */
	reset = psprintf("BEGIN PERFORM strata_columnar.alter_columnar_table_reset(%s::regclass); END",
					 quote_literal_cstr(name));
	remote_command_run(bms_make_singleton(new_worker), REMOTE_WRITE,
					   psprintf("%s; SECURITY LABEL FOR strata_columnar ON TABLE %s IS %s",
								quote_block(reset), name, quote_literal_cstr(label)));
}

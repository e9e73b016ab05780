/*
 * columnar_options.c
 *		alter_columnar_table_set() and _reset() on the coordinator: see columnar_options.h.
 *
 * The same functions of strata_columnar run on every worker, in the local
 * transaction.  They check the options; ownership is checked here first.
 */
#include "table/columnar_options.h"

#include "access/table.h"
#include "catalog/pg_class.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

#include "server/argument.h"
#include "compat.h"
#include "relation_owner.h"
#include "cluster/metadata.h"
#include "cluster/relation_name.h"
#include "stream/remote_command.h"
#include "stream/remote_ddl.h"
#include "table/table_definition.h"
#include "values/row_format.h"

PG_FUNCTION_INFO_V1(strata_alter_columnar_table_set);
PG_FUNCTION_INFO_V1(strata_alter_columnar_table_reset);
PG_FUNCTION_INFO_V1(strata_set_columnar_options);

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
	lock_own_relation(relation_id, ShareUpdateExclusiveLock);
	relation = table_open(relation_id, NoLock);
	table = metadata_table(relation_id);
	if (table == NULL || !table->is_columnar)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("table \"%s\" has no columnar storage on the workers",
							   RelationGetRelationName(relation)),
						errhint("Use create_distributed_table() or create_reference_table() with "
								"storage => 'columnar'.")));
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

/* The label that keeps the options of the worker's table, NULL if it has none. */
static char *
fetch_options(Relation relation, int worker)
{
	return remote_command_fetch(
		worker, psprintf("SELECT label FROM pg_catalog.pg_seclabel WHERE provider = "
						 "'strata_columnar' AND objsubid = 0 AND classoid = "
						 "'pg_catalog.pg_class'::pg_catalog.regclass AND objoid = %s::regclass",
						 quote_literal_cstr(relation_name_qualified(RelationGetRelid(relation)))));
}

/* SQL that gives a worker's table that label; its first statement loads the library, which knows the provider. */
static char *
set_options(Relation relation, const char *label)
{
	char *name = relation_name_qualified(RelationGetRelid(relation));
	char *reset = psprintf(
		"BEGIN PERFORM strata_columnar.alter_columnar_table_reset(%s::regclass); END",
		quote_literal_cstr(name));

	return psprintf("%s; SECURITY LABEL FOR strata_columnar ON TABLE %s IS %s", quote_block(reset),
					name, quote_literal_cstr(label));
}

/* What the workers have now becomes part of the table's definition. */
static void
store_options(Relation relation)
{
	int worker = bms_next_member(metadata_all_workers(), -1);
	char *label = worker >= 0 ? fetch_options(relation, worker) : NULL;

	table_definition_store(RelationGetRelid(relation), label != NULL ? label : "");
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
					 quote_literal_cstr(relation_name_qualified(RelationGetRelid(relation))));
	for (int i = 0; i < lengthof(option_names); i++)
		appendStringInfo(&sql, ", %s => %s", option_names[i], get_literal(fcinfo, i + 1));
	appendStringInfoString(&sql, "); END");
	row_format_leave_sql_mode(level);
	remote_ddl_send(quote_block(sql.data));
	store_options(relation);
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
columnar_options_follow(Oid relation_id)
{
	const DistributedTable *table = metadata_table(relation_id);
	Relation relation;

	if (table == NULL || !table->is_columnar)
	{
		table_definition_store(relation_id, NULL);
		return;
	}
	relation = table_open(relation_id, NoLock);
	store_options(relation);
	table_close(relation, NoLock);
}

void
columnar_options_copy(Relation relation, int new_worker)
{
	const DistributedTable *table = metadata_table(RelationGetRelid(relation));
	char *label;
	int model;

	if (table == NULL || !table->is_columnar)
		return;
	/* every worker has the table, with its options */
	model = bms_next_member(bms_del_member(bms_copy(metadata_all_workers()), new_worker), -1);
	if (model < 0)
		return;
	label = fetch_options(relation, model);
	if (label != NULL)
		remote_command_run(bms_make_singleton(new_worker), REMOTE_WRITE,
						   set_options(relation, label));
}

/* set_columnar_options(relation, options): as the worker's table of a dumped one had them */
Datum
strata_set_columnar_options(PG_FUNCTION_ARGS)
{
	Relation relation = open_table(fcinfo);

	argument_refuse_null(fcinfo, 1, "options");
	remote_ddl_send(set_options(relation, text_to_cstring(PG_GETARG_TEXT_PP(1))));
	store_options(relation);
	table_close(relation, NoLock);
	PG_RETURN_VOID();
}

/*
 * row_codec.c
 *		COPY BINARY bytes to Datums, and Datums to COPY's two formats.
 *
 * Why not simply SendFunctionCall() and ReceiveFunctionCall() for everything: a
 * coordinator that merges millions of rows spends most of its time here.  Types
 * whose send function writes the Datum's own bytes, in network order, are
 * converted in place.  Text is verified: the worker speaks our encoding, but code of users that runs in a
 * statement there can change that (set_config) while its rows are sent.
 *
 * Three things must not be forgotten:
 *
 * - Send and receive functions convert text between the database's encoding and
 *	 that of our *client*.  Our peer is a worker, which speaks the database's
 *	 encoding (connection_open.c sees to it), so the client's encoding is switched
 *	 away while they run.
 *
 * - Input functions obey settings (array_nulls, xmloption), which are the user's.  Text from a worker
 *	 is read under fixed ones (strata.as_text() has written it so), and so does a worker with ours.
 *
 * - Domains are decoded as their base types: the worker has checked the constraints.
 *
 * A COPY BINARY stream:
 *
 *		"PGCOPY\n\377\r\n\0"  flags int32  length of extension int32  (extension)
 *		per row: field count int16, per field: length int32 (-1 NULL), bytes
 *		trailer: int16 -1
 *
 * Memory: decoders and encoders live in the context given; values and garbage go
 * to CurrentMemoryContext, which the caller resets per row.
 */
#include "postgres.h"

#include "access/detoast.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/uuid.h"
#include "utils/xml.h"

#include "compat.h"
#include "values/row_format.h"

#define COPY_SIGNATURE "PGCOPY\n\377\r\n\0"
#define COPY_SIGNATURE_LENGTH 11
#define COPY_HEADER_LENGTH (COPY_SIGNATURE_LENGTH + 8)

/* How a column's bytes relate to its Datum. */
typedef enum FieldFormat
{
	FIELD_BOOL,
	FIELD_INT2,
	FIELD_INT4,
	FIELD_INT8,
	FIELD_VARLENA, /* the payload of a varlena */
	FIELD_UUID,
	FIELD_FUNCTION, /* the type's send and receive functions */
	FIELD_TEXT		/* the type's output and input functions */
} FieldFormat;

typedef struct Field
{
	FieldFormat format;
	bool is_varlena;
	int column; /* index into values and nulls */
	Oid type;
	Oid io_param;
	FmgrInfo function;
} Field;

struct RowDecoder
{
	int field_count;
	bool needs_encoding; /* does any field call a receive function? */
	bool reads_text;	 /* ... or an input function? */
	Field fields[FLEXIBLE_ARRAY_MEMBER];
};

struct RowEncoder
{
	bool binary;
	bool needs_encoding;
	int field_count;
	Field fields[FLEXIBLE_ARRAY_MEMBER];
};

/* Formats whose conversion needs no function: COPY BINARY fixes the types' representations. */
static FieldFormat
choose_binary_format(Oid type)
{
	switch (type)
	{
		case BOOLOID:
			return FIELD_BOOL;
		case INT2OID:
			return FIELD_INT2;
		case INT4OID:
		case OIDOID:
		case DATEOID:
		case FLOAT4OID:
			return FIELD_INT4;
		case INT8OID:
		case TIMEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
		case CASHOID:
		case FLOAT8OID:
			return FIELD_INT8;
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case BYTEAOID:
		case JSONOID:
			return FIELD_VARLENA;
		case UUIDOID:
			return FIELD_UUID;
		default:
			return FIELD_FUNCTION;
	}
}

static inline bool
is_client_encoding_foreign(void)
{
	return pg_get_client_encoding() != GetDatabaseEncoding();
}

/* ----------------------------------------------------------------
 * Decoding
 * ----------------------------------------------------------------
 */

static pg_noinline void
report_malformed(const char *detail)
{
	ereport(ERROR,
			(errcode(ERRCODE_PROTOCOL_VIOLATION), errmsg("malformed row received from a worker"),
			 errdetail_internal("%s", detail)));
}

RowDecoder *
row_decoder_create(TupleDesc desc, MemoryContext context)
{
	RowDecoder *decoder = MemoryContextAllocZero(context, offsetof(RowDecoder, fields) +
															  desc->natts * sizeof(Field));

	decoder->field_count = desc->natts;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);
		Field *field = &decoder->fields[i];
		Oid function;

		if (attribute->attisdropped)
			elog(ERROR, "remote rows cannot have dropped columns");
		field->column = i;
		field->type = getBaseType(attribute->atttypid);
		if (!row_format_is_binary(attribute->atttypid))
		{
			field->format = FIELD_TEXT;
			decoder->reads_text = true;
			getTypeInputInfo(field->type, &function, &field->io_param);
			fmgr_info_cxt(function, &field->function, context);
			continue;
		}
		field->format = choose_binary_format(field->type);
		if (field->format == FIELD_FUNCTION)
		{
			getTypeBinaryInputInfo(field->type, &function, &field->io_param);
			fmgr_info_cxt(function, &field->function, context);
			decoder->needs_encoding = true;
		}
	}
	return decoder;
}

int
row_decoder_skip_header(const char *data, int length)
{
	uint32 extension;

	if (length < COPY_HEADER_LENGTH || memcmp(data, COPY_SIGNATURE, COPY_SIGNATURE_LENGTH) != 0)
		report_malformed("The signature of COPY BINARY is missing.");
	memcpy(&extension, data + COPY_SIGNATURE_LENGTH + 4, sizeof(uint32));
	extension = pg_ntoh32(extension);
	if (extension > (uint32) (length - COPY_HEADER_LENGTH))
		report_malformed("The header's extension is longer than the message.");
	return COPY_HEADER_LENGTH + (int) extension;
}

static void
check_length(int actual, int expected)
{
	if (unlikely(actual != expected))
		report_malformed("A field has the wrong length.");
}

static inline Datum
decode_fixed(const Field *field, const char *data, int length)
{
	uint16 value16;
	uint32 value32;
	uint64 value64;

	switch (field->format)
	{
		case FIELD_BOOL:
			check_length(length, 1);
			return BoolGetDatum(*data != 0);
		case FIELD_INT2:
			check_length(length, 2);
			memcpy(&value16, data, 2);
			return Int16GetDatum((int16) pg_ntoh16(value16));
		case FIELD_INT4:
			check_length(length, 4);
			memcpy(&value32, data, 4);
			value32 = pg_ntoh32(value32);
			/* oid is unsigned in a Datum, int4, date and float4 are sign-extended */
			return field->type == OIDOID ? ObjectIdGetDatum(value32)
										 : Int32GetDatum((int32) value32);
		default:
			Assert(field->format == FIELD_INT8);
			check_length(length, 8);
			memcpy(&value64, data, 8);
			return Int64GetDatum((int64) pg_ntoh64(value64));
	}
}

static inline Datum
decode_varlena(const char *data, int length)
{
	char *value = palloc(length + VARHDRSZ);

	SET_VARSIZE(value, length + VARHDRSZ);
	memcpy(VARDATA(value), data, length);
	return PointerGetDatum(value);
}

/* Call a receive or input function; both may rely on a zero byte after the field. */
static Datum
decode_by_function(Field *field, char *data, int length)
{
	char saved = data[length];
	Datum value;

	data[length] = '\0';
	if (field->format == FIELD_TEXT)
		value = InputFunctionCall(&field->function, data, field->io_param, -1);
	else
	{
		StringInfoData message = {.data = data, .len = length, .maxlen = length + 1};

		value = ReceiveFunctionCall(&field->function, &message, field->io_param, -1);
		check_length(message.cursor, length);
	}
	data[length] = saved;
	return value;
}

static inline Datum
decode_field(Field *field, char *data, int length)
{
	switch (field->format)
	{
		case FIELD_VARLENA:
			if (field->type != BYTEAOID)
				(void) pg_verifymbstr(data, length, false);
			return decode_varlena(data, length);
		case FIELD_UUID:
			check_length(length, UUID_LEN);
			return PointerGetDatum(memcpy(palloc(UUID_LEN), data, UUID_LEN));
		case FIELD_TEXT:
			(void) pg_verifymbstr(data, length, false);
			return decode_by_function(field, data, length);
		case FIELD_FUNCTION: /* verifies what is text */
			return decode_by_function(field, data, length);
		default:
			return decode_fixed(field, data, length);
	}
}

static bool
decode_row(RowDecoder *decoder, char *data, int length, Datum *values, bool *nulls)
{
	char *end = data + length;
	uint16 count;

	if (unlikely(length < 2))
		report_malformed("The field count is missing.");
	memcpy(&count, data, 2);
	count = pg_ntoh16(count);
	data += 2;
	if (count == 0xFFFF)
		return false;
	if (unlikely(count != decoder->field_count))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("malformed row received from a worker"),
				 errdetail("It has %d fields, %d are expected.", count, decoder->field_count)));

	for (int i = 0; i < count; i++)
	{
		uint32 raw;
		int32 size;

		if (unlikely(end - data < 4))
			report_malformed("The row ends inside a field.");
		memcpy(&raw, data, 4);
		size = (int32) pg_ntoh32(raw);
		data += 4;
		nulls[i] = (size == -1);
		if (size == -1)
		{
			values[i] = (Datum) 0;
			continue;
		}
		if (unlikely(size < 0 || size > end - data))
			report_malformed("The row ends inside a field.");
		values[i] = decode_field(&decoder->fields[i], data, size);
		data += size;
	}
	if (unlikely(data != end))
		report_malformed("There are bytes after the last field.");
	return true;
}

bool
row_decoder_decode(RowDecoder *decoder, char *data, int length, Datum *values, bool *nulls)
{
	int client_encoding = pg_get_client_encoding();
	bool other_encoding = decoder->needs_encoding && is_client_encoding_foreign();
	bool array_nulls = Array_nulls;
	int xml_option = xmloption;
	bool result;

	if (likely(!other_encoding && !decoder->reads_text))
		return decode_row(decoder, data, length, values, nulls);

	if (other_encoding)
		SetClientEncoding(GetDatabaseEncoding());
	Array_nulls = true;
	xmloption = XMLOPTION_CONTENT;
	PG_TRY();
	{
		result = decode_row(decoder, data, length, values, nulls);
	}
	PG_FINALLY();
	{
		if (other_encoding)
			SetClientEncoding(client_encoding);
		Array_nulls = array_nulls;
		xmloption = xml_option;
	}
	PG_END_TRY();
	return result;
}

/* ----------------------------------------------------------------
 * Encoding
 * ----------------------------------------------------------------
 */

RowEncoder *
row_encoder_create(TupleDesc desc, MemoryContext context)
{
	RowEncoder *encoder = MemoryContextAllocZero(context, offsetof(RowEncoder, fields) +
															  desc->natts * sizeof(Field));

	encoder->binary = true;
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (attribute->attisdropped || attribute->attgenerated)
			continue;
		encoder->fields[encoder->field_count].column = i;
		encoder->fields[encoder->field_count].is_varlena = attribute->attlen == -1;
		encoder->fields[encoder->field_count++].type = getBaseType(attribute->atttypid);
		if (!row_format_is_binary(attribute->atttypid))
			encoder->binary = false;
	}

	for (int i = 0; i < encoder->field_count; i++)
	{
		Field *field = &encoder->fields[i];
		Oid function;
		bool is_varlena;

		field->format = encoder->binary ? choose_binary_format(field->type) : FIELD_TEXT;
		if (field->format == FIELD_TEXT)
			getTypeOutputInfo(field->type, &function, &is_varlena);
		else if (field->format == FIELD_FUNCTION)
		{
			getTypeBinaryOutputInfo(field->type, &function, &is_varlena);
			encoder->needs_encoding = true;
		}
		else
			continue;
		fmgr_info_cxt(function, &field->function, context);
	}
	return encoder;
}

bool
row_encoder_is_binary(const RowEncoder *encoder)
{
	return encoder->binary;
}

int
row_encoder_column_count(const RowEncoder *encoder)
{
	return encoder->field_count;
}

void
row_encoder_begin(const RowEncoder *encoder, StringInfo buffer)
{
	if (!encoder->binary)
		return;
	appendBinaryStringInfo(buffer, COPY_SIGNATURE, COPY_SIGNATURE_LENGTH);
	pq_sendint32(buffer, 0);
	pq_sendint32(buffer, 0);
}

void
row_encoder_end(const RowEncoder *encoder, StringInfo buffer)
{
	if (encoder->binary)
		pq_sendint16(buffer, (uint16) -1);
}

static void
encode_bytes(StringInfo buffer, const char *data, int length)
{
	enlargeStringInfo(buffer, length + 4);
	pq_writeint32(buffer, length);
	memcpy(buffer->data + buffer->len, data, length);
	buffer->len += length;
}

static void
encode_field(Field *field, StringInfo buffer, Datum value)
{
	switch (field->format)
	{
		case FIELD_BOOL:
			pq_sendint32(buffer, 1);
			pq_sendint8(buffer, DatumGetBool(value) ? 1 : 0);
			break;
		case FIELD_INT2:
			pq_sendint32(buffer, 2);
			pq_sendint16(buffer, (uint16) DatumGetInt16(value));
			break;
		case FIELD_INT4:
			pq_sendint32(buffer, 4);
			pq_sendint32(buffer, DatumGetUInt32(value));
			break;
		case FIELD_INT8:
			pq_sendint32(buffer, 8);
			pq_sendint64(buffer, (uint64) DatumGetInt64(value));
			break;
		case FIELD_VARLENA:
		{
			struct varlena *bytes = PG_DETOAST_DATUM_PACKED(value);

			encode_bytes(buffer, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
			break;
		}
		case FIELD_UUID:
			encode_bytes(buffer, (const char *) DatumGetPointer(value), UUID_LEN);
			break;
		default:
		{
			bytea *bytes = SendFunctionCall(&field->function, value);

			encode_bytes(buffer, VARDATA(bytes), VARSIZE(bytes) - VARHDRSZ);
			break;
		}
	}
}

static void
encode_binary_row(RowEncoder *encoder, StringInfo buffer, const Datum *values, const bool *nulls)
{
	pq_sendint16(buffer, encoder->field_count);
	for (int i = 0; i < encoder->field_count; i++)
	{
		Field *field = &encoder->fields[i];

		if (nulls[field->column])
			pq_sendint32(buffer, (uint32) -1);
		else
			encode_field(field, buffer, values[field->column]);
	}
}

/* COPY's text format: tabs between columns, backslash before what would be misread. */
static void
append_escaped(StringInfo buffer, const char *text)
{
	for (; *text != '\0'; text++)
	{
		switch (*text)
		{
			case '\\':
				appendStringInfoString(buffer, "\\\\");
				break;
			case '\t':
				appendStringInfoString(buffer, "\\t");
				break;
			case '\n':
				appendStringInfoString(buffer, "\\n");
				break;
			case '\r':
				appendStringInfoString(buffer, "\\r");
				break;
			default:
				appendStringInfoCharMacro(buffer, *text);
		}
	}
}

static void
encode_text_row(RowEncoder *encoder, StringInfo buffer, const Datum *values, const bool *nulls)
{
	int nest_level = row_format_enter_sql_mode();

	for (int i = 0; i < encoder->field_count; i++)
	{
		Field *field = &encoder->fields[i];

		if (i > 0)
			appendStringInfoChar(buffer, '\t');
		if (nulls[field->column])
			appendStringInfoString(buffer, "\\N");
		else
			append_escaped(buffer, OutputFunctionCall(&field->function, values[field->column]));
	}
	appendStringInfoChar(buffer, '\n');
	row_format_leave_sql_mode(nest_level);
}

/* Call the functions of a row's types: results[field] becomes what they return. */
static void
call_send_functions(RowEncoder *encoder, const Datum *values, const bool *nulls, bytea **results)
{
	for (int i = 0; i < encoder->field_count; i++)
	{
		Field *field = &encoder->fields[i];

		if (field->format == FIELD_FUNCTION && !nulls[field->column])
			results[i] = SendFunctionCall(&field->function, values[field->column]);
	}
}

/* Everything that calls functions of types: encode a row, or (results not NULL) only call them. */
static void
run_send_functions(RowEncoder *encoder, StringInfo buffer, const Datum *values, const bool *nulls,
				   bytea **results)
{
	int client_encoding;

	if (likely(!encoder->needs_encoding || !is_client_encoding_foreign()))
	{
		if (results == NULL)
			encode_binary_row(encoder, buffer, values, nulls);
		else
			call_send_functions(encoder, values, nulls, results);
		return;
	}

	client_encoding = pg_get_client_encoding();
	SetClientEncoding(GetDatabaseEncoding());
	PG_TRY();
	{
		if (results == NULL)
			encode_binary_row(encoder, buffer, values, nulls);
		else
			call_send_functions(encoder, values, nulls, results);
	}
	PG_FINALLY();
	{
		SetClientEncoding(client_encoding);
	}
	PG_END_TRY();
}

void
row_encoder_append(RowEncoder *encoder, StringInfo buffer, const Datum *values, const bool *nulls)
{
	if (encoder->binary)
		run_send_functions(encoder, buffer, values, nulls, NULL);
	else
		encode_text_row(encoder, buffer, values, nulls);
}

bool
row_encoder_is_large(const RowEncoder *encoder, const Datum *values, const bool *nulls)
{
	Size bytes = 0;

	for (int i = 0; i < encoder->field_count; i++)
	{
		const Field *field = &encoder->fields[i];

		if (field->is_varlena && !nulls[field->column])
			bytes += toast_raw_datum_size(values[field->column]);
	}
	return bytes > ROW_LARGE_BYTES && encoder->binary;
}

void
row_encoder_write_large(RowEncoder *encoder, const Datum *values, const bool *nulls, RowSink sink,
						void *argument)
{
	bytea **results = palloc0((encoder->field_count + 1) * sizeof(bytea *));
	StringInfoData buffer;

	run_send_functions(encoder, NULL, values, nulls, results);
	initStringInfo(&buffer);
	pq_sendint16(&buffer, encoder->field_count);
	for (int i = 0; i < encoder->field_count; i++)
	{
		Field *field = &encoder->fields[i];
		Datum value = values[field->column];
		struct varlena *bytes = results[i];

		if (nulls[field->column])
			pq_sendint32(&buffer, (uint32) -1);
		else if (bytes == NULL && field->format != FIELD_VARLENA)
			encode_field(field, &buffer, value);
		else
		{
			if (bytes == NULL)
				bytes = PG_DETOAST_DATUM_PACKED(value);
			pq_sendint32(&buffer, VARSIZE_ANY_EXHDR(bytes));
			sink(argument, buffer.data, buffer.len);
			resetStringInfo(&buffer);
			sink(argument, VARDATA_ANY(bytes), VARSIZE_ANY_EXHDR(bytes));
			if (PointerGetDatum(bytes) != value)
				pfree(bytes);
		}
	}
	if (buffer.len > 0)
		sink(argument, buffer.data, buffer.len);
	pfree(buffer.data);
	pfree(results);
}

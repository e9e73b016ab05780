-- The five tables of the star schema benchmark (O'Neil, O'Neil and Chen), with its primary keys.

CREATE TABLE dates (
	d_datekey integer PRIMARY KEY,
	d_date date NOT NULL,
	d_dayofweek text NOT NULL,
	d_month text NOT NULL,
	d_year integer NOT NULL,
	d_yearmonthnum integer NOT NULL,
	d_yearmonth text NOT NULL,
	d_daynuminmonth integer NOT NULL,
	d_daynuminyear integer NOT NULL,
	d_monthnuminyear integer NOT NULL,
	d_weeknuminyear integer NOT NULL,
	d_sellingseason text NOT NULL
);

CREATE TABLE customer (
	c_custkey integer PRIMARY KEY,
	c_name text NOT NULL,
	c_address text NOT NULL,
	c_city text NOT NULL,
	c_nation text NOT NULL,
	c_region text NOT NULL,
	c_phone text NOT NULL,
	c_mktsegment text NOT NULL
);

CREATE TABLE supplier (
	s_suppkey integer PRIMARY KEY,
	s_name text NOT NULL,
	s_address text NOT NULL,
	s_city text NOT NULL,
	s_nation text NOT NULL,
	s_region text NOT NULL,
	s_phone text NOT NULL
);

CREATE TABLE part (
	p_partkey integer PRIMARY KEY,
	p_name text NOT NULL,
	p_mfgr text NOT NULL,
	p_category text NOT NULL,
	p_brand1 text NOT NULL,
	p_color text NOT NULL,
	p_type text NOT NULL,
	p_size integer NOT NULL,
	p_container text NOT NULL
);

CREATE TABLE lineorder (
	lo_orderkey bigint NOT NULL,
	lo_linenumber integer NOT NULL,
	lo_custkey integer NOT NULL,
	lo_partkey integer NOT NULL,
	lo_suppkey integer NOT NULL,
	lo_orderdate integer NOT NULL,
	lo_orderpriority text NOT NULL,
	lo_shippriority integer NOT NULL,
	lo_quantity integer NOT NULL,
	lo_extendedprice integer NOT NULL,
	lo_ordtotalprice integer NOT NULL,
	lo_discount integer NOT NULL,
	lo_revenue integer NOT NULL,
	lo_supplycost integer NOT NULL,
	lo_tax integer NOT NULL,
	lo_commitdate integer NOT NULL,
	lo_shipmode text NOT NULL,
	PRIMARY KEY (lo_orderkey, lo_linenumber)
);

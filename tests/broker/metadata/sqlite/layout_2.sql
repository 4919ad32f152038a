-- What tidelog with layout 2 wrote: the dump of a file made by its own code.
BEGIN TRANSACTION;
CREATE TABLE broker_config (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "broker_config" VALUES('log.retention.ms','86400000');
INSERT INTO "broker_config" VALUES('log.segment.bytes','1000000');
CREATE TABLE deleted_topic (
        topic_id BLOB PRIMARY KEY,
        name TEXT NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "deleted_topic" VALUES(X'00000000000000000000000000003333','gone');
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO "meta" VALUES('cluster_id','5n68LJKmRlC1uQFoL8apTA');
INSERT INTO "meta" VALUES('next_producer_id','1500');
CREATE TABLE topic (
        name TEXT PRIMARY KEY,
        topic_id BLOB NOT NULL UNIQUE,
        partitions INTEGER NOT NULL,
        replication_factor INTEGER NOT NULL
    ) WITHOUT ROWID;
INSERT INTO "topic" VALUES('plain',X'00000000000000000000000000001111',1,1);
INSERT INTO "topic" VALUES('with.settings',X'00000000000000000000000000002222',12,1);
CREATE TABLE topic_config (
        topic TEXT NOT NULL REFERENCES topic ON DELETE CASCADE,
        name TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (topic, name)
    ) WITHOUT ROWID;
INSERT INTO "topic_config" VALUES('with.settings','cleanup.policy','compact,delete');
INSERT INTO "topic_config" VALUES('with.settings','retention.ms','5');
COMMIT;
PRAGMA user_version = 2;

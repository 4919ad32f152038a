"""An archive: topics as Parquet by event date, and manifests that say which files are in force."""

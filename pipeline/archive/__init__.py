"""Archives: topics as Parquet files by event date, with manifests that list the files in force."""

"""The custom resources as pydantic models: the only place where field names, defaults and limits are spelled."""

"""Where writer schemas are found: `connectors.ports.SchemaStore` on a folder, or on nothing."""

from connectors.schema_store.folder import FileSchemaStore, NoSchemaStore

__all__ = ["FileSchemaStore", "NoSchemaStore"]

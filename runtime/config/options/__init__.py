"""All options, one module per area. `runtime.config.catalog` collects them."""
